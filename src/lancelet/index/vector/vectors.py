"""Conversion of vector columns to matrices prepared for a metric.

    column    [3 4], null, [NaN 1]      rows 0 1 2
    matrix    [3 4]                     row 0; null and non-finite vectors are skipped
    cosine    [0.6 0.8]                 normalized, then compared by squared distance
    lists     [[1 0] [0 1]], []         rows 0 0: one matrix row per vector

Matrices use single precision, double precision for double vectors, and bytes for bit vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.kernels import Metric
from lancelet.index.vector.quantizers.base import Matrix, work_type
from lancelet.rowids.address import UInt64s


class NotVectorsError(InvalidInputError, TypeError):
    """The column does not contain vectors."""


def vector_type_of(data_type: pa.DataType) -> pa.DataType | None:
    """Return the vector type of a column of vectors or lists of vectors; else None.

    Tensors are treated as their storage lists.
    """
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        data_type = data_type.value_type
    if not pa.types.is_fixed_size_list(data_type):
        return None
    element = data_type.value_type
    return data_type if pa.types.is_floating(element) or element == pa.uint8() else None


def not_vectors_hint(data_type: pa.DataType, column: str) -> str:
    """Return the call that fits a column without vectors, as the end of an error message.

    >>> not_vectors_hint(pa.string(), "title")
    "; for text call dataset.create_scalar_index('title', 'INVERTED')"
    """
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        element = data_type.value_type
        if pa.types.is_floating(element) or pa.types.is_integer(element):
            return (
                "; lists of one length become vectors with dataset.alter_columns({'path': "
                f"{column!r}, 'data_type': pa.list_(pa.float32(), DIMENSION)}}); lists of several "
                "lengths must be padded first"
            )
        return f"; for lists of values call dataset.create_scalar_index({column!r}, 'LABEL_LIST')"
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return f"; for text call dataset.create_scalar_index({column!r}, 'INVERTED')"
    if not pa.types.is_nested(data_type) and not isinstance(data_type, pa.BaseExtensionType):
        return f"; for filters call dataset.create_scalar_index({column!r}, 'BTREE')"
    return ""


def plain_vectors(array: pa.Array) -> pa.Array:
    """Return the storage of extension arrays."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def values_of(vectors: pa.Array) -> npt.NDArray[Any]:
    """Return the flattened elements of vectors, including undefined elements of null vectors."""
    vectors = plain_vectors(vectors)
    dimension = vectors.type.list_size
    elements = vectors.values.slice(vectors.offset * dimension, len(vectors) * dimension)
    data = elements.buffers()[1]
    dtype = np.dtype(elements.type.to_pandas_dtype())
    if data is None:
        return np.zeros(len(elements), dtype)
    return np.frombuffer(data, dtype, count=elements.offset + len(elements))[elements.offset :]


def matrix_of(values: pa.Array, numbers: UInt64s, metric: Metric) -> tuple[Matrix, UInt64s]:
    """Return the valid vectors as a prepared matrix, and their row numbers."""
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
    """Prepare vectors for a metric; return them and a mask of the valid ones."""
    wide = matrix.astype(work_type(matrix.dtype), copy=False)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        squares = np.einsum("ij,ij->i", wide, wide)
        if metric is Metric.COSINE:
            wide = wide / np.sqrt(squares)[:, None]
            if matrix.dtype == np.float16:
                wide = wide.astype(np.float16).astype(np.float32)  # the precision of stored vectors
            squares = np.where(squares > 0, squares, np.inf)
    return wide, np.isfinite(squares)


def prepare_query(query: Matrix, metric: Metric) -> Matrix | None:
    """Prepare a query vector for a metric. Return None if it is not valid.

    >>> prepare_query(np.array([3.0, 4.0]), Metric.COSINE)
    array([0.6, 0.8])
    """
    if metric is Metric.HAMMING:
        return query
    if metric is Metric.COSINE or query.dtype == np.float16:
        matrix, is_valid = prepare(query[None, :], metric)
        return matrix[0] if is_valid[0] else None
    wide = query.astype(work_type(query.dtype), copy=False)
    return wide if math.isfinite(wide.dot(wide)) else None
