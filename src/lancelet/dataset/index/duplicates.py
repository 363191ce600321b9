"""Near-duplicate search, with the function names of pylance's vector module."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lancelet import surroundings, upkeep
from lancelet.errors import InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class SegmentSelectionError(InvalidInputError, TypeError):
    """The segment selection is not a list of ids."""


def find_duplicate_pairs(
    dataset: LanceDataset,
    column: str,
    distance_threshold: float,
    *,
    memory_limit: int | None = None,
    max_concurrency: int | None = None,
) -> pa.RecordBatchReader:
    """Stream pairs of rows within a distance, using the vector index of a column.

    Rows are compared within the partitions of each segment, with the vectors stored in the index;
    pairs across partitions are not found. Deleted rows are excluded.

    Args:
        dataset: The table; its index must cover all fragments.
        column: The vector column.
        distance_threshold: The maximum distance of a pair, in the metric of the index.
        memory_limit: Has no effect: partitions are compared in memory.
        max_concurrency: Has no effect.

    Returns:
        The columns `row_id_a`, `row_id_b` and `distance`; each pair occurs once, in a fixed order.
    """
    del memory_limit, max_concurrency
    _check_threshold(distance_threshold)
    segments = upkeep.duplicates.pairs.indexed_segments(dataset.snapshot, column, must_cover=True)
    batches = (
        batch
        for segment, opened in segments
        for partition in range(opened.model.partitions)
        for batch in upkeep.duplicates.pairs.pairs_of_partition(
            dataset.snapshot, segment, opened, partition, distance_threshold
        )
    )
    return pa.RecordBatchReader.from_batches(upkeep.duplicates.pairs.PAIR_SCHEMA, batches)


def find_duplicate_pairs_in_partition(
    dataset: LanceDataset,
    column: str,
    segment_id: str | uuid.UUID,
    partition_id: int,
    distance_threshold: float,
    *,
    memory_limit: int | None = None,
    max_concurrency: int | None = None,
) -> pa.RecordBatchReader:
    """Stream the pairs of one partition of one segment; see `find_duplicate_pairs`.

    Args:
        dataset: The table; fragments outside of the segment may be unindexed.
        column: The vector column.
        segment_id: The id of the segment.
        partition_id: The partition number.
        distance_threshold: The maximum distance of a pair.
        memory_limit: Has no effect.
        max_concurrency: Has no effect.
    """
    del memory_limit, max_concurrency
    _check_threshold(distance_threshold)
    selected = _segment_id(segment_id)
    for segment, opened in upkeep.duplicates.pairs.indexed_segments(
        dataset.snapshot, column, must_cover=False
    ):
        if str(segment.metadata.uuid) == selected:
            batches = upkeep.duplicates.pairs.pairs_of_partition(
                dataset.snapshot, segment, opened, partition_id, distance_threshold
            )
            return pa.RecordBatchReader.from_batches(upkeep.duplicates.pairs.PAIR_SCHEMA, batches)
    raise InvalidInputError(f"no segment of column '{column}' has the id {selected}", column=column)


def _check_threshold(distance: float) -> None:
    if math.isnan(distance):
        raise InvalidInputError("distance_threshold must be a number", found=distance)


def hamming_clustering_for_ivf_partition(
    dataset: LanceDataset,
    index_name: str,
    partition_id: int,
    hamming_threshold: int,
    *,
    index_segments: Iterable[str | uuid.UUID] | None = None,
) -> pa.RecordBatchReader:
    """Return clusters of hashes within a Hamming distance, in one partition.

    Args:
        dataset: The table.
        index_name: The name of an IVF_FLAT index on hashes.
        partition_id: The partition number; all selected segments must have the same centroids.
        hamming_threshold: The maximum number of different bits between two rows of a cluster.
        index_segments: The ids of the segments to read, by default all.

    Returns:
        The columns `representative`, the lowest row id, and `duplicates`, the other row ids.
    """
    chosen = segment_ids(index_segments)
    numbers, hashes = upkeep.duplicates.pairs.hashes_of_partition(
        dataset.snapshot, index_name, partition_id, chosen
    )
    return upkeep.duplicates.hashes.build_clusters(
        numbers, upkeep.duplicates.hashes.pairs_of_hashes(hashes, hamming_threshold)
    )


def hamming_clustering_for_sample(
    dataset: LanceDataset,
    column: str,
    sample_size: int | None = None,
    hamming_threshold: int = 10,
) -> pa.RecordBatchReader:
    """Return clusters of hashes in a random sample of rows, by default in all rows."""
    _check(dataset, column)
    total = dataset.count_rows()
    if sample_size is None or sample_size >= total:
        return _clusters(dataset.to_table(columns=[column], with_row_id=True), hamming_threshold)
    rows = sorted(surroundings.sample(range(total), sample_size))
    return _clusters(dataset.take(rows, columns=[column, "_rowid"]), hamming_threshold)


def hamming_clustering_for_range(
    dataset: LanceDataset,
    column: str,
    fragment_id: int,
    start_row: int,
    num_rows: int,
    hamming_threshold: int = 10,
) -> pa.RecordBatchReader:
    """Return clusters of hashes in a range of rows of a fragment."""
    _check(dataset, column)
    fragment = dataset.get_fragment(fragment_id)
    if fragment is None:
        raise InvalidInputError(f"Fragment with ID {fragment_id} not found")
    if start_row >= fragment.physical_rows:
        raise InvalidInputError(
            f"start_row {start_row} is out of range for fragment with {fragment.physical_rows} "
            "physical rows"
        )
    rows = fragment.to_table(columns=[column], with_row_id=True, limit=num_rows, offset=start_row)
    return _clusters(rows, hamming_threshold)


def get_ivf_partition_info(
    dataset: LanceDataset,
    index_name: str,
    *,
    index_segments: Iterable[str | uuid.UUID] | None = None,
) -> list[dict[str, int]]:
    """Return the number of rows per partition of an index, in all or selected segments."""
    sizes = upkeep.indexing.vector_models.partition_sizes(
        dataset.snapshot, index_name, segment_ids(index_segments)
    )
    return [{"partition_id": number, "size": size} for number, size in enumerate(sizes)]


def segment_ids(given: Iterable[str | uuid.UUID] | None) -> frozenset[str] | None:
    """Parse the ids of selected segments; None selects all."""
    if given is None:
        return None
    if isinstance(given, str | uuid.UUID):
        raise SegmentSelectionError(
            f"index_segments must be an iterable of str or uuid.UUID, not a single {type(given)}."
        )
    return frozenset(_segment_id(each) for each in given)


def _segment_id(given: object) -> str:
    if not isinstance(given, str | uuid.UUID):
        raise SegmentSelectionError(
            f"index_segments must be an iterable of str or uuid.UUID. Got {type(given)} instead."
        )
    try:
        return str(uuid.UUID(str(given)))
    except ValueError as error:
        raise InvalidInputError(f"invalid index segment uuid: {given}") from error


def _check(dataset: LanceDataset, column: str) -> None:
    if column not in dataset.schema.names:
        raise InvalidInputError(f"Column '{column}' not found in dataset schema")
    upkeep.duplicates.hashes.check_hashes(dataset.schema.field(column).type, column)


def _clusters(rows: pa.Table, bits_max: int) -> pa.RecordBatchReader:
    hashes, numbers = (rows.column(at).combine_chunks() for at in range(2))
    is_there = hashes.is_valid()
    machine_words = upkeep.duplicates.hashes.to_machine_words(hashes.filter(is_there))
    return upkeep.duplicates.hashes.build_clusters(
        numbers.filter(is_there).to_numpy().astype(np.uint64),
        upkeep.duplicates.hashes.pairs_of_hashes(machine_words, bits_max),
    )
