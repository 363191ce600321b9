"""Statistics of a dataset: data sizes, fragments and indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from lancelet import upkeep
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import Facts
from lancelet.file.v2.reader import FileReader
from lancelet.format.field import FieldId
from lancelet.io.metered import PROCESS_METER

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.upkeep.column_statistics import ColumnStatistics


def iops_counter() -> int:
    """Return the number of reads."""
    return PROCESS_METER.counts.read_iops


def bytes_read_counter() -> int:
    """Return the number of bytes read."""
    return PROCESS_METER.counts.read_bytes


@dataclass
class FieldStatistics:
    """The size of a field on disk."""

    id: int
    bytes_on_disk: int


@dataclass
class DataStatistics:
    """The size of each field on disk, including parent fields."""

    fields: list[FieldStatistics]


class DatasetStats(TypedDict):
    """The fragment counts of a dataset."""

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


class LanceStats:
    """Statistics of a dataset."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Represent the statistics of a dataset."""
        self._snapshot = dataset.snapshot

    def __repr__(self) -> str:
        """Show the counts."""
        return display.line("LanceStats", self._snapshot.location.uri, **self.dataset_stats())

    def _repr_html_(self) -> str:
        """Render the counts and column sizes for notebooks."""
        schema = self._snapshot.schema
        sizes = [
            (schema.path_of(FieldId(each.id)), display.size_text(each.bytes_on_disk))
            for each in self.data_stats().fields
        ]
        return display.card(
            "Statistics", self.dataset_stats(), display.grid(("field", "size"), sizes)
        )

    def dataset_stats(self, max_rows_per_group: int = 1024) -> DatasetStats:
        """Count fragments, small fragments and deleted rows.

        Args:
            max_rows_per_group: Fragments with fewer rows count as small.

        Returns:
            The counts.

        Example:
            ```python
            dataset.stats.dataset_stats()
            ```
        """
        fragments = self._snapshot.fragments
        return DatasetStats(
            num_deleted_rows=int(self._snapshot.deleted_by_fragment.sum()),
            num_fragments=len(fragments),
            num_small_files=int(np.count_nonzero(fragments.physical_rows < max_rows_per_group)),
        )

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Return the statistics of an index; see `LanceDataset.index_statistics`.

        Args:
            index_name: The name of the index.

        Returns:
            A dict; its keys depend on the index kind.

        Raises:
            IndexNotFoundError: If the index does not exist.

        Example:
            ```python
            dataset.create_scalar_index("id", "BTREE")
            dataset.stats.index_stats("id_idx")
            ```
        """
        return Facts(upkeep.indexing.describe.index_statistics(self._snapshot, index_name))

    def column_stats(
        self, columns: Sequence[str] | None = None, *, distinct: bool = False
    ) -> list[ColumnStatistics]:
        """Return null counts and bounds of columns.

        Data is read only if files have no statistics.

        Args:
            columns: Columns or paths of fields; by default all columns.
            distinct: Whether to estimate the number of distinct values, which reads the columns.

        Returns:
            The statistics of each column.

        Raises:
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            dataset.stats.column_stats(["price"], distinct=True)
            ```
        """
        return upkeep.column_statistics.column_statistics(
            self._snapshot, columns, distinct=distinct
        )

    def data_stats(self) -> DataStatistics:
        """Return the size of each field on disk. Files of version 0.1 do not record sizes.

        Returns:
            The number of bytes per field.

        Example:
            ```python
            for field in dataset.stats.data_stats().fields:
                print(field.id, field.bytes_on_disk)
            ```
        """
        sizes = {int(field.id): 0 for field in self._snapshot.schema.walk()}
        for fragment in self._snapshot.fragments:
            for file in fragment.files:
                reader = self._snapshot.open_file(file)
                if not isinstance(reader, FileReader):
                    continue
                for field_id, column in zip(file.fields, file.column_indices, strict=True):
                    if field_id in sizes and column >= 0:
                        pages = reader.column(column).pages
                        sizes[field_id] += sum(int(page.size.sum()) for page in pages)
        return DataStatistics([FieldStatistics(*each) for each in sizes.items()])
