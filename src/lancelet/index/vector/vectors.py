"""Vectors of a column as matrices, prepared for a metric.

    column    [3 4], null, [NaN 1]      rows 0 1 2
    matrix    [3 4]                     row 0; what is not finite cannot be near anything
    cosine    [0.6 0.8]                 length one, then compared by squared distance
    lists     [[1 0] [0 1]], []         rows 0 0: each vector of a list stands for its row

Computing is in single precision, in double for vectors of that; bits stay bytes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.vector.quantizers.base import Matrix, work_type
from lancelet.kernels import Metric
from lancelet.rowids.address import UInt64s


class NotVectorsError(InvalidInputError, TypeError):
    """The column does not hold vectors."""


def vector_type_of(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of the vectors of a column, which may hold lists of them; else None.

    Vectors that are tensors to Arrow are compared as the lists that they are stored as.
    """
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        data_type = data_type.value_type
    if not pa.types.is_fixed_size_list(data_type):
        return None
    element = data_type.value_type
    return data_type if pa.types.is_floating(element) or element == pa.uint8() else None


def plain_vectors(array: pa.Array) -> pa.Array:
    """Return vectors as the lists that they are stored as."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def values_of(vectors: pa.Array) -> npt.NDArray[Any]:
    """Return the elements of vectors one after another, whatever is there where one is null."""
    vectors = plain_vectors(vectors)
    dimension = vectors.type.list_size
    elements = vectors.values.slice(vectors.offset * dimension, len(vectors) * dimension)
    data = elements.buffers()[1]
    dtype = np.dtype(elements.type.to_pandas_dtype())
    if data is None:
        return np.zeros(len(elements), dtype)
    return np.frombuffer(data, dtype, count=elements.offset + len(elements))[elements.offset :]


def matrix_of(values: pa.Array, numbers: UInt64s, metric: Metric) -> tuple[Matrix, UInt64s]:
    """Return the vectors that can be compared, prepared, and the number of the row of each."""
    values = plain_vectors(values)
    if not pa.types.is_fixed_size_list(values.type):
        lengths = np.where(
            values.is_valid().to_numpy(zero_copy_only=False), np.diff(values.offsets.to_numpy()), 0
        )
        values, numbers = values.flatten(), np.repeat(numbers, lengths)
    matrix = values_of(values).reshape(len(values), values.type.list_size)
    valid = np.ones(len(values), np.bool_)
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
    if metric is not Metric.HAMMING:
        matrix, is_finite = prepare(matrix, metric)
        valid = valid & is_finite
    if not valid.all():
        matrix, numbers = matrix[valid], numbers[valid]
    return matrix, numbers


def prepare(matrix: Matrix, metric: Metric) -> tuple[Matrix, npt.NDArray[np.bool_]]:
    """Return vectors as the metric compares them, and which of them can be compared."""
    wide = matrix.astype(work_type(matrix.dtype), copy=False)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        squares = np.einsum("ij,ij->i", wide, wide)
        if metric is Metric.COSINE:
            wide = wide / np.sqrt(squares)[:, None]
            if matrix.dtype == np.float16:
                wide = wide.astype(np.float16).astype(np.float32)  # as precise as what is stored
            squares = np.where(squares > 0, squares, np.inf)
    return wide, np.isfinite(squares)


def prepare_query(query: Matrix, metric: Metric) -> Matrix | None:
    """Return one vector as the metric compares it, or None if it cannot be compared.

    >>> prepare_query(np.array([3.0, 4.0]), Metric.COSINE)
    array([0.6, 0.8])
    """
    if metric is Metric.HAMMING:
        return query
    if metric is Metric.COSINE or query.dtype == np.float16:
        matrix, can_be_compared = prepare(query[None, :], metric)
        return matrix[0] if can_be_compared[0] else None
    wide = query.astype(work_type(query.dtype), copy=False)
    return wide if math.isfinite(wide.dot(wide)) else None
