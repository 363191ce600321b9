"""The usable indices of a version, by column path, opened on first use.

    ("age",)   by_age   segment 5f..   fragments {0, 1}
                        segment a3..   fragments {2}

Unusable segments are skipped with a warning, and the rows they cover are scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lancelet import index as kinds
from lancelet.expr.functions.json_path import keys_of_path
from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.base import SupportsCount, SupportsReadEstimates
from lancelet.index.query import IsNull, ScalarQuery, query_type
from lancelet.index.titles import TITLES
from lancelet.io.metered import IoCounts
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.scan.indexing.probes import WITHIN
from lancelet.scan.indexing.segments import (
    UNREADABLE,
    TableSegment,
    kind_of,
    loses_rows,
    table_segment,
    warn_unusable,
    warn_unusable_segment,
)
from lancelet.table.fragment_reuse import current_coverage
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """An index on one column, with segments that cover disjoint fragments."""

    name: str
    path: tuple[str, ...]
    segments: tuple[TableSegment, ...]

    @cached_property
    def covered(self) -> frozenset[int]:
        """The fragments covered by any segment."""
        return frozenset().union(*(segment.covered for segment in self.segments))

    @cached_property
    def num_rows(self) -> int:
        """The number of live rows in covered fragments."""
        snapshot = self.segments[0].snapshot
        return sum(snapshot.live_rows(snapshot.fragments.by_id(each)) for each in self.covered)

    @cached_property
    def num_unindexed_rows(self) -> int:
        """The number of live rows in other fragments."""
        return self.segments[0].snapshot.num_rows - self.num_rows

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of the segments; normally one."""
        return frozenset(segment.kind.name for segment in self.segments)

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether all segments evaluate a query exactly."""
        return all(segment.kind.is_exact(query) for segment in self.segments)

    def estimate(self, query: ScalarQuery, *, is_negated: bool = False) -> int | None:
        """Estimate the number of matching rows; None if the index does not support the query.

        With `is_negated`, estimate the rows that do not match, which requires an exact query.
        """
        if is_negated:
            found = self._estimate(query)
            nulls = 0 if isinstance(query, IsNull) else self._estimate(IsNull())
            return None if nulls is None or found is None else max(0, self.num_rows - found - nulls)
        return self._estimate(query)

    def _estimate(self, query: ScalarQuery) -> int | None:
        total = 0
        for segment in self.segments:
            if not self._is_of_type(segment, query):
                return None
            own = segment.open().estimate(query)
            if own is None:
                return None
            total += own
        return total

    def _is_of_type(self, segment: TableSegment, query: ScalarQuery) -> bool:
        """Return whether a query of document values has the value type of the segment."""
        if WITHIN not in self.path:
            return True
        data_type = query_type(query)
        return data_type is None or data_type == segment.value_type

    def estimate_reads(self, query: ScalarQuery, *, is_negated: bool = False) -> IoCounts:
        """Estimate the reads of a search, after its rows were estimated."""
        found = IoCounts()
        for segment in self.segments:
            opened = segment.open()
            if isinstance(opened, SupportsReadEstimates):
                found += opened.estimate_reads(query)
                found += opened.estimate_reads(IsNull()) if is_negated else IoCounts()
        return found

    def search(self, query: ScalarQuery) -> tuple[RowSet, bool]:
        """Return the rows found for a query, and whether all of them match."""
        rows, is_exact = NO_ROWS, True
        for segment in self.segments:
            found = segment.open().search(query)
            rows |= segment.addresses(found.rows)
            is_exact &= found.is_exact
        return rows, is_exact

    def count(self, query: ScalarQuery) -> int | None:
        """Return the number of matching rows, or None if segments cannot count without a search."""
        total = 0
        for segment in self.segments:
            opened = segment.open()
            if not isinstance(opened, SupportsCount) or not segment.has_live_rows_only:
                return None
            own = opened.count(query)
            if own is None:
                return None
            total += own
        return total

    def nulls(self) -> RowSet | None:
        """Return the rows with a null value, or None if a segment does not store them."""
        rows = NO_ROWS
        for segment in self.segments:
            own = segment.open().nulls()
            if own is None:
                return None
            rows |= segment.addresses(own)
        return rows


def column_indices(
    snapshot: Snapshot, of: Snapshot | None = None
) -> Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]:
    """Return the usable indices by column path.

    With `of`, share the open indices of another snapshot of the same version.
    """
    if of is not None:
        return snapshot.version_cache.get_or_make("column indices", lambda: column_indices(of))
    return snapshot.version_cache.get_or_make(
        "column indices", lambda: _find(snapshot, lambda segment: not _is_of_vectors(segment))
    )


def vector_indices(
    snapshot: Snapshot, of: Snapshot | None = None
) -> Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]:
    """Return the usable vector indices by column path.

    With `of`, share the open indices of another snapshot of the same version.
    """
    if of is not None:
        return snapshot.version_cache.get_or_make("vector indices", lambda: vector_indices(of))
    return snapshot.version_cache.get_or_make(
        "vector indices", lambda: _find(snapshot, _is_of_vectors)
    )


class _ByColumn(Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]):
    """The indices by column path; files are opened on first access to a column."""

    def __init__(self, listed: Mapping[tuple[str, ...], Sequence[TableSegment]]) -> None:
        self._listed = listed
        self._opened: dict[tuple[str, ...], tuple[ColumnIndex, ...]] = {}

    def __getitem__(self, path: tuple[str, ...]) -> tuple[ColumnIndex, ...]:
        if path not in self._opened:
            by_name: dict[str, list[TableSegment]] = {}
            for segment in self._listed[path]:
                if segment.covered and _is_usable(segment):
                    by_name.setdefault(segment.metadata.name, []).append(segment)
            self._opened[path] = tuple(
                ColumnIndex(name, path, tuple(segments)) for name, segments in by_name.items()
            )
        return self._opened[path]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


def _is_of_vectors(segment: TableSegment) -> bool:
    return segment.kind is kinds.vector.kind.IVF


def _find(snapshot: Snapshot, predicate: Callable[[TableSegment], bool]) -> _ByColumn:
    listed: dict[tuple[str, ...], list[TableSegment]] = {}
    for metadata in current_coverage(snapshot):
        if len(metadata.fields) != 1 or metadata.is_system:
            continue
        if metadata.fields[0] not in snapshot.schema.by_id:
            warn_unusable_segment(snapshot, metadata, "its column does not exist in the table")
            continue
        segment = table_segment(snapshot, metadata)
        if segment is None:
            _warn_of_unknown(snapshot, metadata)
        elif predicate(segment):
            path = snapshot.schema.fields_on_path(snapshot.schema.path_of(metadata.fields[0]))
            key = _key_path(tuple(field.name for field in path), segment.kind.json_path)
            if key is not None:
                listed.setdefault(key, []).append(segment)
    return _ByColumn(listed)


def _key_path(path: tuple[str, ...], within: str | None) -> tuple[str, ...] | None:
    """Return the path of the indexed values; None if no query can refer to it."""
    if within is None:
        return path
    keys = keys_of_path(within)
    return None if keys is None else (*path, WITHIN, *keys)


def _is_usable(segment: TableSegment) -> bool:
    """Return whether the files of a segment can be opened and cover all rows."""
    try:
        segment.open()
    except UNREADABLE as error:
        warn_unusable(segment.snapshot, error.with_facts(index=segment.metadata.name))
        return False
    if segment.lacks_rows:
        warn_unusable_segment(
            segment.snapshot, segment.metadata, "it lacks rows of fragments that it covers"
        )
    return not segment.lacks_rows


def _warn_of_unknown(snapshot: Snapshot, metadata: IndexMetadata) -> None:
    details, kind = metadata.details, kind_of(metadata.details)
    if kind is not None and loses_rows(snapshot, kind, metadata.index_version or 0):
        warn_unusable_segment(snapshot, metadata, "it may contain outdated row addresses")
    elif kind is not None:
        warn_unusable_segment(snapshot, metadata, "its version is newer than this release supports")
    elif details is not None and kinds.registry.kind_by_details_type(details.type_url) is not None:
        warn_unusable_segment(snapshot, metadata, "this release does not support its contents")
    elif details is None or details.type_name not in TITLES:
        warn_unusable_segment(snapshot, metadata, "this release does not support its kind")
