"""Describe indices: segments, coverage and statistics.

For example:

    by_id    2 segments    3 of 4 fragments, 900 of 1000 rows indexed
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from lancelet.errors import UnsupportedError, similar_names
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.paths import index_directory
from lancelet.index.base import SupportsPrewarm
from lancelet.index.scalar.btree.kind import BTree
from lancelet.index.scalar.json_path.kind import JsonPath
from lancelet.index.titles import TITLES
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.layout import INDEX_FILE
from lancelet.io.uri import join
from lancelet.scan.indexing.segments import table_segment
from lancelet.table.fragment_reuse import remapped_indices
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.drop import UnknownIndexError, find_segments
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Coverage:
    """The number of indexed and unindexed fragments and rows."""

    indexed_fragments: int
    indexed_rows: int
    unindexed_fragments: int
    unindexed_rows: int
    rows_by_segment: tuple[int, ...]


def index_title(metadata: IndexMetadata) -> str:
    """Return the index type that listings show for a segment."""
    if metadata.details is None:
        has_vectors = any(file.path == INDEX_FILE for file in metadata.files)
        return "Vector" if has_vectors else "Unknown"
    name = metadata.details.type_name
    if metadata.details.type_url == IVF.type_url:
        return IvfDetails.parse(metadata.details.value).name or "IVF"
    return TITLES.get(name, name.removesuffix("IndexDetails"))


def compute_coverage(snapshot: Snapshot, segments: Sequence[IndexMetadata]) -> Coverage:
    """Return the coverage of a version by the segments of one index."""
    live = {int(fragment.id): snapshot.live_rows(fragment) for fragment in snapshot.fragments}
    covers = [live.keys() & set(segment.fragment_bitmap or ()) for segment in segments]
    covered = set().union(*covers)
    indexed = sum(live[fragment_id] for fragment_id in covered)
    return Coverage(
        len(covered),
        indexed,
        len(live) - len(covered),
        sum(live.values()) - indexed,
        tuple(sum(live[fragment_id] for fragment_id in cover) for cover in covers),
    )


def index_statistics(snapshot: Snapshot, name: str) -> dict[str, Any]:
    """Return the statistics of an index, with the keys of pylance."""
    segments = tuple(index for index in remapped_indices(snapshot) if index.name == name)
    if not segments:
        names = sorted({index.name for index in snapshot.indices.indices})
        raise UnknownIndexError(f'Index "{name}" not found{similar_names(name, names)}')
    coverage = compute_coverage(snapshot, segments)
    segment_statistics = [_segment_statistics(snapshot, segment) for segment in segments]
    return {
        "index_type": segment_statistics[0].get(
            "index_type", _statistics_title(snapshot, segments[0])
        ),
        "name": name,
        "num_indices": len(segments),
        "num_segments": len(segments),
        "indices": segment_statistics,
        "segments": segment_statistics,
        "num_indexed_fragments": coverage.indexed_fragments,
        "num_indexed_rows": coverage.indexed_rows,
        "num_unindexed_fragments": coverage.unindexed_fragments,
        "num_unindexed_rows": coverage.unindexed_rows,
        "num_indexed_rows_per_delta": list(coverage.rows_by_segment),
        "updated_at_timestamp_ms": max(segment.created_at or 0 for segment in segments),
    }


def open_segments(
    snapshot: Snapshot, name: str, segment_ids: Collection[UUID] | None = None
) -> None:
    """Open and cache the segments of an index, by default all of them."""
    for metadata in find_segments(snapshot, name):
        segment = table_segment(snapshot, metadata)
        if segment is not None and (segment_ids is None or metadata.uuid in segment_ids):
            opened = segment.open()
            if isinstance(opened, SupportsPrewarm):
                opened.prewarm()


def created_at(metadata: IndexMetadata) -> datetime | None:
    """Return the creation time of a segment."""
    if metadata.created_at is None:
        return None
    return datetime.fromtimestamp(metadata.created_at / 1000, UTC)


def _statistics_title(snapshot: Snapshot, metadata: IndexMetadata) -> str:
    """Return the index type for statistics, derived from the files if there are no details.

    Like the reference, returns `BTree` for every JSON index.
    """
    if index_title(metadata) == JsonPath.title:
        return BTree.title
    segment = table_segment(snapshot, metadata) if metadata.details is None else None
    return index_title(metadata) if segment is None else segment.kind.title


def _segment_statistics(snapshot: Snapshot, metadata: IndexMetadata) -> dict[str, Any]:
    segment = table_segment(snapshot, metadata)
    if segment is None or (segment.kind is IVF and not metadata.fragment_bitmap):
        return {}  # The index type is unknown, or the vector index has no rows yet.
    try:
        statistics = segment.open().statistics()
    except UnsupportedError:
        return {}  # The layout is not supported by this release.
    if segment.kind is IVF:
        uri = join(snapshot.location.uri, index_directory(metadata.uuid), INDEX_FILE)
        statistics |= {"uuid": str(metadata.uuid), "uri": uri}
    return statistics
