"""The hashes of one partition of an index, in all its segments, of rows that were not deleted."""

from __future__ import annotations

from collections.abc import Container

import numpy as np
import numpy.typing as npt

from lancelet.errors import InvalidInputError
from lancelet.index.vector.quantizers.base import Codes
from lancelet.index.vector.segment import IvfSegment
from lancelet.ops.duplicates.hashes import check_hashes
from lancelet.ops.indexing.vector_models import opened_segments
from lancelet.query.indexing.segments import TableSegment
from lancelet.query.search.admitted import admits, live_masks
from lancelet.query.search.indexed import live_rows_of
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot


def hashes_of_partition(
    snapshot: Snapshot, index_name: str, partition: int, chosen: Container[str] | None
) -> tuple[UInt64s, npt.NDArray[np.uint64]]:
    """Return the numbers of rows and their hashes, as words."""
    segments = opened_segments(snapshot, index_name, chosen)
    _check(snapshot, index_name, segments)
    partitions = segments[0][1].model.partitions
    if not 0 <= partition < partitions:
        raise InvalidInputError(f"Partition ID {partition} is out of range (0..{partitions})")
    parts = [_live_hashes(snapshot, *each, partition) for each in segments]
    numbers, words = zip(*parts, strict=True)
    return np.concatenate(numbers), np.concatenate(words)


def _check(snapshot: Snapshot, name: str, segments: list[tuple[TableSegment, IvfSegment]]) -> None:
    first, opened = segments[0]
    (field_id,) = first.metadata.fields[:1]
    field = snapshot.schema.field_by_id(field_id)
    check_hashes(field.arrow_type, field.name)
    for segment, other in segments:
        if other.name != "IVF_FLAT":
            raise InvalidInputError(
                f"Index '{name}' segment {segment.metadata.uuid} is not an IVF_FLAT index for "
                "binary data"
            )
        if not np.array_equal(opened.model.centroids, other.model.centroids):
            raise InvalidInputError(
                f"Index '{name}' segments do not share the same global IVF centroids: segment "
                f"{segment.metadata.uuid} differs from segment {first.metadata.uuid}; retrain the "
                "index to merge segments before hamming clustering"
            )


def _live_hashes(
    snapshot: Snapshot, segment: TableSegment, opened: IvfSegment, partition: int
) -> tuple[UInt64s, npt.NDArray[np.uint64]]:
    numbers, codes = live_rows_of_partition(snapshot, segment, opened, partition)
    (hashes,) = opened.quantizer.store(codes)
    return numbers, np.ascontiguousarray(hashes).view(np.uint64)


def live_rows_of_partition(
    snapshot: Snapshot, segment: TableSegment, opened: IvfSegment, partition: int
) -> tuple[UInt64s, Codes]:
    """Return the numbers and the codes of rows of a partition that were not deleted."""
    wanted = np.array([partition], np.int64)
    loaded, rows = opened.load(wanted), opened.rows_of(partition)
    addresses = live_rows_of(snapshot, segment).addresses(opened, loaded, wanted)[rows]
    live = admits(live_masks(snapshot, segment.covered), addresses)
    numbers, codes = opened.codes(partition)
    return numbers[live], {name: np.ascontiguousarray(own[live]) for name, own in codes.items()}
