"""A reader of the partitions of a vector index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet import upkeep
from lancelet.errors import InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class NoSuchPartitionError(InvalidInputError, IndexError):
    """The partition number is out of range."""


class VectorIndexReader:
    """Reads the partitions of a vector index as tables.

    Attributes:
        dataset: The table with the index.
        index_name: The name of the index.
        stats: The result of `dataset.stats.index_stats`.
    """

    def __init__(self, dataset: LanceDataset, index_name: str) -> None:
        """Open a vector index; raise if the index has another kind."""
        self.dataset = dataset
        self.index_name = index_name
        self.stats: dict[str, Any] = dataset.stats.index_stats(index_name)
        if "num_partitions" not in self.stats["indices"][0]:
            raise InvalidInputError(f"Index {index_name} is not vector index")

    def num_partitions(self) -> int:
        """Return the number of IVF partitions.

        Returns:
            The number.

        Example:
            ```python
            from lancelet.dataset import VectorIndexReader

            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            VectorIndexReader(dataset, "vector_idx").num_partitions()  # 2
            ```
        """
        return int(self.stats["indices"][0]["num_partitions"])

    def read_partition(self, partition_id: int, *, with_vector: bool = False) -> pa.Table:
        """Return the rows of a partition.

        Args:
            partition_id: The partition, from 0.
            with_vector: Whether to return the vectors as the index stores them.

        Returns:
            The row ids, and with `with_vector` the vectors.

        Raises:
            IndexError: If a row index is out of range.

        Example:
            ```python
            from lancelet.dataset import VectorIndexReader

            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            reader = VectorIndexReader(dataset, "vector_idx")
            [reader.read_partition(number).num_rows for number in range(reader.num_partitions())]
            ```
        """
        if not 0 <= partition_id < self.num_partitions():
            raise NoSuchPartitionError(
                f"Partition id {partition_id} is out of range, "
                f"expected 0 <= partition_id < {self.num_partitions()}"
            )
        snapshot = self.dataset._handle.snapshot  # noqa: SLF001 - same package
        opened = upkeep.indexing.vector_models.open_ivf_segments(snapshot, self.index_name)
        return upkeep.indexing.vector_models.partition_table(
            opened, partition_id, with_vector=with_vector
        )
