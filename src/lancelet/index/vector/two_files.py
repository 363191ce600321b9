"""The layout of two files: one with the model and the graphs, one with rows and their codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.vector import layout
from lancelet.index.vector.graph import StoredGraphs
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Quantizer, StorageNotes
from lancelet.index.vector.quantizers.registry import GRAPH, parse_quantizer
from lancelet.index.vector.vectors import values_of
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.values import cached_property


class TwoFiles:
    """Open files of this layout: models in memory, partitions read as they are asked for."""

    version_name = "V3"

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the model."""
        self._storage: StoredFile = folder.open(layout.STORAGE_FILE)
        self._index: StoredFile = folder.open(layout.INDEX_FILE)
        self.name, metric = layout.read_kind(self._index)
        own = layout.read_partitions(self._index)
        rows = layout.read_partitions(self._storage)
        if own.centroids is None or own.centroids.ndim != 2:
            raise CorruptDataError("a vector index has no centroids", path=folder.path)
        if len(own.centroids) != len(rows.lengths):
            raise CorruptDataError(
                "an index has not as many partitions as centroids",
                path=folder.path,
                partitions=len(rows.lengths),
                centroids=len(own.centroids),
            )
        self.model = IvfModel(metric, own.centroids, own.loss)
        self.starts, self.lengths = rows.starts, rows.lengths
        notes = StorageNotes(
            layout.read_notes(self._storage),
            lambda number: self._storage.global_buffer(str(number)),
        )
        self.notes: Mapping[str, Any] = notes.values
        columns = [field for field in self._storage.schema if field.name != "_rowid"]
        self.quantizer: Quantizer = parse_quantizer(self.name, notes, metric, columns)

    @cached_property
    def left_out(self) -> int | None:
        """How many rows had no vector that can be compared, None if nobody counted."""
        return layout.read_left_out(self._storage)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """The graphs of kinds that have them."""
        return StoredGraphs(self._index) if self.name.startswith(GRAPH) else None

    def read(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the numbers of the rows of a partition, and their codes row by row."""
        ids, *columns = self._storage.read(self._columns, self._rows(number))
        arrays = [_array_of(column) for column in columns]
        return ids.to_numpy(zero_copy_only=False).astype(np.uint64), self.quantizer.load(arrays)

    def expected_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Return about what reading partitions asks of storage."""
        return self._storage.expected_reads(self._columns, *map(self._rows, numbers))

    @property
    def _columns(self) -> list[str]:
        return ["_rowid", *(field.name for field in self.quantizer.fields)]

    def _rows(self, number: int) -> RowRange:
        start, count = int(self.starts[number]), int(self.lengths[number])
        return RowRange(start, start + count)


def _array_of(column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type):
        return values_of(column).reshape(len(column), column.type.list_size)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(len(column), 1)
