"""Refresh computed columns: compute the rows that are out of date, fragment by fragment.

    version 12   fragment 3: rows 4 to 9, fragment 5: row 0
    version 13   a new file of the computed columns for fragment 3, with new values for rows 4 to 9
    version 14   the same for fragment 5

Each version also records that its rows are up to date. Rows are computed in batches. If a function
fails, the batches before are committed.

If another writer changes a fragment first, the fragment is read again, and only the changed rows
are computed again. Deleted rows stay deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.buffers import Int64s
from lancelet.change.columns.computed import (
    Functions,
    bound_inputs,
    function_of,
    values_of,
    with_input_fields,
)
from lancelet.change.columns.fields import ColumnError
from lancelet.change.columns.from_given import Joined
from lancelet.change.columns.saved_results import RowKeys, SavedResults
from lancelet.change.columns.sources import BATCH_ROWS
from lancelet.change.columns.update import update_fragment_columns
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.publish import CommitProperties, publish
from lancelet.errors import CommitConflictError, LanceletError
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.operation import Update, UpdateConfig, UpdateMap, UpdateMode
from lancelet.format.roaring import render_bitmap, to_bitmap
from lancelet.format.schema import Schema
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.scan.take import take_addresses
from lancelet.table.apply.state import with_column_file
from lancelet.table.commit import CommitOptions, refresh_snapshot
from lancelet.table.computed_columns import (
    STORED_KEY,
    UpToDate,
    definitions_of,
    entries_after_refresh,
    num_stale_rows,
    stale_offsets,
    stored_definitions,
)
from lancelet.table.lineage import row_ids_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace

CONFLICTS_MAX: Final = 10
_ROW_ADDRESS: Final = "_rowaddr"

Offsets: TypeAlias = Mapping[int, Int64s]
"""Offsets of rows by fragment id."""


@dataclass(frozen=True, slots=True)
class RefreshedRows:
    """The result of a refresh.

    Attributes:
        refreshed: The number of rows whose values were computed.
        remaining: The number of rows that are still out of date.
    """

    refreshed: int
    remaining: int


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """Limits of a refresh, the rows per call of a function, and a folder for results."""

    max_rows: int | None = None
    max_seconds: float | None = None
    batch_rows: int = BATCH_ROWS
    checkpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time at which to stop; None for no limit."""

    monotonic: float | None

    @staticmethod
    def after(seconds: float | None) -> Deadline:
        """Return the time after some seconds."""
        return Deadline(None if seconds is None else surroundings.monotonic() + seconds)

    @property
    def is_over(self) -> bool:
        """Whether to stop."""
        return self.monotonic is not None and surroundings.monotonic() >= self.monotonic


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """Computes rows: functions, batch size, deadline and saved results."""

    functions: Functions
    batch_rows: int
    deadline: Deadline
    saved: SavedResults

    def values(self, snapshot: Snapshot, addresses: UInt64s) -> pa.Table:
        """Return the values of all computed columns for the rows at addresses."""
        columns, fields = [], []
        for field, definition in definitions_of(snapshot.schema):
            call = function_of(field, definition, self.functions)
            projection = bound_inputs(definition, snapshot.schema, field.name)
            rows = take_addresses(snapshot, addresses, projection)
            # Inputs of more than 2 GiB have several batches.
            values = [
                values_of(definition, inputs, field.arrow_type, call)
                for inputs in rows.combine_chunks().to_batches()
            ]
            columns.append(pa.chunked_array(values, field.arrow_type))
            fields.append(pa.field(field.name, field.arrow_type))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


@dataclass(frozen=True, slots=True, eq=False)
class RefreshedFragment:
    """New values for rows of a fragment, written to a file but not committed."""

    fragment: Fragment
    definitions: tuple[str, ...]
    offsets: Int64s
    file: DataFile

    @property
    def fragment_id(self) -> int:
        """The id of the fragment."""
        return int(self.fragment.id)

    def live_offsets(self, snapshot: Snapshot) -> Int64s | None:
        """Return the rows that the file updates; None if it is no longer valid.

        Deletions do not matter, since files contain deleted rows.
        """
        if self.fragment_id not in snapshot.fragments.ids:
            return None
        fragment = snapshot.fragments.by_id(self.fragment_id)
        if fragment != replace(self.fragment, deletion_file=fragment.deletion_file):
            return None
        if stored_definitions(snapshot.schema) != self.definitions:
            return None
        rows = snapshot.physical_rows(fragment)
        live = self.offsets[snapshot.deletions(fragment).live_within(0, rows)[self.offsets]]
        return live if len(live) else None


def refresh_columns(
    snapshot: Snapshot, functions: Functions, options: RefreshOptions | None = None
) -> tuple[Snapshot, RefreshedRows]:
    """Compute the values that are out of date; each fragment is committed once."""
    chosen = options or RefreshOptions()
    current = with_current_inputs(refresh_snapshot(snapshot))
    check_functions(current.schema, functions)
    saved = SavedResults.of(current, chosen.checkpoint)
    deadline = Deadline.after(chosen.max_seconds)
    how = Computing(functions, chosen.batch_rows, deadline, saved)
    queue = StaleQueue(current, chosen.max_rows)
    while (found := queue.next_fragment(current)) is not None and not deadline.is_over:
        fragment, offsets = found
        part, error = compute_fragment(current, fragment, offsets, how)
        parts = [] if part is None else [part]
        if error is not None:
            with contextlib.suppress(LanceletError):
                publish_refreshed(current, parts)
            raise error
        if not parts:
            break  # the time is over
        is_last = queue.is_last and len(parts[0].offsets) == len(offsets)
        current, done = publish_refreshed(current, parts, is_last=is_last)
        queue.finish([int(fragment.id)], done)
        if done:
            saved.forget(int(fragment.id))
    remaining = num_stale_rows(current)
    if not remaining:
        saved.clear()
    return current, RefreshedRows(queue.num_done, remaining)


def report_refresh(
    snapshot: Snapshot, functions: Functions, options: RefreshOptions
) -> ChangeReport:
    """Return the effect of a refresh; calls the functions."""
    check_functions(snapshot.schema, functions)
    dry_run = DryRun.of(snapshot)
    deadline = Deadline.after(options.max_seconds)
    how = Computing(functions, options.batch_rows, deadline, SavedResults())
    queue, parts = StaleQueue(snapshot, options.max_rows), []
    while (found := queue.next_fragment(snapshot)) is not None and not deadline.is_over:
        part, error = compute_fragment(dry_run.snapshot, *found, how)
        if error is not None:
            raise error
        parts += [] if part is None else [part]
        queue.finish([int(found[0].id)], {int(found[0].id): found[1]})
    offsets = {part.fragment_id: part.offsets for part in parts}
    rows = sum(map(len, offsets.values()))
    return dry_run.report(_operation(snapshot, parts, offsets), rows)


class StaleQueue:
    """The fragments to refresh, and the number of rows that may still be computed.

    After a pass, fragments that another writer changed during the pass are listed again.
    """

    def __init__(self, snapshot: Snapshot, max_rows: int | None) -> None:
        """List the stale rows of a version."""
        self.num_done = 0
        self._max_rows = max_rows
        self._conflicts = 0
        self._fragments = _ids_of_stale(snapshot)
        self._is_disturbed = False
        self._has_conflict = False

    @property
    def is_last(self) -> bool:
        """Whether one fragment remains."""
        return len(self._fragments) == 1

    def next_fragment(self, snapshot: Snapshot) -> tuple[Fragment, Int64s] | None:
        """Return the first fragment and its stale rows, within the limit."""
        return next(iter(self.fragments(snapshot)), None)

    def fragments(self, snapshot: Snapshot) -> Iterator[tuple[Fragment, Int64s]]:
        """Yield the fragments and their stale rows in a version, within the limit."""
        left = None if self._max_rows is None else self._max_rows - self.num_done
        if not self._fragments and self._is_disturbed:
            self._fragments = _ids_of_stale(snapshot)
            self._is_disturbed = False
            self._count_conflicts()
        state, ids = UpToDate.of(snapshot), snapshot.fragments.ids
        for number in tuple(self._fragments):
            if left is not None and left <= 0:
                return
            offsets: Int64s = np.empty(0, np.int64)
            if number in ids:
                fragment = snapshot.fragments.by_id(number)
                offsets = state.stale_rows(snapshot, fragment).offsets
            if not len(offsets):
                del self._fragments[number]
                self._is_disturbed = True  # its rows may have moved
                continue
            if left is not None:
                offsets = offsets[:left]
                left -= len(offsets)
            yield fragment, offsets

    def finish(self, computed: Sequence[int], committed: Offsets) -> None:
        """Remove fragments that were computed; those without a commit are listed again."""
        for number in computed:
            self._fragments.pop(number, None)
        self.num_done += sum(map(len, committed.values()))
        if len(committed) < len(computed):
            self._is_disturbed = self._has_conflict = True

    def _count_conflicts(self) -> None:
        """Raise if fragments are listed again after conflicts for the last time."""
        if self._has_conflict and self._fragments:
            self._has_conflict = False
            self._conflicts += 1
            if self._conflicts == CONFLICTS_MAX:
                raise CommitConflictError(
                    "other writers changed the rows again and again; refresh the columns later",
                    fragments=sorted(self._fragments),
                    retryable=True,
                )


def _ids_of_stale(snapshot: Snapshot) -> dict[int, None]:
    return {int(fragment.id): None for fragment, _ in stale_offsets(snapshot)}


def check_functions(schema: Schema, functions: Functions) -> None:
    """Raise if a function is missing, before anything is computed."""
    for field, definition in definitions_of(schema):
        function_of(field, definition, functions)


def with_current_inputs(snapshot: Snapshot) -> Snapshot:
    """Record the present fields of inputs if they changed; all rows are out of date then."""
    current = snapshot
    for attempt in range(CONFLICTS_MAX):
        changed = {}
        for field, definition in definitions_of(current.schema):
            bound_inputs(definition, current.schema, field.name)
            if not definition.is_unchanged_in(current.schema):
                text = with_input_fields(definition, current.schema).render()
                changed[int(field.id)] = UpdateMap({STORED_KEY: text})
        if not changed:
            return current
        if not current.manifest.uses_stable_row_ids:
            break
        reset = UpdateMap(dict(UpToDate(0).to_config()))
        try:
            return publish(current, UpdateConfig(config=reset, field_metadata=changed))
        except CommitConflictError:
            if attempt == CONFLICTS_MAX - 1:
                raise
            current = refresh_snapshot(current)
    return current


class ComputedRows(NamedTuple):
    """The rows computed before the deadline or an error, and the error."""

    offsets: Int64s
    columns: pa.Table
    error: BaseException | None


def compute_rows(
    snapshot: Snapshot, fragment: Fragment, offsets: Int64s, how: Computing
) -> ComputedRows:
    """Compute rows of a fragment in batches, or find their results."""
    if not snapshot.manifest.uses_stable_row_ids:
        raise ColumnError(
            "the table has computed columns but no stable row ids, which record the versions of "
            "rows; call migrate_to_stable_row_ids",
            uri=snapshot.location.uri,
        )
    stale = UpToDate.of(snapshot).stale_rows(snapshot, fragment)
    versions = stale.versions[np.searchsorted(stale.offsets, offsets)]
    rows = RowKeys(row_ids_of(snapshot, fragment).take(offsets), versions)
    has_result, table = how.saved.find(fragment, rows)
    parts = [table] if has_result.any() else []
    done = [offsets[has_result]]
    missing, error = np.flatnonzero(~has_result), None
    for start in range(0, len(missing), how.batch_rows):
        if how.deadline.is_over:
            break
        batch = missing[start : start + how.batch_rows]
        try:
            values = how.values(snapshot, addresses_of(fragment.id, offsets[batch]))
        except (Exception, KeyboardInterrupt) as raised:  # noqa: BLE001 - the caller raises it
            error = raised
            break
        how.saved.add(fragment, rows.take(batch), values)
        parts.append(values)
        done.append(offsets[batch])
    if not parts:
        return ComputedRows(np.empty(0, np.int64), table, error)
    columns = pa.concat_tables(part.select(parts[-1].column_names) for part in parts)
    return ComputedRows(np.concatenate(done), columns, error)


def compute_fragment(
    snapshot: Snapshot, fragment: Fragment, offsets: Int64s, how: Computing
) -> tuple[RefreshedFragment | None, BaseException | None]:
    """Compute rows of a fragment, and write them to a file; return it and the error, if any."""
    computed, columns, error = compute_rows(snapshot, fragment, offsets, how)
    if not len(computed):
        return None, error
    joined = Joined(pa.array(addresses_of(fragment.id, computed)), columns)
    updated = update_fragment_columns(snapshot, fragment, _ROW_ADDRESS, joined)
    by_fields = {file.fields: file for file in updated.fragment.files}
    part = RefreshedFragment(
        fragment,
        stored_definitions(snapshot.schema),
        np.sort(computed),
        by_fields[updated.field_ids],
    )
    return part, error


def publish_refreshed(
    snapshot: Snapshot,
    parts: Sequence[RefreshedFragment],
    *,
    is_last: bool = False,
    properties: CommitProperties | None = None,
    checks_files: bool = False,
) -> tuple[Snapshot, Offsets]:
    """Commit the parts that are still valid, in one version; return it with the updated rows."""
    for attempt in range(CONFLICTS_MAX):
        valid = [(part, part.live_offsets(snapshot)) for part in parts]
        offsets = {part.fragment_id: live for part, live in valid if live is not None}
        if not offsets:
            break
        remaining = [part for part in parts if part.fragment_id in offsets]
        is_whole = is_last and len(remaining) == len(parts)
        entries = partial(
            entries_after_refresh,
            definitions=remaining[0].definitions,
            refreshed=offsets,
            is_last=is_whole,
        )
        options = CommitOptions(checks_files=checks_files, config_entries=entries)
        try:
            operation = _operation(snapshot, remaining, offsets)
            return publish(snapshot, operation, options, properties), offsets
        except CommitConflictError:
            if attempt == CONFLICTS_MAX - 1:
                raise
            snapshot = refresh_snapshot(snapshot)
    return snapshot, {}


def _operation(snapshot: Snapshot, parts: Sequence[RefreshedFragment], offsets: Offsets) -> Update:
    by_id = snapshot.fragments.by_id
    return Update(
        updated_fragments=tuple(
            with_column_file(by_id(part.fragment_id), part.file) for part in parts
        ),
        fields_modified=tuple(dict.fromkeys(each for part in parts for each in part.file.fields)),
        mode=UpdateMode.REWRITE_COLUMNS,
        updated_offsets={
            number: render_bitmap(to_bitmap(rows)) for number, rows in offsets.items()
        },
    )
