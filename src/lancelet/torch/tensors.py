"""Conversion of Arrow columns to tensors, without a copy if the layout permits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.encodings.arrow import to_numpy
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.torch.required import require_torch

_BFLOAT16 = "lance.bfloat16"


def to_tensor(
    batch: pa.RecordBatch | Mapping[str, Any],
    *,
    uint64_as_int64: bool = True,
    hf_converter: Any = None,
    use_blob_api: bool = False,
    **_options: Any,
) -> Any:
    """Return a tensor per column by name, or the tensor of a single column.

    Args:
        batch: Rows, or columns by name.
        uint64_as_int64: Whether to convert uint64 to int64, as PyTorch lacks uint64 arithmetic.
        hf_converter: Converts non-numeric columns.
        use_blob_api: Whether columns may be lists of blobs, which are not supported.
        **_options: Ignored; used by other converters.
    """
    torch = require_torch()
    names = batch.schema.names if isinstance(batch, pa.RecordBatch) else list(batch)
    tensors = {}
    for name in names:
        if use_blob_api and isinstance(batch[name], list):
            raise UnsupportedError(
                "blobs cannot be converted to tensors; pass a `to_tensor_fn` that decodes them"
            )
        tensors[name] = _tensor(torch, name, batch[name], hf_converter)
        if uint64_as_int64 and tensors[name].dtype == torch.uint64:
            tensors[name] = tensors[name].to(torch.int64)
    return next(iter(tensors.values())) if len(tensors) == 1 else tensors


def to_tensors(rows: pa.Table, sizes: Sequence[int]) -> list[Any]:
    """Return the result of `to_tensor` for each batch, converting all batches together.

    Columns with nulls are converted separately for each batch, because nulls change the type.
    """
    columns = {name: _split(name, rows[name].combine_chunks(), sizes) for name in rows.schema.names}
    if len(columns) == 1:
        return list(next(iter(columns.values())))
    return [dict(zip(columns, batch, strict=True)) for batch in zip(*columns.values(), strict=True)]


def _split(name: str, array: pa.Array, sizes: Sequence[int]) -> Sequence[Any]:
    if not array.null_count:
        tensor: Sequence[Any] = to_tensor({name: array}).split(list(sizes))
        return tensor
    return [to_tensor({name: part}) for part in parts_of(array, sizes)]


def parts_of(values: Any, sizes: Sequence[int]) -> list[Any]:
    """Split Arrow data or a sequence into parts of the given sizes.

    >>> parts_of([1, 2, 3], [2, 1])
    [[1, 2], [3]]
    """
    ends = list(accumulate(sizes))
    if hasattr(values, "slice"):
        return [values.slice(end - size, size) for end, size in zip(ends, sizes, strict=True)]
    return [values[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _tensor(torch: Any, name: str, array: pa.Array, hf_converter: Any) -> Any:
    values, is_bfloat16 = numbers_of(array)
    if values is None:
        converted = None if hf_converter is None else hf_converter.to_pytorch(name, array)
        if converted is None:
            raise InvalidInputError(
                "only numbers and fixed-size lists of numbers can be converted to tensors",
                column=name,
                type=str(array.type),
            )
        return converted
    tensor = shared_tensor(values)
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


def shared_tensor(values: npt.NDArray[Any]) -> Any:
    """Return a tensor that shares the memory of an array; it must not be modified if read-only."""
    array = values if values.flags.writeable else np.asarray(_Shared(values))
    return require_torch().from_numpy(array)


class _Shared:
    """Presents a read-only array as writable, because PyTorch has no read-only tensors.

    PyTorch warns about read-only arrays, and warning filters are shared by all threads.
    """

    def __init__(self, values: npt.NDArray[Any]) -> None:
        interface = values.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}
        self._values = values  # owns the memory


def numbers_of(array: pa.Array) -> tuple[npt.NDArray[Any] | None, bool]:
    """Return numbers as a NumPy array, with a row per list, or None for other types.

    The second result is true for bfloat16, which is returned as int16.

    >>> numbers_of(pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2)))[0].shape
    (2, 2)
    """
    if isinstance(array.type, pa.FixedShapeTensorType):
        array = array.storage
    if pa.types.is_fixed_size_list(array.type):
        width = array.type.list_size
        items = array.values.slice(array.offset * width, len(array) * width)
        numbers, is_bfloat16 = numbers_of(items)
        return (None if numbers is None else numbers.reshape(len(array), width)), is_bfloat16
    if getattr(array.type, "extension_name", None) == _BFLOAT16:
        return _bfloat16_bits(array), True
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not is_number and not pa.types.is_boolean(array.type):
        return None, False
    if array.null_count:
        return array.to_numpy(zero_copy_only=False), False
    values = to_numpy(array)
    if is_number:
        values.flags.writeable = False  # shares the memory of the array
    return values, False


def _bfloat16_bits(array: pa.ExtensionArray) -> npt.NDArray[np.int16]:
    storage = array.storage
    bits = np.frombuffer(storage.buffers()[1] or b"", np.int16)
    bits = bits[storage.offset : storage.offset + len(storage)]
    if storage.null_count:
        bits = bits.copy()
        bits[storage.is_null().to_numpy(zero_copy_only=False)] = 0x7FC0  # NaN
    return bits
