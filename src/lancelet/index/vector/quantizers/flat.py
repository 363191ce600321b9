"""FLAT: vectors are kept whole, in the type of the column; cosine keeps them at length one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.index.vector.quantizers.base import (
    Codes,
    Distances,
    GraphView,
    Matrix,
    StorageNotes,
    list_field,
    number_of,
)
from lancelet.kernels import Comparison, Metric, vector_distances
from lancelet.kernels.metric import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """Vectors of a dimension and an element type."""

    metric: Metric
    dimension: int
    dtype: np.dtype[Any]

    @staticmethod
    def parse(notes: StorageNotes, metric: Metric, columns: Sequence[pa.Field]) -> Flat:
        """Read from a file."""
        dimension = number_of(notes, "dim", 1, 1 << 24)
        (column,) = (field for field in columns if field.name == "flat")
        return Flat(metric, dimension, np.dtype(column.type.value_type.to_pandas_dtype()))

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The vectors."""
        element = pa.from_numpy_dtype(self.dtype)
        return (list_field("flat", element, self.dimension, nullable=False),)

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:  # noqa: ARG002
        """Return the vectors."""
        return {"flat": vectors.astype(self.dtype)}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the vectors."""
        return [codes["flat"]]

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the vectors."""
        return {"flat": columns[0]}

    def searchable(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the vectors one behind the other."""
        return codes["flat"].reshape(-1)

    def ask(self, query: Matrix) -> Distances:
        """Return what finds exact distances."""

        def distances(vectors: Any, centroid: Matrix, rows: Int64s | None) -> Floats:  # noqa: ARG001
            return vector_distances(vectors, self.dimension, query, self.metric, rows)

        return distances

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the vectors in single precision."""
        vectors = self.graph_codes(codes["flat"])
        if self.metric is Metric.L2:
            return GraphView(vectors, Comparison.FLOAT_L2)
        return GraphView(vectors, Comparison.FLOAT_DOT, base=1.0)

    def graph_query(self, query: Matrix, centroid: Matrix) -> tuple[Comparison, Matrix]:  # noqa: ARG002
        """Return the query in single precision; vectors of length one are nearest by product."""
        is_l2 = self.metric is Metric.L2
        return Comparison.FLOAT_L2 if is_l2 else Comparison.FLOAT_DOT, query.astype(np.float32)

    def graph_codes(self, searchable: Any) -> npt.NDArray[Any]:
        """Return the vectors in single precision."""
        found: npt.NDArray[Any] = searchable.reshape(-1, self.dimension).astype(np.float32)
        return found

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:  # noqa: ARG002
        """Return the dimension."""
        return {"dim": self.dimension}

    def settings(self) -> dict[str, Any]:
        """Return nothing: there is nothing to ask for."""
        return {}

    def same_codes(self, other: Any) -> bool:
        """Return whether the other keeps the same kind of vectors."""
        return isinstance(other, Flat) and self.dtype == other.dtype
