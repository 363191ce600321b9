"""Compare two versions of a table: schema, settings, files, indices and rows.

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

The versions may be given in either order. Only manifests are read, and the deletion files of
fragments that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from html import escape

from lancelet.errors import VersionNotFoundError
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes.between import RowsNotTrackedError, check_trackable
from lancelet.upkeep.changes.rows import ChangeKind, rows_changed
from lancelet.upkeep.list_files import list_tracked_files
from lancelet.values import dataclass


class DifferenceKind(Enum):
    """The kind of a difference, with its symbol."""

    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that was added, removed or changed between two versions.

    `before` and `after` describe the entry in each version; None if the version does not have it.
    """

    name: str
    before: str | None
    after: str | None

    @property
    def side(self) -> DifferenceKind:
        """The kind of the difference."""
        if self.before is None:
            return DifferenceKind.ADDED
        return DifferenceKind.REMOVED if self.after is None else DifferenceKind.CHANGED

    def __str__(self) -> str:
        """Return the difference as one line of text."""
        values = [part for part in (self.before, self.after) if part]
        return f"{self.side.value} {self.name}" + (f": {' -> '.join(values)}" if values else "")


@dataclass(frozen=True, slots=True)
class RowsDifference:
    """The number of rows of both versions, and the number of inserted, updated and deleted rows.

    The latter are None if row changes are not tracked; `unknown` gives the reason.
    """

    before: int
    after: int
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    unknown: str | None = None

    def __str__(self) -> str:
        """Return the difference as one line of text."""
        if self.unknown is not None:
            return f"{self.before} -> {self.after} (changes unknown: {self.unknown})"
        kinds = f"{self.inserted} inserted, {self.updated} updated, {self.deleted} deleted"
        return f"{self.before} -> {self.after} ({kinds})"


@dataclass(frozen=True, slots=True, repr=False)
class TableDifference:
    """The differences between two versions of a table."""

    begin_version: int
    end_version: int
    schema: tuple[Difference, ...]
    config: tuple[Difference, ...]
    metadata: tuple[Difference, ...]
    files: tuple[Difference, ...]
    indices: tuple[Difference, ...]
    rows: RowsDifference

    def __bool__(self) -> bool:
        """Return whether the versions differ."""
        rows = (self.rows.inserted, self.rows.updated, self.rows.deleted)
        return any((self.schema, self.config, self.metadata, self.files, self.indices, *rows))

    def __str__(self) -> str:
        """Return the differences as text; see the example of this module."""
        return "\n".join(self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _lines(self) -> Iterator[str]:
        yield f"version {self.begin_version} -> {self.end_version}"
        for part in ("schema", "config", "metadata", "files", "indices"):
            differences: tuple[Difference, ...] = getattr(self, part)
            if differences:
                yield part
                yield from (f"  {difference}" for difference in differences)
        yield f"rows: {self.rows}"


def diff(begin: Snapshot, end: Snapshot) -> TableDifference:
    """Return the differences between two versions of a table."""
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
    """Yield the fields that differ; renamed fields are matched by id."""
    old_fields = {int(field.id): field for field in before.walk()}
    new_fields = {int(field.id): field for field in after.walk()}
    for field_id in dict.fromkeys([*old_fields, *new_fields]):
        old_field, new_field = old_fields.get(field_id), new_fields.get(field_id)
        old = None if old_field is None else before.path_of(field_id)
        new = None if new_field is None else after.path_of(field_id)
        descriptions = _describe(old_field), _describe(new_field)
        if old is not None and new is not None and old != new:
            yield Difference(f"{old} -> {new}", *descriptions)
        elif descriptions[0] != descriptions[1]:
            yield Difference(old or new or "", *descriptions)


def _describe(field: Field | None) -> str | None:
    if field is None:
        return None
    suffix = "" if field.nullable else " not null"
    suffix += f" {dict(field.metadata)}" if field.metadata else ""
    return f"{field.logical_type}{suffix}"


def _entries(
    before: Mapping[str, str], after: Mapping[str, str], *, shows_values: bool = False
) -> Iterator[Difference]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old != new:
            yield Difference(
                key, *(_format_value(value, as_is=shows_values) for value in (old, new))
            )


def _format_value(value: str | None, *, as_is: bool) -> str | None:
    return value if as_is or value is None else repr(value)


def _metadata(snapshot: Snapshot) -> dict[str, str]:
    """Return the combined metadata of the table and its schema."""
    return {
        **{f"table.{key}": value for key, value in snapshot.manifest.table_metadata.items()},
        **{f"schema.{key}": value for key, value in snapshot.schema.metadata.items()},
    }


def _files(snapshot: Snapshot) -> dict[str, str]:
    """Return the type of each file, except for the manifest and the transaction."""
    excluded = {snapshot.entry.path, f"_transactions/{snapshot.manifest.transaction_file}"}
    root = snapshot.location.uri
    types = {}
    for file in list_tracked_files(snapshot):
        if file.path not in excluded:
            path = file.path if file.base_uri == root else f"{file.base_uri}/{file.path}"
            types[path] = file.type
    return types


def _indices(snapshot: Snapshot) -> dict[str, str]:
    segments: dict[str, list[str]] = {}
    for index in snapshot.indices.indices:
        segments.setdefault(index.name, []).append(str(index.uuid))
    return {name: f"segments {', '.join(sorted(ids))}" for name, ids in segments.items()}


def _rows(begin: Snapshot, end: Snapshot) -> RowsDifference:
    counts = begin.num_rows, end.num_rows
    try:
        check_trackable(*sorted((begin, end), key=lambda snapshot: snapshot.version))
    except (RowsNotTrackedError, VersionNotFoundError) as error:
        return RowsDifference(*counts, unknown=str(error))
    num_changed: Counter[ChangeKind] = Counter()
    for rows in rows_changed(begin, end):
        num_changed[rows.kind] += len(rows)
    inserted, updated, deleted = (num_changed[kind] for kind in ChangeKind)
    return RowsDifference(*counts, inserted, updated, deleted)
