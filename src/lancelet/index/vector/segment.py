"""An open segment of an index of vectors: its model in memory, its partitions read as needed.

model       centroids of 3 partitions       rows 0:328 | 328:667 | 667:1000
partition   numbers of rows, their codes    kept in an arena
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError, InternalError, ObjectNotFoundError, UnsupportedError
from lancelet.index.base import Found
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.question import Question
from lancelet.index.vector import layout
from lancelet.index.vector.arena import Arena, Loaded
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.graph import StoredGraphs
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Quantizer, StorageNotes
from lancelet.index.vector.quantizers.registry import GRAPH, parse_quantizer, quantizer_name
from lancelet.index.vector.vectors import values_of
from lancelet.io.metered import IoCounts
from lancelet.kernels import Graph, Metric, PackedCodes
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet

_INNER_NOTES: Final = frozenset({"codebook_position", "codebook_tensor"})
"""What a file notes for readers alone."""


class IvfSegment:
    """A segment that was opened, for any number of threads."""

    def __init__(self, folder: SegmentFolder, details: bytes) -> None:
        """Read the model."""
        self.details = IvfDetails.parse(details)
        try:
            self._storage: StoredFile = folder.open(layout.STORAGE_FILE)
        except ObjectNotFoundError as error:
            if not _is_of_older_layout(folder):
                raise
            raise UnsupportedError(
                "an index of vectors in one file, of an older layout, cannot be read",
                path=folder.path,
            ) from error
        self._index: StoredFile = folder.open(layout.INDEX_FILE)
        self.name, metric = layout.read_kind(self._index)
        own = layout.read_partitions(self._index)
        rows = layout.read_partitions(self._storage)
        if own.centroids is None or own.centroids.ndim != 2:
            raise CorruptDataError("an index of vectors has no centroids", path=folder.path)
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
        self.notes = notes.values
        columns = [field for field in self._storage.schema if field.name != "_rowid"]
        self.quantizer: Quantizer = parse_quantizer(self.name, notes, metric, columns)
        self._arena = Arena(self.starts, self.lengths, self._read, folder.loads)
        self._kept_graphs: dict[int, tuple[Graph, npt.NDArray[Any]]] = {}

    def estimate(self, question: Question) -> None:
        """Return None: an index of vectors answers no filter."""

    def search(self, question: Question) -> Found:
        """Refuse: no filter asks this."""
        raise InternalError("an index of vectors answers no filter", question=str(question))

    def nulls(self) -> RowSet | None:
        """Return None: rows without a vector are not in the index."""
        return None

    def statistics(self) -> dict[str, Any]:
        """Return what there is to say of the segment, by pylance's names."""
        found = {
            "index_type": self.name,
            "metric_type": layout.METRIC_NAMES[self.model.metric],
            "num_partitions": self.model.partitions,
            "sub_index": self._inner_statistics(),
            "partitions": [{"size": size} for size in self.lengths.tolist()],
            "centroids": self.model.centroids.tolist(),
            "loss": self.model.loss,
            "index_file_version": "V3",
        }
        # Said only where there are some: programs compare these with what pylance returns.
        return {**found, "num_rows_left_out": self.left_out} if self.left_out else found

    def _inner_statistics(self) -> dict[str, Any]:
        found = {key: own for key, own in self.notes.items() if key not in _INNER_NOTES}
        found["metric_type"] = layout.METRIC_NAMES[self.model.metric]
        if self.name.endswith("PQ") and self.model.metric is Metric.COSINE:
            found["metric_type"] = layout.METRIC_NAMES[Metric.L2]  # of vectors of length one
        if self.graphs is None:
            return {**found, "index_type": quantizer_name(self.name)}
        return {**self.graphs.statistics(), **found, "index_type": "HNSW"}

    @cached_property
    def num_rows(self) -> int:
        """How many vectors there are."""
        return int(self.lengths.sum())

    @cached_property
    def num_places(self) -> int:
        """How many places there are for rows, which partitions lie among."""
        return int((self.starts + self.lengths).max(initial=0))

    @cached_property
    def left_out(self) -> int | None:
        """How many rows had no vector that can be compared, None if nobody counted."""
        return layout.read_left_out(self._storage)

    def load(self, partitions: Int64s) -> Loaded:
        """Return the rows of partitions that have any, among others; they are kept."""
        return self._arena.load(partitions)

    def rows_of(self, number: int) -> slice:
        """Return the places of a partition among what was loaded."""
        return slice(int(self.starts[number]), int(self.starts[number] + self.lengths[number]))

    @cached_property
    def centers(self) -> npt.NDArray[np.float32]:
        """The centroids in single precision."""
        return self.model.centroids.astype(np.float32)

    def _read(self, number: int) -> tuple[UInt64s, PackedCodes]:
        numbers, codes = self.codes(number)
        return numbers, self.quantizer.searchable(codes, self.centers[number])

    def expected_reads(self, partitions: Int64s, *, by_graph: Int64s) -> IoCounts:
        """Return about what loading partitions will read, and the graphs of some of them."""
        loaded = self._arena.missing(partitions).tolist()
        found = IoCounts()
        if self.graphs is not None:
            walked = [each for each in by_graph.tolist() if each not in self._kept_graphs]
            found += self.graphs.expected_reads(walked)
            loaded += walked
        rows = [self._stored_rows(number) for number in loaded]
        return found + self._storage.expected_reads(self._columns, *rows) if rows else found

    @property
    def _columns(self) -> list[str]:
        return ["_rowid", *(field.name for field in self.quantizer.fields)]

    def _stored_rows(self, number: int) -> RowRange:
        start, count = int(self.starts[number]), int(self.lengths[number])
        return RowRange(start, start + count)

    def codes(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the numbers of the rows of a partition, and their codes row by row."""
        ids, *columns = self._storage.read(self._columns, self._stored_rows(number))
        arrays = [_array_of(column) for column in columns]
        return ids.to_numpy(zero_copy_only=False).astype(np.uint64), self.quantizer.load(arrays)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """The graphs of kinds that have them."""
        return StoredGraphs(self._index) if self.name.startswith(GRAPH) else None

    def graph(self, number: int) -> tuple[Graph, npt.NDArray[Any]] | None:
        """Return the graph of a partition and its rows, or None if there is none; it is kept."""
        if self.graphs is None:
            return None
        found = self._kept_graphs.get(number)
        if found is None:
            graph = self.graphs.read(number, int(self.lengths[number]))
            if graph is None:
                return None
            found = graph, self.quantizer.graph_codes(self.codes(number)[1])
            self._kept_graphs[number] = found
        return found


def _array_of(column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type):
        return values_of(column).reshape(len(column), column.type.list_size)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(len(column), 1)


def _is_of_older_layout(folder: SegmentFolder) -> bool:
    """Return whether the file of an index does not say of what kind it is, as others do."""
    try:
        layout.read_kind(folder.open(layout.INDEX_FILE))
    except (CorruptDataError, UnsupportedError):
        return True
    return False
