"""bfloat16: the upper half of a float32, as an Arrow extension type over two bytes.

    float32  1.1   0 01111111 00011001100110011001101
    bfloat16       0 01111111 0001101                    1.1015625, rounded to nearest even

Arrow has no bfloat16 type, so columns are `fixed_size_binary(2)` with the extension name
`lance.bfloat16`, like in pylance. NumPy has none either: conversion to NumPy uses the dtype of the
package `ml_dtypes`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_FULL_PREVIEW_MAX = 22
_PREVIEW_EDGE = 10


def _bits_of(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def _floats_of(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _ml_dtypes_bfloat16() -> np.dtype[Any]:
    try:
        from ml_dtypes import bfloat16  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise UnsupportedError(
            "NumPy has no bfloat16 type; install the package ml_dtypes"
        ) from error
    dtype: np.dtype[Any] = np.dtype(bfloat16)
    return dtype


@functools.total_ordering
class BFloat16:
    """One bfloat16 number, ordered and compared by value.

    >>> BFloat16(1.1)
    BFloat16(1.1015625)
    >>> BFloat16(1.1) > BFloat16(1.0)
    True
    """

    __slots__ = ("_bits",)

    def __init__(self, value: SupportsFloat) -> None:
        """Round a number to the nearest bfloat16."""
        self._bits = int(_bits_of(np.array([float(value)], np.float32))[0])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Create a number from two little-endian bytes."""
        if len(data) != 2:
            raise InvalidInputError("a bfloat16 is two bytes: expected 2 bytes", found=len(data))
        number = cls(0)
        number._bits = int.from_bytes(data, "little")
        return number

    def as_float(self) -> float:
        """Return the number as a Python float, exactly."""
        return float(_floats_of(np.array([self._bits], np.uint16))[0])

    def to_bytes(self) -> bytes:
        """Return the number as two little-endian bytes."""
        return self._bits.to_bytes(2, "little")

    def __float__(self) -> float:
        return self.as_float()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloat16) and self.as_float() == other.as_float()

    def __lt__(self, other: BFloat16) -> bool:
        return self.as_float() < other.as_float()

    def __hash__(self) -> int:
        return hash(self.as_float())

    def __str__(self) -> str:
        return f"{self.as_float():.4g}"

    def __repr__(self) -> str:
        return f"BFloat16({self.as_float()!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (BFloat16.from_bytes, (self.to_bytes(),))


class BFloat16Type(pa.ExtensionType):  # type: ignore[misc]  # pyarrow's stubs leave the base untyped
    """The Arrow type of bfloat16 columns."""

    def __init__(self) -> None:
        """Create the type."""
        super().__init__(pa.binary(2), "lance.bfloat16")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage_type: pa.DataType, serialized: bytes
    ) -> BFloat16Type:
        del serialized
        if storage_type != pa.binary(2):
            raise InvalidInputError("bfloat16 is stored as two bytes", found=str(storage_type))
        return cls()

    def to_pandas_dtype(self) -> Any:
        """Return the pandas dtype."""
        from lancelet.arrow.pandas_bfloat16 import PandasBFloat16Type  # noqa: PLC0415 - requires pandas

        return PandasBFloat16Type()

    def __arrow_ext_class__(self) -> type[BFloat16Array]:
        return BFloat16Array

    def __arrow_ext_scalar_class__(self) -> type[BFloat16Scalar]:
        return BFloat16Scalar


class BFloat16Scalar(pa.ExtensionScalar):  # type: ignore[misc]  # pyarrow's stubs leave the base untyped
    """One value of a bfloat16 column."""

    def as_py(self, **kwargs: Any) -> BFloat16 | None:
        """Return the number, or None if it is null."""
        del kwargs
        return None if self.value is None else BFloat16.from_bytes(self.value.as_py())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, BFloat16Scalar):
            return bool(self.as_py() == other.as_py())
        if hasattr(other, "tobytes"):
            other = BFloat16.from_bytes(other.tobytes())
        return bool(self.as_py() == other)

    def __hash__(self) -> int:
        return hash(self.as_py())


class BFloat16Array(pa.ExtensionArray):  # type: ignore[misc]  # pyarrow's stubs leave the base untyped
    """An array of bfloat16 numbers."""

    def __repr__(self) -> str:
        return f"<lance.arrow.BFloat16Array object at 0x{id(self):016x}>\n{self}"

    def __str__(self) -> str:
        lines = [f"  {_text(value)}" for value in self.to_pylist()]
        if len(lines) >= _FULL_PREVIEW_MAX:
            lines = [*lines[:_PREVIEW_EDGE], "...", *lines[-_PREVIEW_EDGE:]]
        return "[\n" + ",\n".join(lines) + "\n]"

    def to_numpy(self, zero_copy_only: bool = False, writable: bool = False) -> npt.NDArray[Any]:  # noqa: ARG002 - Arrow's signature
        """Return an array with the dtype of `ml_dtypes`; raise if the array contains nulls."""
        if self.null_count:
            raise InvalidInputError(
                "NumPy arrays cannot hold nulls; fill or drop them first", nulls=self.null_count
            )
        return self._bits().view(_ml_dtypes_bfloat16())

    def _bits(self) -> npt.NDArray[np.uint16]:
        data = self.storage.buffers()[1]
        if data is None:
            return np.empty(0, np.uint16)
        return np.frombuffer(data, np.uint16)[self.offset : self.offset + len(self)]

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> BFloat16Array:
        """Create an array from a one-dimensional NumPy array with the dtype of `ml_dtypes`."""
        if array.dtype != _ml_dtypes_bfloat16():
            raise InvalidInputError("the array must be of dtype bfloat16", found=str(array.dtype))
        if array.ndim != 1:
            raise InvalidInputError("the array must have one dimension", found=array.ndim)
        return _array_of_bits(np.ascontiguousarray(array).view(np.uint16))


def _text(value: BFloat16 | None) -> str:
    if value is None:
        return "None"
    number = value.as_float()
    return str(int(number)) if number.is_integer() else str(number)


def _array_of_bits(
    bits: npt.NDArray[np.uint16], mask: npt.NDArray[np.bool_] | None = None
) -> BFloat16Array:
    validity = None
    if mask is not None and mask.any():
        validity = pa.py_buffer(np.packbits(~mask, bitorder="little"))
    storage = pa.Array.from_buffers(pa.binary(2), len(bits), [validity, pa.py_buffer(bits)])
    array: BFloat16Array = pa.ExtensionArray.from_storage(BFloat16Type(), storage)
    return array


def bfloat16_array(values: Iterable[SupportsFloat | None]) -> BFloat16Array:
    """Create an array from numbers and None, rounded to the nearest bfloat16.

    >>> bfloat16_array([1.1, None, 3.4]).to_pylist()
    [BFloat16(1.1015625), None, BFloat16(3.40625)]
    """
    items = list(values)
    mask = np.array([value is None for value in items], dtype=np.bool_)
    floats = np.array([0.0 if value is None else float(value) for value in items], np.float32)
    return _array_of_bits(_bits_of(floats), mask)


def cast(arr: pa.Array, target_type: pa.DataType | str, *args: Any, **kwargs: Any) -> pa.Array:
    """Cast like `pyarrow.compute.cast`, with support for bfloat16 numbers and vectors.

    >>> cast(pa.array([1.5, None]), "bfloat16").to_pylist()
    [BFloat16(1.5), None]
    """
    if isinstance(target_type, BFloat16Type) or target_type in {"bfloat16", "bf16"}:
        return _cast_to_bfloat16(arr)
    if isinstance(arr.type, BFloat16Type):
        if not pa.types.is_floating(target_type):
            raise InvalidInputError(
                "bfloat16 can only be cast to floating-point types", target=str(target_type)
            )
        floats = _floats_of(arr._bits())  # noqa: SLF001 - same module
        mask = arr.is_null().to_numpy(zero_copy_only=False)
        return pa.array(floats, pa.float32(), mask=mask).cast(target_type)
    if isinstance(target_type, pa.FixedSizeListType) and pa.types.is_fixed_size_list(arr.type):
        if arr.type.list_size != target_type.list_size:
            raise InvalidInputError(
                "vectors can only be cast to vectors of the same length",
                expected=arr.type.list_size,
                found=target_type.list_size,
            )
        length = arr.type.list_size
        items = arr.values.slice(arr.offset * length, len(arr) * length)
        mask = arr.is_null() if arr.null_count else None
        values = cast(items, target_type.value_type, *args, **kwargs)
        return pa.FixedSizeListArray.from_arrays(values, length, mask=mask)
    return pa.compute.cast(arr, target_type, *args, **kwargs)


def _cast_to_bfloat16(array: pa.Array) -> BFloat16Array:
    if not pa.types.is_floating(array.type):
        raise InvalidInputError(
            "only floating-point types can be cast to bfloat16", found=str(array.type)
        )
    floats = array.cast(pa.float32(), safe=False).fill_null(0).to_numpy(zero_copy_only=False)
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return _array_of_bits(_bits_of(np.ascontiguousarray(floats)), mask)
