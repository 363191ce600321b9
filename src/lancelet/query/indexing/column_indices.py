"""The indices of a version that filters and searches can use, by column, opened when first asked.

    ("age",)   by_age   segment 5f..   fragments {0, 1}
                        segment a3..   fragments {2}

Segments that cannot be used are passed over with a warning: rows that they cover are scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lancelet import index as kinds
from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.base import SupportsCount, SupportsReadEstimates
from lancelet.index.query import IsNull, ScalarQuery, query_type
from lancelet.index.titles import TITLES
from lancelet.io.metered import IoCounts
from lancelet.query.functions.json_path import keys_of_path
from lancelet.query.indexing.probes import WITHIN
from lancelet.query.indexing.segments import (
    UNREADABLE,
    TableSegment,
    kind_of,
    loses_rows,
    table_segment,
    warn_once,
    warn_unusable,
)
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.table.fragment_reuse import current_coverage
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class ColumnIndex:
    """An index on one column: its segments, which cover different fragments."""

    name: str
    path: tuple[str, ...]
    segments: tuple[TableSegment, ...]

    @cached_property
    def covered(self) -> frozenset[int]:
        """The fragments that some segment has rows of."""
        return frozenset().union(*(segment.covered for segment in self.segments))

    @cached_property
    def num_rows(self) -> int:
        """How many rows there are in the fragments that it covers."""
        snapshot = self.segments[0].snapshot
        return sum(snapshot.live_rows(snapshot.fragments.by_id(each)) for each in self.covered)

    @cached_property
    def num_rows_elsewhere(self) -> int:
        """How many rows there are in other fragments."""
        return self.segments[0].snapshot.num_rows - self.num_rows

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of its segments, which is one unless somebody mixed them."""
        return frozenset(segment.kind.name for segment in self.segments)

    def is_exact(self, question: ScalarQuery) -> bool:
        """Return whether every segment answers a question exactly."""
        return all(segment.kind.is_exact(question) for segment in self.segments)

    def estimate(self, question: ScalarQuery, *, is_negated: bool = False) -> int | None:
        """Return about how many rows will be found, or None if the index cannot answer.

        Negated it is the rows for which the answer is no; the question must be one that the index
        answers exactly.
        """
        if is_negated:
            found = self._estimate(question)
            nulls = 0 if isinstance(question, IsNull) else self._estimate(IsNull())
            return None if nulls is None or found is None else max(0, self.num_rows - found - nulls)
        return self._estimate(question)

    def _estimate(self, question: ScalarQuery) -> int | None:
        total = 0
        for segment in self.segments:
            if not self._is_of_type(segment, question):
                return None
            own = segment.open().estimate(question)
            if own is None:
                return None
            total += own
        return total

    def _is_of_type(self, segment: TableSegment, question: ScalarQuery) -> bool:
        """Return whether values in documents are compared as what the segment has."""
        if WITHIN not in self.path:
            return True
        asked = query_type(question)
        return asked is None or asked == segment.value_type

    def estimate_reads(self, question: ScalarQuery, *, is_negated: bool = False) -> IoCounts:
        """Return about what finding the rows will read, after they were estimated."""
        found = IoCounts()
        for segment in self.segments:
            opened = segment.open()
            if isinstance(opened, SupportsReadEstimates):
                found += opened.estimate_reads(question)
                found += opened.estimate_reads(IsNull()) if is_negated else IoCounts()
        return found

    def search(self, question: ScalarQuery) -> tuple[RowSet, bool]:
        """Return the rows that answer a question, and whether no others are among them."""
        rows, is_exact = NO_ROWS, True
        for segment in self.segments:
            found = segment.open().search(question)
            rows |= segment.addresses(found.rows)
            is_exact &= found.is_exact
        return rows, is_exact

    def count(self, question: ScalarQuery) -> int | None:
        """Return how many rows answer, or None unless segments know without finding them."""
        total = 0
        for segment in self.segments:
            opened = segment.open()
            if not isinstance(opened, SupportsCount) or not segment.has_live_rows_only:
                return None
            own = opened.count(question)
            if own is None:
                return None
            total += own
        return total

    def nulls(self) -> RowSet | None:
        """Return the rows without a value, or None if a segment does not know."""
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
    """Return the indices that can be used, by the path of their column.

    With `of` they are from then on those of another snapshot of the same version, which are open.
    """
    if of is not None:
        return snapshot.version_cache.get_or_make("column indices", lambda: column_indices(of))
    return snapshot.version_cache.get_or_make(
        "column indices", lambda: _find(snapshot, lambda segment: not _is_of_vectors(segment))
    )


def vector_indices(
    snapshot: Snapshot, of: Snapshot | None = None
) -> Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]:
    """Return the vector indices that can be used, by the path of their column.

    With `of` they are from then on those of another snapshot, as with `column_indices`.
    """
    if of is not None:
        return snapshot.version_cache.get_or_make("vector indices", lambda: vector_indices(of))
    return snapshot.version_cache.get_or_make(
        "vector indices", lambda: _find(snapshot, _is_of_vectors)
    )


class _ByColumn(Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]):
    """The indices of each column, whose files are opened when the column is asked for."""

    def __init__(self, listed: Mapping[tuple[str, ...], Sequence[TableSegment]]) -> None:
        self._listed = listed
        self._opened: dict[tuple[str, ...], tuple[ColumnIndex, ...]] = {}

    def __getitem__(self, path: tuple[str, ...]) -> tuple[ColumnIndex, ...]:
        if path not in self._opened:
            by_name: dict[str, list[TableSegment]] = {}
            for segment in self._listed[path]:
                if segment.covered and _is_sound(segment):
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


def _find(snapshot: Snapshot, is_wanted: Callable[[TableSegment], bool]) -> _ByColumn:
    listed: dict[tuple[str, ...], list[TableSegment]] = {}
    for metadata in current_coverage(snapshot):
        if len(metadata.fields) != 1 or metadata.is_system:
            continue
        if metadata.fields[0] not in snapshot.schema.by_id:
            warn_once(snapshot, metadata, "the table does not have its column")
            continue
        segment = table_segment(snapshot, metadata)
        if segment is None:
            _warn_of_unknown(snapshot, metadata)
        elif is_wanted(segment):
            path = snapshot.schema.fields_on_path(snapshot.schema.path_of(metadata.fields[0]))
            place = _place_of(tuple(field.name for field in path), segment.kind.json_path)
            if place is not None:
                listed.setdefault(place, []).append(segment)
    return _ByColumn(listed)


def _place_of(path: tuple[str, ...], within: str | None) -> tuple[str, ...] | None:
    """Return where values are that an index has; None if no question can be about them."""
    if within is None:
        return path
    keys = keys_of_path(within)
    return None if keys is None else (*path, WITHIN, *keys)


def _is_sound(segment: TableSegment) -> bool:
    """Say whether the files of a segment can be opened."""
    try:
        segment.open()
    except UNREADABLE as error:
        warn_unusable(segment.snapshot, error.with_facts(index=segment.metadata.name))
        return False
    if segment.lacks_rows:
        warn_once(segment.snapshot, segment.metadata, "it lacks rows of fragments that it covers")
    return not segment.lacks_rows


def _warn_of_unknown(snapshot: Snapshot, metadata: IndexMetadata) -> None:
    details, kind = metadata.details, kind_of(metadata.details)
    if kind is not None and loses_rows(snapshot, kind, metadata.index_version or 0):
        warn_once(snapshot, metadata, "it may have rows where they were before they were moved")
    elif kind is not None:
        warn_once(snapshot, metadata, "its version is newer than this release knows")
    elif details is not None and kinds.registry.kind_by_details_type(details.type_url) is not None:
        warn_once(snapshot, metadata, "what it holds is unknown to this release")
    elif details is None or details.type_name not in TITLES:
        warn_once(snapshot, metadata, "its kind is unknown to this release")
