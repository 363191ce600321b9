"""A graph of vectors in a file of its own, as `lancelet.util.HNSW` builds it.

The rows are those of the graphs in indices: a vector, its neighbours, and how far they are, by
level; what else a search needs is in the metadata of the schema.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.file.api_writer import LanceFileWriter
from lancelet.index.vector import layout
from lancelet.index.vector.graph import GraphSettings, GraphWriter
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.vectors import values_of
from lancelet.kernels import Metric


class HNSW:
    """A graph of vectors that leads to the nearest of any other vector."""

    def __init__(self, graph: pa.RecordBatch, notes: list[str], vectors: pa.Array) -> None:
        """Hold the rows of a graph and what a search needs besides; made by `build`."""
        self._graph = graph
        self._notes = notes
        self._vectors = vectors

    @staticmethod
    def build(
        vectors_array: Iterable[pa.Array],
        max_level: int = 7,
        m: int = 20,
        ef_construction: int = 100,
    ) -> HNSW:
        """Build the graph of vectors that come in arrays.

        Args:
            vectors_array: Lists of a fixed size, all of one type.
            max_level: How many levels there are at most.
            m: How many neighbours a vector has.
            ef_construction: Among how many candidates they are chosen.
        """
        arrays = list(vectors_array)
        if not arrays or not pa.types.is_fixed_size_list(arrays[0].type):
            raise InvalidInputError("a graph is built of arrays of lists of a fixed size")
        vectors = pa.concat_arrays(arrays)
        matrix = values_of(vectors).reshape(len(vectors), vectors.type.list_size)
        quantizer = Flat(Metric.L2, vectors.type.list_size, matrix.dtype)
        graph = GraphWriter(GraphSettings(m, ef_construction, max_level), quantizer)
        rows = graph.add(quantizer.load([matrix]), len(vectors))
        return HNSW(rows, graph.notes, vectors)

    def to_lance_file(self, file_path: str | os.PathLike[str]) -> None:
        """Write the graph."""
        with LanceFileWriter(os.fspath(file_path), self._graph.schema) as writer:
            writer.write_batch(self._graph)
            writer.add_schema_metadata(layout.GRAPH_KEY, json.dumps(self._notes))

    def vectors(self) -> pa.Array:
        """Return the vectors."""
        return self._vectors
