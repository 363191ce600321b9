"""Computed columns: their stored definitions, and the rows whose values are up to date.

    field metadata   lancelet.computed   {"function": "embed", "inputs": ["title"],
                                          "fields": [{"path": ["title"], "depth": 1, "ids": [1]}]}
    table config     lancelet.computed   {"version": 12, "own": [14], "ranges": [[16, 40]]}

The values of a row are up to date if it was last updated up to version 12, or by versions 14 or 16
to 40, which refreshes committed. Other rows were inserted or updated since. A row has one version,
so a refresh computes all columns of a row together.

A commit that adds columns updates all rows, but none of their inputs. Rows that were out of date
before are then listed by their ids: with `"hidden": {"at": 41, "ids": ...}`, rows of version 41 are
up to date unless they are listed. Earlier releases ignore the list and compute all these rows.

The config entry is written by the commit that it describes, never by a later one: a refresh that
stops leaves no rows in an unknown state, and concurrent refreshes retain the entries of each other.
A restore also restores the entry.

Inputs are found by field id. If the fields of an input change, for example if a struct gets another
one, all rows are out of date.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.format.field import Field
from lancelet.format.field_path import parse_path
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.lineage import row_ids_of, updated_versions_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

STORED_KEY: Final = "lancelet.computed"
"""The key in the metadata of fields, and in the table config."""

_COMMITS_PER_CLEANING: Final = 256
"""After so many commits, a refresh removes versions that no row has from the list."""
_HIDDEN_BYTES_MAX: Final = 1 << 18
"""Maximum size of the row ids in the table config."""


@dataclass(frozen=True, slots=True)
class InputField:
    """A field that a definition reads.

    Attributes:
        path: The path as written in the definition.
        depth: The number of names in the path that are fields; others are keys of a map.
        ids: The ids of the field and of its descendants.
    """

    path: tuple[str, ...]
    depth: int
    ids: tuple[int, ...]

    def path_in(self, schema: Schema) -> tuple[str, ...] | None:
        """Return the path in a schema; None if the field was dropped."""
        if self.ids[0] not in schema.by_id:
            return None
        return (*parse_path(schema.path_of(self.ids[0])), *self.path[self.depth :])

    def is_unchanged_in(self, schema: Schema) -> bool:
        """Return whether a schema has the field with the same descendants."""
        field = schema.by_id.get(self.ids[0])
        return field is not None and tuple(int(node.id) for node in field.walk()) == self.ids


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as stored: an expression, or the name of a function and its inputs.

    `fields` is None for definitions of earlier releases, whose inputs are found by name.
    """

    expression: str | None
    function: str | None
    inputs: tuple[str, ...]
    fields: tuple[InputField, ...] | None = None

    @staticmethod
    def parse(text: str, column: str) -> Definition:
        """Parse the text in the metadata of a field."""
        try:
            stored = json.loads(text)
            fields = stored.get("fields")
            return Definition(
                stored.get("expression"),
                stored.get("function"),
                tuple(stored["inputs"]),
                None if fields is None else tuple(map(_input_field, fields)),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                "the definition of a computed column is damaged; drop the column and add it again",
                column=column,
            ) from error

    def render(self) -> str:
        """Return the text for the metadata of a field."""
        stored: dict[str, Any] = {
            "expression": self.expression,
            "function": self.function,
            "inputs": list(self.inputs),
        }
        if self.fields is not None:
            stored["fields"] = [
                {"path": list(each.path), "depth": each.depth, "ids": list(each.ids)}
                for each in self.fields
            ]
        return json.dumps(stored)

    def is_unchanged_in(self, schema: Schema) -> bool:
        """Return whether a schema has the inputs with the same fields."""
        return self.fields is None or all(each.is_unchanged_in(schema) for each in self.fields)


def _input_field(stored: Mapping[str, Any]) -> InputField:
    field = InputField(tuple(stored["path"]), int(stored["depth"]), tuple(map(int, stored["ids"])))
    if not field.ids:
        raise ValueError(stored)
    return field


class StaleOffsets(NamedTuple):
    """Rows of a fragment that are out of date: their offsets and versions.

    `is_hidden` is set for rows that are only known by their ids.
    """

    offsets: Int64s
    versions: UInt64s
    is_hidden: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Hidden:
    """Rows of version `at` that are out of date, as an encoded sequence of row ids."""

    at: int
    ids: bytes

    def find(self, snapshot: Snapshot, fragment: Fragment) -> npt.NDArray[np.bool_]:
        """Return which rows of a fragment are listed."""
        own = row_ids_of(snapshot, fragment).to_array()
        found: npt.NDArray[np.bool_] = np.isin(own, RowIdSequence.parse(self.ids).to_array())
        return found


@dataclass(frozen=True, slots=True)
class UpToDate:
    """The version up to which values are up to date, and later versions of refreshes."""

    version: int
    own: tuple[int, ...] = ()
    hidden: Hidden | None = None

    @staticmethod
    def of(snapshot: Snapshot) -> UpToDate:
        """Return the state of a version."""
        text = snapshot.manifest.config.get(STORED_KEY)
        definitions = (definition for _, definition in definitions_of(snapshot.schema))
        if text is None or not all(each.is_unchanged_in(snapshot.schema) for each in definitions):
            return UpToDate(0)
        try:
            stored = json.loads(text)
            own = list(map(int, stored["own"]))
            for first, last in stored.get("ranges", ()):
                own += range(int(first), int(last) + 1)
            hidden = stored.get("hidden")
            if hidden is not None:
                hidden = Hidden(int(hidden["at"]), base64.b64decode(hidden["ids"]))
            return UpToDate(int(stored["version"]), tuple(sorted(own)), hidden)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                "the record of computed columns in the table config is damaged; delete the entry "
                "to compute all values again",
                key=STORED_KEY,
                found=text,
            ) from error

    def to_config(self) -> dict[str, str]:
        """Return the entry of the table config."""
        stored: dict[str, Any] = {"version": self.version}
        own = np.array(self.own, np.int64)
        runs = np.split(own, np.flatnonzero(np.diff(own) != 1) + 1) if len(own) else []
        stored["own"] = [int(number) for run in runs if len(run) < 3 for number in run]
        ranges = [[int(run[0]), int(run[-1])] for run in runs if len(run) >= 3]
        if ranges:
            stored["ranges"] = ranges
        if self.hidden is not None:
            ids = base64.b64encode(self.hidden.ids).decode()
            stored["hidden"] = {"at": self.hidden.at, "ids": ids}
        return {STORED_KEY: json.dumps(stored)}

    def are_stale(self, versions: UInt64s) -> npt.NDArray[np.bool_]:
        """Return whether rows with these versions are out of date, apart from hidden ones."""
        own = [*self.own] if self.hidden is None else [*self.own, self.hidden.at]
        is_own = np.isin(versions, np.array(own, np.uint64))
        is_stale: npt.NDArray[np.bool_] = (versions > self.version) & ~is_own
        return is_stale

    def stale_rows(self, snapshot: Snapshot, fragment: Fragment) -> StaleOffsets:
        """Return the live rows of a fragment that are out of date."""
        sequence = updated_versions_of(snapshot, fragment)
        versions, lengths = sequence.versions, sequence.lengths
        overlaid = _overlaid_version(snapshot, fragment)
        if overlaid:
            # Overlays change values but not the versions of rows.
            versions = np.maximum(versions, np.uint64(overlaid))
        is_stale, hidden = self.are_stale(versions), self.hidden
        has_hidden = hidden is not None and bool((versions == hidden.at).any())
        if not is_stale.any() and not has_hidden:
            nothing = np.empty(0, np.int64)
            return StaleOffsets(nothing, nothing.astype(np.uint64), nothing.astype(np.bool_))
        flags, by_row = np.repeat(is_stale, lengths), np.repeat(versions, lengths)
        is_hidden = np.zeros(len(flags), np.bool_)
        if hidden is not None and has_hidden:
            is_hidden = (by_row == hidden.at) & hidden.find(snapshot, fragment)
            flags |= is_hidden
        flags &= snapshot.deletions(fragment).live_within(0, len(flags))
        return StaleOffsets(np.flatnonzero(flags), by_row[flags], is_hidden[flags])


def _overlaid_version(snapshot: Snapshot, fragment: Fragment) -> int:
    """Return the version of the latest overlay of an input; 0 if there is none."""
    if not fragment.overlays:
        return 0
    inputs: set[int] = set()
    for _, definition in definitions_of(snapshot.schema):
        if definition.fields is None:
            inputs.update(int(node.id) for node in snapshot.schema.walk())
            break
        inputs.update(number for each in definition.fields for number in each.ids)
    return max(
        (
            overlay.committed_version
            for overlay in fragment.overlays
            if not inputs.isdisjoint(overlay.data_file.fields)
        ),
        default=0,
    )


def definitions_of(schema: Schema) -> Iterator[tuple[Field, Definition]]:
    """Yield the computed columns of a schema."""
    for field in schema.fields:
        text = field.metadata.get(STORED_KEY)
        if text is not None:
            yield field, Definition.parse(text, field.name)


def has_computed_columns(snapshot: Snapshot) -> bool:
    """Return whether a table has computed columns."""
    return any(STORED_KEY in field.metadata for field in snapshot.schema.fields)


def stale_offsets(snapshot: Snapshot) -> Iterator[tuple[Fragment, Int64s]]:
    """Yield the fragments with rows that are out of date, and the offsets of these rows."""
    if not has_computed_columns(snapshot):
        return
    state = UpToDate.of(snapshot)
    for fragment in snapshot.fragments:
        offsets = state.stale_rows(snapshot, fragment).offsets
        if len(offsets):
            yield fragment, offsets


def num_stale_rows(snapshot: Snapshot) -> int:
    """Return the number of rows that are out of date."""
    return sum(len(offsets) for _, offsets in stale_offsets(snapshot))


def entries_after_adding(before: Snapshot, version: int, *, is_computed: bool) -> Mapping[str, str]:
    """Return the config entries of a version that adds columns, or a computed column.

    The version updates all rows but changes no input.
    """
    if not (is_computed or has_computed_columns(before)):
        return {}
    ids = ids_of_stale_rows(before)
    if ids is None:
        return {}  # all rows are out of date
    if not len(ids):
        return UpToDate(version).to_config()
    return UpToDate(version - 1, hidden=Hidden(version, ids.render())).to_config()


def ids_of_stale_rows(snapshot: Snapshot) -> RowIdSequence | None:
    """Return the ids of rows that are out of date, or None if they are too many for the config."""
    return _ids_of(snapshot, lambda stale: stale.offsets)


def stored_definitions(schema: Schema) -> tuple[str, ...]:
    """Return texts that are equal if the computed columns and their inputs are the same."""
    return tuple(f"{field.id} {each.render()}" for field, each in definitions_of(schema))


def entries_after_refresh(
    before: Snapshot,
    version: int,
    *,
    definitions: tuple[str, ...],
    refreshed: Mapping[int, Int64s],
    is_last: bool,
) -> Mapping[str, str]:
    """Return the config entries of a version that updates the rows at `refreshed` offsets.

    The rows stay out of date if the definitions have changed since the rows were computed. The last
    version of a refresh replaces the list of its versions by one, where possible.
    """
    if stored_definitions(before.schema) != definitions:
        return {}
    state = UpToDate.of(before)
    if not is_last and (len(state.own) + 1) % _COMMITS_PER_CLEANING:
        return replace(state, own=(*state.own, version)).to_config()
    first_stale, hidden, present = version + 1, None, [np.empty(0, np.uint64)]
    for fragment in before.fragments:
        present.append(updated_versions_of(before, fragment).versions)
        stale = state.stale_rows(before, fragment)
        remaining = ~np.isin(stale.offsets, refreshed.get(int(fragment.id), ()))
        if (remaining & stale.is_hidden).any():
            hidden = state.hidden
        versions = stale.versions[remaining & ~stale.is_hidden]
        if len(versions):
            first_stale = min(first_stale, int(versions.min()))
    own = {*state.own, *(() if state.hidden is None or hidden else (state.hidden.at,))}
    own &= set(np.unique(np.concatenate(present)).tolist())
    up_to = first_stale - 1 if hidden is None else min(first_stale, hidden.at) - 1
    later = sorted(number for number in {*own, version} if number > up_to)
    return UpToDate(up_to, tuple(later), hidden).to_config()


def entries_after_limit(before: Snapshot, version: int) -> Mapping[str, str | None]:
    """Return the config entries after versions of rows above `version` were set to it.

    None removes the entry, so that all rows are out of date.
    """
    if STORED_KEY not in before.manifest.config:
        return {}
    ids = _ids_of(before, lambda stale: stale.offsets[stale.versions >= version])
    state = UpToDate.of(before)
    if not num_stale_rows(before):
        state = UpToDate(version)
    elif ids is None or state.hidden is not None:
        return {STORED_KEY: None}
    else:
        own = tuple(number for number in state.own if number < version)
        hidden = Hidden(version, ids.render())
        state = UpToDate(min(state.version, version - 1), own, hidden)
    return {STORED_KEY: state.to_config()[STORED_KEY]}


def _ids_of(snapshot: Snapshot, select: Callable[[StaleOffsets], Int64s]) -> RowIdSequence | None:
    """Return the ids of some stale rows, or None if they are too many for the config."""
    state, ids = UpToDate.of(snapshot), [np.empty(0, np.uint64)]
    for fragment in snapshot.fragments if has_computed_columns(snapshot) else ():
        offsets = select(state.stale_rows(snapshot, fragment))
        if len(offsets):
            ids.append(row_ids_of(snapshot, fragment).take(offsets))
    sequence = RowIdSequence.of(np.sort(np.concatenate(ids)))
    return sequence if len(sequence.render()) <= _HIDDEN_BYTES_MAX else None
