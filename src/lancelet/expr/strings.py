"""Compare and search many strings with kernels; Arrow's functions take several times as long.

name = 'red'        compare_strings(names, b"red") == 1
name LIKE '%re%'    contains(names, b"re")
length(name)        characters(names)
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet import kernels
from lancelet.encodings.arrow import validity_bits
from lancelet.expr.expression import Operator

_ROWS_MIN: Final = 256
"""Fewer strings are compared by Arrow."""

_ORDERS: Final = {
    Operator.EQUAL: (1,),
    Operator.NOT_EQUAL: (0, 2),
    Operator.LESS: (0,),
    Operator.LESS_EQUAL: (0, 1),
    Operator.GREATER: (2,),
    Operator.GREATER_EQUAL: (1, 2),
}
_ASCII_MAX: Final = 127


def are_many_strings(values: Any) -> TypeGuard[pa.Array]:
    """Return whether values are an array of strings or bytes that kernels are worth it for."""
    if not kernels.NATIVE or not isinstance(values, pa.Array) or len(values) < _ROWS_MIN:
        return False
    kind = values.type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def compare_strings(operator: Operator, values: pa.Array, constant: bytes) -> pa.BooleanArray:
    """Compare strings with a constant; nulls remain null.

    >>> compare_strings(Operator.LESS, pa.array(["a", None, "c"]), b"b").to_pylist()
    [True, None, False]
    """
    orders = kernels.compare_bytes(*_buffers(values), constant)
    first, *others = _ORDERS[operator]
    flags = orders == first
    for other in others:
        flags |= orders == other
    return _booleans(flags, values)


def contains(values: pa.Array, part: bytes) -> pa.BooleanArray:
    """Return whether strings contain bytes; nulls remain null.

    >>> contains(pa.array(["abc", None, "cab"]), b"bc").to_pylist()
    [True, None, False]
    """
    return _booleans(kernels.contain_bytes(*_buffers(values), part).view(np.bool_), values)


def characters(values: pa.Array) -> pa.Array:
    """Return the number of characters of strings.

    >>> characters(pa.array(["abc", None, "\u00e9"])).to_pylist()
    [3, None, 1]
    """
    offsets, data = _buffers(values)
    own = data[int(offsets[0]) : int(offsets[-1])]
    if len(own) and int(own.max()) > _ASCII_MAX:
        return pc.utf8_length(values)
    return pc.binary_length(values)


def _buffers(values: pa.Array) -> tuple[Any, npt.NDArray[np.uint8]]:
    kind = values.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    dtype = np.dtype(np.int64 if is_large else np.int32)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, dtype, len(values) + 1, values.offset * dtype.itemsize)
    return bounds, np.frombuffer(b"" if data is None else data, np.uint8)


def _booleans(flags: npt.NDArray[np.bool_], values: pa.Array) -> pa.BooleanArray:
    """Return flags as an array that is null where the values are null."""
    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    valid = validity_bits(values)
    nulls = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(pa.bool_(), len(flags), [nulls, bits])
