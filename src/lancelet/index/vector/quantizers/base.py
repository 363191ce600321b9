"""Interface of the quantizers. Codes are named arrays with one row per vector.

    encode       vectors and partitions     -> codes
    store        codes of a partition       -> columns of the file
    load         columns of a partition     -> codes
    pack_codes   codes of a partition       -> input of the kernels, with error bounds
    code_query   a query                    -> scoring function for packed codes

Only `store` and `load` depend on the layout of the file. Merging and renumbering select rows of
codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.kernels import CodeQuery, Comparison, Metric, PackedCodes
from lancelet.index.kernels.vectors import Floats
from lancelet.values import dataclass

Matrix: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class StorageMetadata:
    """Storage metadata of codes: a JSON object, and global buffers by number."""

    values: Mapping[str, Any]
    buffer: Callable[[int], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """Rows of a partition for graph construction.

    Distances are `factor` times the result of the comparison plus `base`.
    """

    vectors: npt.NDArray[Any]
    comparison: Comparison
    factor: float = 1.0
    base: float = 0.0

    def rescale(self, compared: Floats) -> Floats:
        """Convert results of the comparison to distances."""
        return _rescale(compared, self.factor, self.base)


@dataclass(frozen=True, slots=True, eq=False)
class GraphQuery:
    """A query for graph searches. Distances are `factor` times the result plus `base`."""

    query: npt.NDArray[Any]
    comparison: Comparison
    factor: float = 1.0
    base: float = 0.0

    def rescale(self, compared: Floats) -> Floats:
        """Convert results of the comparison to distances."""
        return _rescale(compared, self.factor, self.base)


def _rescale(compared: Floats, factor: float, base: float) -> Floats:
    distances: Floats = compared * np.float32(factor) + np.float32(base)
    return distances


class Quantizer(Protocol):
    """A trained quantizer."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """Columns of the file, without the row ids."""

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:
        """Encode vectors prepared for the metric."""

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the columns of a partition, each with the shape (rows, width)."""

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the codes of a partition from its columns."""

    def pack_codes(self, codes: Codes, center: Floats) -> PackedCodes:
        """Return the codes of a partition in the layout of the kernels, given its centroid."""

    def code_query(self, query: Matrix) -> CodeQuery:
        """Return the scoring function for a query prepared for the metric."""

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the rows of a partition for graph construction."""

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:
        """Return the comparison of a query with the result of `graph_codes`."""

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the rows of a partition for graph searches, as a matrix."""

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return the storage metadata to write, adding buffers to the file as needed."""

    def settings(self) -> dict[str, Any]:
        """Return the build parameters under the names used by pylance."""

    def same_codes(self, other: Any) -> bool:
        """Return whether codes of another quantizer are interchangeable."""


def work_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type used for computations with vectors of a type."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def read_number(metadata: StorageMetadata, name: str, minimum: int, maximum: int) -> int:
    """Return an integer from the storage metadata. Raise if it is missing or out of range."""
    value = metadata.values.get(name)
    if not isinstance(value, int) or not minimum <= value <= maximum:
        raise CorruptDataError(
            "missing or invalid number in the metadata of a vector index", name=name, found=value
        )
    return value


def residuals(vectors: Matrix, partitions: Int64s, centroids: Matrix, metric: Metric) -> Matrix:
    """Return the residuals of vectors, or the vectors themselves for the dot metric."""
    if metric is Metric.DOT:
        return vectors
    result: Matrix = vectors - centroids[partitions].astype(vectors.dtype)
    return result


def list_field(name: str, element: pa.DataType, width: int, *, nullable: bool = True) -> pa.Field:
    """Return a fixed-size list field."""
    return pa.field(name, pa.list_(element, width), nullable=nullable)
