"""An open segment of a vector index: its model in memory, its partitions read as needed.

model       centroids of 3 partitions       rows 0:328 | 328:667 | 667:1000
partition   numbers of rows, their codes    kept in an arena
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InternalError, ObjectNotFoundError
from lancelet.index.base import Found
from lancelet.index.folder import SegmentFolder
from lancelet.index.question import Question
from lancelet.index.vector import layout
from lancelet.index.vector.arena import Arena, Loaded
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.graph import StoredGraphs
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.one_file import OneFile, Origin, is_one_file
from lancelet.index.vector.quantizers.base import Codes, Quantizer
from lancelet.index.vector.quantizers.registry import quantizer_name
from lancelet.index.vector.two_files import TwoFiles
from lancelet.io.cache import weight_of
from lancelet.io.metered import IoCounts
from lancelet.kernels import Graph, Metric, PackedCodes
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import cached_property, dataclass

_INNER_NOTES: Final = frozenset({"codebook_position", "codebook_tensor"})
"""What a file notes for readers alone."""


_ARENA: Final = "partitions"


@dataclass(frozen=True, slots=True, eq=False)
class _Models:
    """The models of a segment, which handles of one table share."""

    model: IvfModel
    quantizer: Quantizer

    @property
    def memory_bytes(self) -> int:
        """How much memory they take, with the centroids in single precision."""
        return 2 * self.model.centroids.nbytes + weight_of(self.quantizer)


@dataclass(frozen=True, slots=True, eq=False)
class _KeptGraph:
    """The graph of a partition in memory, with its rows."""

    graph: Graph
    codes: npt.NDArray[Any]

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""
        own = self.graph
        return sum(
            each.nbytes
            for each in (own.nodes, own.offsets, own.neighbors, own.level_offsets, self.codes)
        )


class IvfSegment:
    """A segment that was opened, for any number of threads."""

    def __init__(self, folder: SegmentFolder, details: bytes) -> None:
        """Read the model."""
        self.details = IvfDetails.parse(details)
        self._stored = _open(folder)
        self._loads, self._kept = folder.loads, folder.kept
        own = _Models(self._stored.model, self._stored.quantizer)
        models = self._kept.get_or_make("models", lambda: own)
        self.name, self.model, self.quantizer = self._stored.name, models.model, models.quantizer
        self._stored.quantizer = models.quantizer
        self.starts, self.lengths = self._stored.starts, self._stored.lengths

    @property
    def notes(self) -> Mapping[str, Any]:
        """What the files say of the codes."""
        return self._stored.notes

    @property
    def origin(self) -> Origin | None:
        """What index the segment says it is of, if it is one file; others do not say."""
        return self._stored.origin if isinstance(self._stored, OneFile) else None

    def estimate(self, question: Question) -> None:
        """Return None: a vector index answers no filter."""

    def search(self, question: Question) -> Found:
        """Refuse: no filter asks this."""
        raise InternalError("a vector index answers no filter", question=str(question))

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
            "index_file_version": self._stored.version_name,
        }
        # Said only where there are some: programs compare these with what pylance returns.
        return {**found, "num_rows_left_out": self.left_out} if self.left_out else found

    def _inner_statistics(self) -> dict[str, Any]:
        found = {key: own for key, own in self.notes.items() if key not in _INNER_NOTES}
        found["metric_type"] = layout.METRIC_NAMES[self.model.metric]
        is_prepared = self.name.endswith("PQ") and self.origin is None
        if is_prepared and self.model.metric is Metric.COSINE:
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
        return self._stored.left_out

    def load(self, partitions: Int64s) -> Loaded:
        """Return the rows of partitions that have any, among others; they are kept."""
        read = self._loads.parts
        loaded = self._arena.load(partitions, self._read, self._loads)
        if self._loads.parts != read:
            self._kept.weigh(_ARENA)
        return loaded

    @property
    def _arena(self) -> Arena:
        return self._kept.get_or_make(_ARENA, lambda: Arena(self.starts, self.lengths))

    def rows_of(self, number: int) -> slice:
        """Return the places of a partition among what was loaded."""
        return slice(int(self.starts[number]), int(self.starts[number] + self.lengths[number]))

    @cached_property
    def centers(self) -> npt.NDArray[np.float32]:
        """The centroids in single precision."""
        return self.model.centroids.astype(np.float32, copy=False)

    def _read(self, number: int) -> tuple[UInt64s, PackedCodes]:
        numbers, codes = self.codes(number)
        return numbers, self.quantizer.searchable(codes, self.centers[number])

    def expected_reads(self, partitions: Int64s, *, by_graph: Int64s) -> IoCounts:
        """Return about what loading partitions will read, and the graphs of some of them."""
        loaded = self._arena.missing(partitions).tolist()
        found = IoCounts()
        if self.graphs is not None:
            walked = [each for each in by_graph.tolist() if each not in self._kept]
            found += self.graphs.expected_reads(walked)
            loaded += walked
        return found + self._stored.expected_reads(loaded) if loaded else found

    def codes(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the numbers of the rows of a partition, and their codes row by row."""
        return self._stored.read(number)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """The graphs of kinds that have them."""
        return self._stored.graphs

    def graph(self, number: int) -> tuple[Graph, npt.NDArray[Any]] | None:
        """Return the graph of a partition and its rows, or None if there is none; it is kept."""
        if self.graphs is None:
            return None
        found = self._kept.get_or_make(number, lambda: self._read_graph(number))
        return None if found is None else (found.graph, found.codes)

    def _read_graph(self, number: int) -> _KeptGraph | None:
        assert self.graphs is not None, "it has graphs"
        graph = self.graphs.read(number, int(self.lengths[number]))
        if graph is None:
            return None
        return _KeptGraph(graph, self.quantizer.graph_codes(self.codes(number)[1]))


def _open(folder: SegmentFolder) -> TwoFiles | OneFile:
    try:
        return TwoFiles(folder)
    except ObjectNotFoundError:
        if not is_one_file(folder):
            raise
        return OneFile(folder)
