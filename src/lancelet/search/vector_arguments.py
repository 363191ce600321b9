"""Parsing and validation of the arguments of a vector search.

{"column": "v", "q": [0.5, 1.5], "k": 3, "distance_range": (0, 2)}
-> the field v, one query of float32, the bounds 0 and 2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.arguments import ArgumentTypeError, instance
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    similar_names,
)
from lancelet.expr.data_types import print_arrow_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.index.kernels import Metric
from lancelet.index.vector.layout import METRICS
from lancelet.index.vector.vectors import NotVectorsError, not_vectors_hint, vector_type_of
from lancelet.values import dataclass


def distance_bounds(given: Any) -> tuple[float | None, float | None]:
    """Return the inclusive lower and exclusive upper distance bound; either may be None."""
    if given is None:
        return None, None
    if not hasattr(given, "__len__") or len(given) != 2:
        raise InvalidInputError(
            "distance_range must be a tuple of (lower_bound, upper_bound)", found=str(given)
        )
    for each in given:
        instance("distance_range", each, int, float, np.number, type(None))
    return given[0], given[1]


def vector_field(schema: Schema, column: str) -> Field:
    """Return the field of a vector column. Raise if it is missing or has another type."""
    try:
        field = schema.field_by_path(column)
    except FieldNotFoundError as error:
        raise FieldNotFoundError(
            f"Embedding column {column} is not in the dataset{similar_names(column, schema.names)}",
            **{**error.facts, "column": column},
        ) from error
    if _found_in(field) is None:
        raise NotVectorsError(
            f"Query column {column} must be a vector. Got {field.arrow_type}"
            f"{not_vectors_hint(field.arrow_type, column)}.",
            column=column,
        )
    return field


@dataclass(frozen=True, slots=True)
class VectorType:
    """Dimension and value type of the vectors of a column."""

    dimension: int
    dtype: np.dtype[Any]
    in_lists: bool

    @property
    def are_bits(self) -> bool:
        """Whether vectors are bit vectors, compared by Hamming distance."""
        return self.dtype == np.uint8


@lru_cache(maxsize=1024)
def _found_in(field: Field) -> VectorType | None:
    """Return the vector type of a column, or None if it has no vectors."""
    data_type = field.arrow_type
    found = vector_type_of(data_type)
    if found is None:
        return None
    if isinstance(data_type, pa.BaseExtensionType):
        data_type = data_type.storage_type
    dtype = np.dtype(found.value_type.to_pandas_dtype())
    return VectorType(found.list_size, dtype, not pa.types.is_fixed_size_list(data_type))


def vectors_of(field: Field) -> VectorType:
    """Return the vector type of a validated vector column."""
    found = _found_in(field)
    assert found is not None, "the column was validated as a vector column"
    return found


def queries_of(given: Any, field: Field) -> tuple[tuple[npt.NDArray[Any], ...], bool]:
    """Return the query vectors, and whether the search is a batch of queries."""
    stored = vectors_of(field)
    vectors = _converted(_as_array(given), stored.dtype)
    if vectors.ndim and not len(vectors):
        raise InvalidInputError("a search needs at least one query vector", column=field.name)
    if vectors.ndim > 2:
        raise InvalidInputError(
            "a search takes one vector or a list of vectors", shape=list(vectors.shape)
        )
    if vectors.ndim not in {1, 2} or vectors.shape[-1] != stored.dimension or not vectors.size:
        raise InvalidInputError(
            f"Query vector size {vectors.shape[-1] if vectors.ndim else 0} does not match index "
            f"column size {stored.dimension}; embed the query with the model of the column",
            column=field.name,
        )
    if stored.dtype.kind == "f" and np.isnan(vectors).any():
        raise InvalidInputError(
            "the query vector contains NaN, which has no distance from any vector; replace it",
            column=field.name,
            element=int(np.argwhere(np.isnan(vectors))[0][-1]),
        )
    if stored.in_lists:
        return (vectors.reshape(-1, vectors.shape[-1]),), False
    if vectors.ndim == 1:
        return (vectors,), False
    return tuple(vectors), True


def _as_array(given: Any) -> npt.NDArray[Any]:
    if isinstance(given, np.ndarray) and given.dtype.kind in "fiub":
        return given
    if isinstance(given, pa.Scalar):
        given = given.as_py()
    if isinstance(given, pa.Array | pa.ChunkedArray):
        is_plain = not pa.types.is_nested(given.type)
        given = given.to_numpy(zero_copy_only=False) if is_plain else given.to_pylist()
    if not isinstance(given, Iterable):
        raise ArgumentTypeError("the query must be a vector of numbers", found=type(given).__name__)
    lengths = {len(each) for each in given if hasattr(each, "__len__")}
    if len(lengths) > 1:
        raise InvalidInputError(
            "All query vectors must have the same length, but got "
            + " and ".join(str(each) for each in sorted(lengths))
        )
    found = np.asarray(given)
    if found.dtype.kind not in "fiub":
        raise ArgumentTypeError("the query must be a vector of numbers", found=type(given).__name__)
    return found


def _converted(vectors: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return queries in the precision of the stored vectors; values out of range are clipped.

    >>> _converted(np.array([300, -1]), np.dtype(np.uint8)).tolist()
    [255, 0]
    """
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        vectors = np.clip(vectors, bounds.min, bounds.max)
    with np.errstate(over="ignore"):  # the value becomes infinite
        return vectors.astype(dtype)


def metric_named(given: str | None, field: Field) -> Metric | None:
    """Return the metric for a name, or None if the index decides."""
    if given is None:
        return None
    metric = METRICS.get(str(given).lower())
    if metric is None:
        raise InvalidInputError(
            f"Metric type '{given}' is not supported", expected=sorted(set(METRICS))
        )
    if vectors_of(field).are_bits != (metric is Metric.HAMMING):
        kind = print_arrow_type(pa.from_numpy_dtype(vectors_of(field).dtype))
        raise InvalidInputError(
            f"Distance type {given.lower()} does not support {kind} vectors: uint8 vectors "
            "require hamming, other types do not support it",
            metric=given,
        )
    return metric


def probes_between(arguments: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the minimum and maximum number of probed partitions."""
    least, most = arguments.get("minimum_nprobes"), arguments.get("maximum_nprobes")
    for given in (least, most, arguments.get("nprobes")):
        if given is not None and int(given) < 1:
            raise InvalidInputError(f"Nprobes must be > 0 but got {given}")
    if least is not None and most is not None and int(least) > int(most):
        raise InvalidInputError("minimum_nprobes must not exceed maximum_nprobes")
    return least, most
