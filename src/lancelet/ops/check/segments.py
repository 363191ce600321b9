"""What checks of index segments have in common, whatever kind the index is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.base import IndexedRows
from lancelet.ops.check.finding import Finding, Severity
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.query.indexing.segments import TableSegment, kind_of, table_segment
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Differences: TypeAlias = Callable[[Snapshot, TableSegment], Iterator[str]]
"""Yields where a segment and the rows that it covers disagree."""


@dataclass(frozen=True, slots=True)
class SegmentChecker:
    """Checks segments of some kinds against the rows that they cover."""

    kinds: frozenset[str]
    differences: Differences

    def knows(self, index: IndexMetadata) -> bool:
        """Say whether a segment is of one of the kinds, in a version that is understood."""
        kind = kind_of(index.details)
        if kind is None or kind.name not in self.kinds:
            return False
        return (index.index_version or 0) <= kind.newest_version

    def findings(self, snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
        """Yield what differs in a segment that covers rows; what cannot be read is raised."""
        segment = table_segment(snapshot, index)
        if segment is None or not segment.covered:
            return
        for what in self.differences(snapshot, segment):
            yield Finding(
                Severity.ERROR,
                index.directory,
                f"{index.name}: {what}",
                "optimize the indices with retrain=True",
                index=index.name,
            )


def covered_rows(snapshot: Snapshot, segment: TableSegment, *, by_address: bool) -> IndexedRows:
    """Return what the segment should be about: the column in the fragments that it covers."""
    path = snapshot.schema.path_of(segment.metadata.fields[0])
    return rows_to_index(
        snapshot,
        tuple(field.name for field in snapshot.schema.fields_on_path(path)),
        sorted(segment.covered),
        by_address=by_address,
        as_text=segment.kind.reads_documents,
        within=segment.kind.path_within,
        value_type=segment.value_type,
    )
