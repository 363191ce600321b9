"""What a way of keeping vectors does, in terms of arrays with a row for each vector.

    encode      vectors, their partitions  -> codes: named arrays, row by row
    store       codes of one partition     -> columns as the file has them
    load        columns of one partition   -> codes
    searchable  codes of one partition     -> as kernels want them, with what rows are told far by
    ask         a query                    -> how a kernel scores what is searchable

Only `store` and `load` know how a file packs codes; merging and renumbering select rows of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.kernels import CodeQuery, Comparison, Metric, PackedCodes
from lancelet.kernels.graph import Floats
from lancelet.values import dataclass

Matrix: TypeAlias = npt.NDArray[Any]
Codes: TypeAlias = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class StorageNotes:
    """What a file says of its codes: a JSON object, and global buffers by number."""

    values: Mapping[str, Any]
    buffer: Callable[[int], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class GraphView:
    """The rows of a partition as graphs compare them; distances are `factor` times plus `base`."""

    vectors: npt.NDArray[Any]
    comparison: Comparison
    factor: float = 1.0
    base: float = 0.0

    def rescale(self, compared: Floats) -> Floats:
        """Return the distances that comparing found."""
        return _rescaled(compared, self.factor, self.base)


@dataclass(frozen=True, slots=True, eq=False)
class GraphQuery:
    """A query as graphs compare it with rows; distances are `factor` times that plus `base`."""

    query: npt.NDArray[Any]
    comparison: Comparison
    factor: float = 1.0
    base: float = 0.0

    def rescale(self, compared: Floats) -> Floats:
        """Return the distances that comparing found."""
        return _rescaled(compared, self.factor, self.base)


def _rescaled(compared: Floats, factor: float, base: float) -> Floats:
    found: Floats = compared * np.float32(factor) + np.float32(base)
    return found


class Quantizer(Protocol):
    """A trained way of keeping vectors."""

    @property
    def fields(self) -> tuple[pa.Field, ...]:
        """The columns of a file, without the row ids."""

    def encode(self, vectors: Matrix, partitions: Int64s, centroids: Matrix) -> Codes:
        """Return the codes of vectors that are prepared for the metric."""

    def store(self, codes: Codes) -> list[npt.NDArray[Any]]:
        """Return the columns of one partition, of the shape (rows, width)."""

    def load(self, columns: Sequence[npt.NDArray[Any]]) -> Codes:
        """Return the codes of one partition."""

    def searchable(self, codes: Codes, center: Floats) -> PackedCodes:
        """Return the codes of a partition, whose centroid is given, as kernels want them."""

    def ask(self, query: Matrix) -> CodeQuery:
        """Return how rows are scored for a query that is prepared for the metric."""

    def graph_view(self, codes: Codes) -> GraphView:
        """Return the rows of one partition for a graph to be built of."""

    def graph_query(self, query: Matrix, centroid: Matrix) -> GraphQuery:
        """Return how a query is compared with what `graph_codes` returns."""

    def graph_codes(self, codes: Codes) -> npt.NDArray[Any]:
        """Return the rows of one partition for a graph to be searched in, as a matrix."""

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return what to write of the codes beside them."""

    def settings(self) -> dict[str, Any]:
        """Return the parameters that the codes were asked for with, by pylance's names."""

    def same_codes(self, other: Any) -> bool:
        """Return whether codes of another mean the same."""


def work_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type to compute in for vectors of a type."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def number_of(notes: StorageNotes, name: str, least: int, most: int) -> int:
    """Return a whole number that a file must have noted."""
    found = notes.values.get(name)
    if not isinstance(found, int) or not least <= found <= most:
        raise CorruptDataError(
            "the notes of an index lack a number or have one out of bounds", name=name, found=found
        )
    return found


def residuals(vectors: Matrix, partitions: Int64s, centroids: Matrix, metric: Metric) -> Matrix:
    """Return what of vectors their centroid does not explain; all of them for products."""
    if metric is Metric.DOT:
        return vectors
    found: Matrix = vectors - centroids[partitions].astype(vectors.dtype)
    return found


def list_field(name: str, element: pa.DataType, width: int, *, nullable: bool = True) -> pa.Field:
    """Return a column with a list of so many elements in each row."""
    return pa.field(name, pa.list_(element, width), nullable=nullable)
