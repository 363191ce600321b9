"""What callers search for, as an array: numbers in a list, an array of NumPy or Arrow, a scalar.

[1, 2.5]              float[1, 2.5], of 2 dimensions
[[1, 0], [0, 1]]      list<float>[[1, 0], [0, 1]], of 2: a vector of several
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError


class QueryVectorTypeError(InvalidInputError, TypeError):
    """What is searched for is no vector."""


def coerce_query_vector(query: Any) -> tuple[pa.Array, int]:
    """Return a vector or several in single precision, and how many dimensions they have."""
    if hasattr(query, "__getitem__") and isinstance(query[0], list | tuple | np.ndarray | pa.Array):
        return _several(query)
    vector = _array(query)
    if isinstance(vector, pa.ChunkedArray):
        vector = vector.combine_chunks()
    if pa.types.is_integer(vector.type):
        vector = vector.cast(pa.float32())
    if not isinstance(vector, pa.FloatingPointArray):
        raise QueryVectorTypeError(
            f"query vector must be list-like or pa.FloatingPointArray but received {vector.type}"
        )
    return vector, len(vector)


def _several(queries: Any) -> tuple[pa.Array, int]:
    dimension = len(queries[0])
    wrong = [len(each) for each in queries if len(each) != dimension]
    if wrong:
        raise InvalidInputError(
            f"All query vectors must have the same length, but got {dimension} and {wrong[0]}"
        )
    vectors = [coerce_query_vector(each)[0] for each in queries]
    return pa.array(vectors, pa.list_(pa.float32())), dimension


def _array(query: Any) -> Any:
    if isinstance(query, pa.Scalar):
        stored = query.value if isinstance(query, pa.ExtensionScalar) else query
        return stored.values if isinstance(stored.type, pa.FixedSizeListType) else stored
    if isinstance(query, list | tuple | np.ndarray):
        return pa.array(np.array(query).astype(np.float32), pa.float32())
    if isinstance(query, pa.Array | pa.ChunkedArray):
        return query
    try:
        return pa.array(query)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise QueryVectorTypeError(
            f"Query vectors should be an array of floats, got {type(query)} which we cannot "
            "coerce to a float array"
        ) from error
