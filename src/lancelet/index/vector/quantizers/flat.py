"""FLAT: unquantized vectors in the type of the column, normalized for the cosine metric."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.index.kernels import (
    CodeKind,
    CodeQuery,
    Comparison,
    Metric,
    PackedCodes,
    quantize_rows,
)
from lancelet.index.kernels.partitions import NO_FLOATS
from lancelet.index.kernels.vectors import Floats
from lancelet.index.vector.quantizers.base import (
    Codes,
    GraphQuery,
    GraphView,
    Matrix,
    StorageMetadata,
    list_field,
    read_number,
    work_type,
)
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """Unquantized vectors."""

    metric: Metric
    dimension: int
    dtype: np.dtype[Any]

    @staticmethod
    def parse(metadata: StorageMetadata, metric: Metric, columns: Sequence[pa.Field]) -> Flat:
        """Parse the storage metadata."""
        dimension = read_number(metadata, "dim", 1, 1 << 24)
        (column,) = (field for field in columns if field.name == "flat")
        return Flat(metric, dimension, np.dtype(column.type.value_type.to_pandas_dtype()))

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Column of vectors."""
        element = pa.from_numpy_dtype(self.dtype)
        return (list_field("flat", element, self.dimension, nullable=False),)

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:  # noqa: ARG002
        """Return the vectors in the type of the column."""
        return {"flat": vectors.astype(self.dtype, copy=False)}

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the column of vectors."""
        return [codes["flat"]]

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the vectors of the column."""
        return {"flat": columns[0]}

    def pack_codes(self, codes: Codes, center: Floats) -> PackedCodes:
        """Return the vectors with their residuals quantized to bytes."""
        vectors = np.ascontiguousarray(codes["flat"])
        row_bytes = self.dimension * vectors.itemsize
        if self.metric is Metric.HAMMING:
            return PackedCodes(vectors.reshape(-1), row_bytes)
        is_normal = self.metric is Metric.COSINE
        numbers, squares, steps = quantize_rows(vectors, center, is_normal=is_normal)
        add, share = (squares, -2) if self.metric is Metric.L2 else (NO_FLOATS, -1)
        scale = steps * np.float32(share)
        return PackedCodes(vectors.reshape(-1), row_bytes, add, scale, numbers.reshape(-1))

    def code_query(self, query: Matrix) -> CodeQuery:
        """Return the query in the precision of the distances."""
        is_bits = self.metric is Metric.HAMMING
        converted = query if is_bits else query.astype(work_type(self.dtype))
        return CodeQuery(CodeKind.VECTORS, converted, self.dimension, metric=self.metric)

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the vectors in the form compared by the metric."""
        return GraphView(self.graph_codes(codes), *self._comparison)

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:  # noqa: ARG002
        """Return the query in the form compared by the metric."""
        return GraphQuery(self._to_comparable(query[None, :])[0], *self._comparison)

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the vectors in single precision, or bit vectors as bytes of 0 and 1."""
        return self._to_comparable(codes["flat"])

    def _to_comparable(self, vectors: Matrix) -> npt.NDArray[Any]:
        if self.metric is Metric.HAMMING:
            return np.unpackbits(vectors, axis=1)
        return np.ascontiguousarray(vectors, np.float32)

    @property
    def _comparison(self) -> tuple[Comparison, float, float]:
        """The comparison, and the factor and offset that convert its results to distances."""
        match self.metric:
            case Metric.HAMMING:
                return (
                    Comparison.BYTE_L2,
                    1.0,
                    0.0,
                )  # squared distance of 0 and 1, which is the Hamming distance
            case Metric.L2:
                return Comparison.FLOAT_L2, 1.0, 0.0
            case (
                Metric.COSINE | Metric.DOT
            ):  # for normalized vectors, the largest product is the smallest distance
                return Comparison.FLOAT_DOT, 1.0, 1.0
        assert_never(self.metric)

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:  # noqa: ARG002
        """Return the dimension."""
        return {"dim": self.dimension}

    def settings(self) -> dict[str, Any]:
        """Return an empty dictionary; there are no parameters."""
        return {}

    def same_codes(self, other: Any) -> bool:
        """Return whether the other quantizer has the same element type."""
        return isinstance(other, Flat) and self.dtype == other.dtype
