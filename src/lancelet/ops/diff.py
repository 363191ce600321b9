"""How two versions of a table differ: columns, settings, files, indices and rows, as a value.

    print(diff(version_3, version_7))

    version 3 -> 7
    schema
      + price: double
      ~ name: string -> large_string
    config
      + lance.auto_cleanup.interval: '20'
    files
      + data/c.lance (data file)
      - data/b.lance (data file)
    indices
      + id_idx (1 segment)
    rows: 100 -> 90 (0 inserted, 5 updated, 10 deleted)

Neither version has to be the older one. Only what manifests say is read, and the deletion files of
fragments that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum

from lancelet.errors import VersionNotFoundError
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.ops.changes.between import RowsNotTrackedError, check_followed
from lancelet.ops.changes.rows import ChangeKind, rows_changed
from lancelet.ops.list_files import files_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


class Side(Enum):
    """Which of two versions has something; the sign that stands for it."""

    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that only one version has, or that is not the same in both.

    `before` and `after` say what it is in each version, and are None where it is not.
    """

    name: str
    before: str | None
    after: str | None

    @property
    def side(self) -> Side:
        """Which version has it."""
        if self.before is None:
            return Side.ADDED
        return Side.REMOVED if self.after is None else Side.CHANGED

    def __str__(self) -> str:
        """Return one line of text."""
        told = [part for part in (self.before, self.after) if part]
        return f"{self.side.value} {self.name}" + (f": {' -> '.join(told)}" if told else "")


@dataclass(frozen=True, slots=True)
class RowsDifference:
    """How many rows there are, and how many changed in which way.

    The latter are None where the table does not tell; `unknown` then says why.
    """

    before: int
    after: int
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    unknown: str | None = None

    def __str__(self) -> str:
        """Return one line of text."""
        if self.unknown is not None:
            return f"{self.before} -> {self.after} (which ones is not known: {self.unknown})"
        kinds = f"{self.inserted} inserted, {self.updated} updated, {self.deleted} deleted"
        return f"{self.before} -> {self.after} ({kinds})"


@dataclass(frozen=True, slots=True)
class TableDifference:
    """How one version of a table differs from another."""

    begin_version: int
    end_version: int
    schema: tuple[Difference, ...]
    config: tuple[Difference, ...]
    metadata: tuple[Difference, ...]
    files: tuple[Difference, ...]
    indices: tuple[Difference, ...]
    rows: RowsDifference

    def __bool__(self) -> bool:
        """Return whether anything differs."""
        rows = (self.rows.inserted, self.rows.updated, self.rows.deleted)
        return any((self.schema, self.config, self.metadata, self.files, self.indices, *rows))

    def __str__(self) -> str:
        """Return the difference as lines of text, see the top of the module."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"version {self.begin_version} -> {self.end_version}"
        for part in ("schema", "config", "metadata", "files", "indices"):
            found: tuple[Difference, ...] = getattr(self, part)
            if found:
                yield part
                yield from (f"  {each}" for each in found)
        yield f"rows: {self.rows}"


def diff(begin: Snapshot, end: Snapshot) -> TableDifference:
    """Return how a version differs from another of the same table."""
    return TableDifference(
        begin.version,
        end.version,
        tuple(_fields(begin.schema, end.schema)),
        tuple(_entries(begin.manifest.config, end.manifest.config)),
        tuple(_entries(_metadata(begin), _metadata(end))),
        tuple(_entries(_files(begin), _files(end), shows_values=True)),
        tuple(_entries(_indices(begin), _indices(end), shows_values=True)),
        _rows(begin, end),
    )


def _fields(before: Schema, after: Schema) -> Iterator[Difference]:
    """Yield differing fields by path; one that was renamed is known by its id."""
    ours = {int(field.id): field for field in before.walk()}
    theirs = {int(field.id): field for field in after.walk()}
    for field_id in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(field_id), theirs.get(field_id)
        old = None if one is None else before.path_of(field_id)
        new = None if other is None else after.path_of(field_id)
        told = _described(one), _described(other)
        if old is not None and new is not None and old != new:
            yield Difference(f"{old} -> {new}", *told)
        elif told[0] != told[1]:
            yield Difference(old or new or "", *told)


def _described(field: Field | None) -> str | None:
    if field is None:
        return None
    notes = "" if field.nullable else " not null"
    notes += f" {dict(field.metadata)}" if field.metadata else ""
    return f"{field.logical_type}{notes}"


def _entries(
    before: Mapping[str, str], after: Mapping[str, str], *, shows_values: bool = False
) -> Iterator[Difference]:
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one != other:
            yield Difference(key, *(_shown(each, as_is=shows_values) for each in (one, other)))


def _shown(value: str | None, *, as_is: bool) -> str | None:
    return value if as_is or value is None else repr(value)


def _metadata(snapshot: Snapshot) -> dict[str, str]:
    """Return the metadata of the table and of its schema, in one."""
    return {
        **{f"table.{key}": value for key, value in snapshot.manifest.table_metadata.items()},
        **{f"schema.{key}": value for key, value in snapshot.schema.metadata.items()},
    }


def _files(snapshot: Snapshot) -> dict[str, str]:
    """Return what each file is that a version names and another may name too."""
    own = {snapshot.entry.path, f"_transactions/{snapshot.manifest.transaction_file}"}
    root = snapshot.location.uri
    found = {}
    for file in files_of(snapshot):
        if file.path not in own:
            place = file.path if file.base_uri == root else f"{file.base_uri}/{file.path}"
            found[place] = file.type
    return found


def _indices(snapshot: Snapshot) -> dict[str, str]:
    segments: dict[str, list[str]] = {}
    for index in snapshot.indices.indices:
        segments.setdefault(index.name, []).append(str(index.uuid))
    return {name: f"segments {', '.join(sorted(ids))}" for name, ids in segments.items()}


def _rows(begin: Snapshot, end: Snapshot) -> RowsDifference:
    counts = begin.num_rows, end.num_rows
    try:
        check_followed(*sorted((begin, end), key=lambda snapshot: snapshot.version))
    except (RowsNotTrackedError, VersionNotFoundError) as error:
        return RowsDifference(*counts, unknown=str(error))
    found: Counter[ChangeKind] = Counter()
    for rows in rows_changed(begin, end):
        found[rows.kind] += len(rows)
    inserted, updated, deleted = (found[kind] for kind in ChangeKind)
    return RowsDifference(*counts, inserted, updated, deleted)
