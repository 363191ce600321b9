"""Tensors in index files: an element type, a shape and little-endian bytes.

For example:

    float32, shape [2, 3], 24 bytes     the centroids of two partitions of three dimensions
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import CorruptDataError, InternalError
from lancelet.format.protos import index_pb

_BF16: Final = 0
_TYPES: Final = {1: "<f2", 2: "<f4", 3: "<f8", 4: "u1", 5: "<u2", 6: "<u4", 7: "<u8"}
_NUMBERS: Final = {np.dtype(name): number for number, name in _TYPES.items()}


def parse_tensor(tensor: index_pb.Tensor) -> npt.NDArray[Any]:
    """Convert a protobuf tensor to an array; bfloat16 becomes float32."""
    number, shape = int(tensor.data_type), tuple(int(size) for size in tensor.shape)
    dtype = np.dtype("<u2" if number == _BF16 else _TYPES.get(number, "u1"))
    if len(tensor.data) != math.prod(shape) * dtype.itemsize:
        raise CorruptDataError(
            "the size of a tensor does not match its shape",
            shape=list(shape),
            data_type=number,
            tensor_bytes=len(tensor.data),
        )
    array = np.frombuffer(tensor.data, dtype).reshape(shape)
    if number == _BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def render_tensor(array: npt.NDArray[Any]) -> index_pb.Tensor:
    """Convert an array to a protobuf tensor.

    >>> render_tensor(np.zeros((2, 3), np.float32)).shape
    [2, 3]
    """
    number = _NUMBERS.get(array.dtype)
    if number is None:
        raise InternalError("unsupported tensor element type", found=str(array.dtype))
    return index_pb.Tensor(
        data_type=index_pb.Tensor.DataType.Name(number),
        shape=list(array.shape),
        data=np.ascontiguousarray(array).tobytes(),
    )
