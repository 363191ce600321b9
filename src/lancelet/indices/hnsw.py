"""HNSW graphs in separate files, exported as `lancelet.util.HNSW`.

The file has the layout of the graphs in vector indices: vector id, neighbors and distances per
level. The schema metadata contains the entry point and the level offsets.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

import pyarrow as pa

from lancelet.dataset.file.writer import LanceFileWriter
from lancelet.errors import InvalidInputError
from lancelet.index.kernels import Metric
from lancelet.index.vector import layout
from lancelet.index.vector.graph import GraphSettings, GraphWriter
from lancelet.index.vector.quantizers.flat import Flat
from lancelet.index.vector.vectors import values_of


class HNSW:
    """An HNSW graph of vectors."""

    def __init__(self, graph: pa.RecordBatch, metadata: list[str], vectors: pa.Array) -> None:
        """Store the rows and metadata of a graph. Use `build` to create one."""
        self._graph = graph
        self._metadata = metadata
        self._vectors = vectors

    @staticmethod
    def build(
        vectors_array: Iterable[pa.Array],
        max_level: int = 7,
        m: int = 20,
        ef_construction: int = 100,
    ) -> HNSW:
        """Build the graph of vectors.

        Args:
            vectors_array: Fixed-size list arrays of one type.
            max_level: The maximum number of levels.
            m: The number of neighbors of a vector.
            ef_construction: The number of candidates considered for them.
        """
        arrays = list(vectors_array)
        if not arrays or not pa.types.is_fixed_size_list(arrays[0].type):
            raise InvalidInputError("an HNSW graph requires arrays of fixed-size lists")
        vectors = pa.concat_arrays(arrays)
        matrix = values_of(vectors).reshape(len(vectors), vectors.type.list_size)
        quantizer = Flat(Metric.L2, vectors.type.list_size, matrix.dtype)
        graph = GraphWriter(GraphSettings(m, ef_construction, max_level), quantizer)
        rows = graph.add(quantizer.load([matrix]), len(vectors))
        return HNSW(rows, graph.metadata, vectors)

    def to_lance_file(self, file_path: str | os.PathLike[str]) -> None:
        """Write the graph to a Lance file."""
        with LanceFileWriter(os.fspath(file_path), self._graph.schema) as writer:
            writer.write_batch(self._graph)
            writer.add_schema_metadata(layout.GRAPH_KEY, json.dumps(self._metadata))

    def vectors(self) -> pa.Array:
        """Return the vectors."""
        return self._vectors
