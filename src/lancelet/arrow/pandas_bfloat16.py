"""A pandas extension array of bfloat16, backed by an Arrow array.

The module is imported on first conversion to pandas, because pandas is optional.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pandas.api.extensions import (
    ExtensionArray,
    ExtensionDtype,
    register_extension_dtype,
)

from lancelet.arrow.bfloat16 import BFloat16, BFloat16Array, BFloat16Type, bfloat16_array
from lancelet.errors import InvalidInputError

_NAME = "lance.bfloat16"


class IndexRangeError(InvalidInputError, IndexError):
    """An index is out of range."""


class DtypeNameError(InvalidInputError, TypeError):
    """The name of another dtype; pandas tries all registered dtypes."""


@register_extension_dtype
class PandasBFloat16Type(ExtensionDtype):  # type: ignore[misc]  # pandas is untyped
    """The dtype of bfloat16 columns in pandas."""

    kind = "f"
    na_value = None
    name = _NAME
    _is_numeric = True

    @property
    def type(self) -> builtins.type[BFloat16]:
        """The scalar type."""
        return BFloat16

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> PandasBFloat16Array:
        return PandasBFloat16Array(array)

    @classmethod
    def construct_array_type(cls) -> builtins.type[PandasBFloat16Array]:
        """Return the array class of the dtype."""
        return PandasBFloat16Array

    @classmethod
    def construct_from_string(cls, string: str) -> Self:
        """Return the dtype, or raise if the name differs."""
        if string != _NAME:
            raise DtypeNameError("unknown dtype name", name=string, expected=_NAME)
        return cls()


class PandasBFloat16Array(ExtensionArray):  # type: ignore[misc]  # pandas is untyped
    """An array of bfloat16 numbers in pandas."""

    dtype: ClassVar[PandasBFloat16Type] = PandasBFloat16Type()

    def __init__(self, data: pa.Array | pa.ChunkedArray) -> None:
        """Wrap an Arrow array."""
        if isinstance(data, pa.ChunkedArray):
            storage = [chunk.storage for chunk in data.chunks]
            whole = pa.concat_arrays(storage) if storage else pa.array([], pa.binary(2))
            data = pa.ExtensionArray.from_storage(BFloat16Type(), whole)
        self.data: BFloat16Array = data

    @classmethod
    def _from_sequence(
        cls, scalars: Iterable[Any], *, dtype: Any = None, copy: bool = False
    ) -> PandasBFloat16Array:
        del dtype, copy
        return cls(bfloat16_array(scalars))

    @classmethod
    def _concat_same_type(cls, to_concat: Sequence[PandasBFloat16Array]) -> PandasBFloat16Array:
        return cls(pa.chunked_array([each.data for each in to_concat], BFloat16Type()))

    @classmethod
    def from_numpy(cls, array: npt.NDArray[Any]) -> PandasBFloat16Array:
        """Create an array from a NumPy array with the dtype of `ml_dtypes`."""
        return cls(BFloat16Array.from_numpy(array))

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, int | np.integer):
            return self.data[int(item)].as_py()
        if isinstance(item, slice):
            return self._at(np.arange(len(self))[item])
        chosen = np.asarray(item)
        return self._at(np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen)

    def _at(self, indices: npt.NDArray[Any]) -> PandasBFloat16Array:
        taken = self.data.storage.take(pa.array(indices, pa.int64()))
        return PandasBFloat16Array(pa.ExtensionArray.from_storage(BFloat16Type(), taken))

    def take(
        self, indices: Sequence[int], *, allow_fill: bool = False, fill_value: Any = None
    ) -> PandasBFloat16Array:
        """Return the values at indices, with nulls at -1 if `allow_fill` is set."""
        positions = np.asarray(indices, np.int64)
        out_of_range = (positions < -1 if allow_fill else positions < -len(self)) | (
            positions >= len(self)
        )
        if out_of_range.any():
            raise IndexRangeError("an index is out of range", index=int(positions[out_of_range][0]))
        if not allow_fill:
            return self._at(np.where(positions < 0, positions + len(self), positions))
        if fill_value is None or fill_value is self.dtype.na_value:
            taken = self.data.storage.take(pa.array(positions, pa.int64(), mask=positions < 0))
            return PandasBFloat16Array(pa.ExtensionArray.from_storage(BFloat16Type(), taken))
        values = self.data.to_pylist()
        return self._from_sequence(
            fill_value if index < 0 else values[index] for index in positions.tolist()
        )

    def copy(self) -> PandasBFloat16Array:
        """Return an array that shares the immutable data."""
        return PandasBFloat16Array(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __eq__(self, other: object) -> Any:
        return np.array([mine == theirs for mine, theirs in zip(self, other, strict=True)])  # type: ignore[call-overload]  # pandas passes arrays

    __hash__ = None  # type: ignore[assignment]  # pandas arrays are not hashable

    @property
    def nbytes(self) -> int:
        """The size of the data in bytes."""
        return int(self.data.nbytes)

    def isna(self) -> npt.NDArray[np.bool_]:
        """Return a mask of missing values."""
        missing: npt.NDArray[np.bool_] = self.data.is_null().to_numpy(zero_copy_only=False)
        return missing

    def to_numpy(self, *args: Any, **kwargs: Any) -> npt.NDArray[Any]:
        """Return a NumPy array with the dtype of `ml_dtypes`."""
        del args, kwargs
        return self.data.to_numpy()

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:  # noqa: A002 - Arrow's name
        del type
        return self.data
