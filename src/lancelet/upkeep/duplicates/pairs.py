"""Find pairs of close vectors within one partition of an index.

    partition    rows 7 9 4    a distance of at most 0.1
    pairs        7 4 0.05      in the order of the index

Vectors are reconstructed from the index; the column is not read. A partition is split into blocks,
and each block is compared with itself and later blocks, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.index.kernels import Metric, vector_distances
from lancelet.index.vector.quantizers.base import Codes
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.quantizers.pq import ProductCodes
from lancelet.index.vector.quantizers.sq import ScalarCodes
from lancelet.index.vector.segment import IvfSegment
from lancelet.rowids.address import UInt64s
from lancelet.scan.indexing.segments import TableSegment
from lancelet.search.admitted import admits, live_masks
from lancelet.search.indexed import live_rows_of
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.duplicates.hashes import check_hashes
from lancelet.upkeep.indexing.vector_models import find_index_name, open_segments

PAIR_SCHEMA: Final = pa.schema(
    [
        pa.field("row_id_a", pa.uint64(), nullable=False),
        pa.field("row_id_b", pa.uint64(), nullable=False),
        pa.field("distance", pa.float32(), nullable=False),
    ]
)
"""The schema of pairs of rows with their distance."""

_BLOCK_ROWS: Final = 8192
_ANCHORS: Final = 32


def indexed_segments(
    snapshot: Snapshot, column: str, *, must_cover: bool
) -> list[tuple[TableSegment, IvfSegment]]:
    """Return the segments of the vector index on a column.

    Args:
        snapshot: The version of the table.
        column: The column.
        must_cover: Whether the index must cover all fragments.
    """
    name = find_index_name(snapshot, column)
    if name is None:
        raise InvalidInputError(f"column '{column}' has no vector index", column=column)
    segments = open_segments(snapshot, name)
    covered = frozenset().union(*(segment.covered for segment, _ in segments))
    missing = sorted(set(snapshot.fragments.ids.tolist()) - covered)
    if must_cover and missing:
        raise InvalidInputError(
            f"the index of column '{column}' does not cover all fragments; optimize it first",
            index=name,
            missing_fragments=missing,
        )
    return segments


def pairs_of_partition(
    snapshot: Snapshot,
    segment: TableSegment,
    opened: IvfSegment,
    partition: int,
    distance_max: float,
) -> Iterator[pa.RecordBatch]:
    """Yield the pairs of live rows of a partition within a distance."""
    if not 0 <= partition < opened.model.partitions:
        raise InvalidInputError(
            f"partition {partition} is out of range (0..{opened.model.partitions})"
        )
    numbers, codes = live_rows_of_partition(snapshot, segment, opened, partition)
    vectors = _reconstruct(opened, codes, partition)
    starts = range(0, len(numbers), _BLOCK_ROWS)
    for first in starts:
        for second in (start for start in starts if start >= first):
            for anchor in range(first, min(first + _BLOCK_ROWS, len(numbers)), _ANCHORS):
                anchors = range(anchor, min(anchor + _ANCHORS, first + _BLOCK_ROWS, len(numbers)))
                near = _find_near(vectors, anchors, second, opened.model.metric, distance_max)
                if near.num_rows:
                    yield _to_row_numbers(near, numbers)


def _find_near(
    vectors: npt.NDArray[Any],
    anchors: range,
    start: int,
    metric: Metric,
    distance_max: float,
) -> pa.Table:
    """Return the pairs of each anchor row with later rows of a block within a distance."""
    left: list[npt.NDArray[np.int64]] = []
    right: list[npt.NDArray[np.int64]] = []
    distances: list[npt.NDArray[np.float32]] = []
    for anchor in anchors:
        begin = max(start, anchor + 1)
        block = vectors[begin : start + _BLOCK_ROWS]
        if not len(block):
            continue
        scores = vector_distances(block.reshape(-1), vectors.shape[1], vectors[anchor], metric)
        near = np.flatnonzero(np.isfinite(scores) & (scores <= np.float32(distance_max)))
        left.append(np.full(len(near), anchor, np.int64))
        right.append(near + begin)
        distances.append(scores[near])
    if not left:
        return pa.table({"left": [], "right": [], "distance": []})
    columns = [np.concatenate(left), np.concatenate(right), np.concatenate(distances)]
    return pa.table(columns, names=["left", "right", "distance"])


def _to_row_numbers(pairs: pa.Table, numbers: UInt64s) -> pa.RecordBatch:
    columns = [
        pa.array(numbers[pairs["left"].to_numpy()]),
        pa.array(numbers[pairs["right"].to_numpy()]),
        pairs["distance"].combine_chunks(),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PAIR_SCHEMA)


def _reconstruct(opened: IvfSegment, codes: dict[str, Any], partition: int) -> npt.NDArray[Any]:
    """Reconstruct the vectors of codes."""
    quantizer, metric = opened.quantizer, opened.model.metric
    vectors: npt.NDArray[Any]
    match quantizer:
        case Flat():
            (stored,) = quantizer.store(codes)
            vectors = np.ascontiguousarray(stored)
        case ProductCodes():
            vectors = quantizer.graph_view(codes).vectors
            if metric is not Metric.DOT:
                vectors = vectors + opened.model.centroids[partition].astype(vectors.dtype)
        case ScalarCodes():
            scale = np.float32((quantizer.end - quantizer.start) / 255)
            vectors = codes["code"].astype(np.float32) * scale + np.float32(quantizer.start)
        case _:
            raise UnsupportedError(
                "this index type does not support pairs of rows", index_type=opened.name
            )
    return vectors


def hashes_of_partition(
    snapshot: Snapshot, index_name: str, partition: int, segment_ids: Container[str] | None
) -> tuple[UInt64s, npt.NDArray[np.uint64]]:
    """Return the row numbers and hashes of a partition, as 64-bit words."""
    segments = open_segments(snapshot, index_name, segment_ids)
    _check(snapshot, index_name, segments)
    partitions = segments[0][1].model.partitions
    if not 0 <= partition < partitions:
        raise InvalidInputError(f"Partition ID {partition} is out of range (0..{partitions})")
    parts = [_live_hashes(snapshot, *segment, partition) for segment in segments]
    numbers, machine_words = zip(*parts, strict=True)
    return np.concatenate(numbers), np.concatenate(machine_words)


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
    """Return the row numbers and codes of the live rows of a partition."""
    partitions = np.array([partition], np.int64)
    loaded, rows = opened.load(partitions), opened.rows_of(partition)
    addresses = live_rows_of(snapshot, segment).addresses(opened, loaded, partitions)[rows]
    live = admits(live_masks(snapshot, segment.covered), addresses)
    numbers, codes = opened.codes(partition)
    return numbers[live], {
        name: np.ascontiguousarray(column[live]) for name, column in codes.items()
    }
