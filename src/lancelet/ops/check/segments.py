"""What checks of index segments have in common, whatever kind the index is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from lancelet.format.index_metadata import IndexMetadata
from lancelet.index.base import IndexedRows
from lancelet.ops.check.finding import Finding, Severity
from lancelet.ops.indexing.rows import rows_to_index
from lancelet.query.indexing.segments import TableSegment, table_segment
from lancelet.table.snapshot import Snapshot

Differences: TypeAlias = Callable[[Snapshot, TableSegment], Iterator[str]]
"""Yields where a segment and the rows that it covers disagree."""


def segment_findings(
    snapshot: Snapshot, index: IndexMetadata, differences: Differences
) -> Iterator[Finding]:
    """Yield what differs in a segment that covers rows; what cannot be read is raised."""
    segment = table_segment(snapshot, index)
    if segment is None or not segment.covered:
        return
    for what in differences(snapshot, segment):
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
