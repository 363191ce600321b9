"""Memory maps by `native/src/baseline/map_file.cpp`; see `reference/map_file.py`."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels import _native


class _Map:
    """Owner of a map, which is unmapped with its last array."""

    __slots__ = ("__array_interface__", "_address", "_size")

    def __init__(self, address: int, size: int) -> None:
        self._address, self._size = address, size
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, True),
            "version": 3,
        }

    def release_pages(self) -> None:
        """Release the pages of this process; the system may ignore it."""
        _native.release_pages(self._address, self._size)

    def __del__(self, unmap: Callable[[int, int], int] = _native.unmap_file) -> None:
        unmap(self._address, self._size)


def map_file(handle: int, size: int) -> Bytes:
    """Map the first `size` bytes of an open file, which may be closed afterwards."""
    address = _native.map_file(handle, size)
    if address < 0:
        raise OSError(-address, os.strerror(-address))
    if not address:
        # Only platforms without native maps load the reference implementation.
        from lancelet.kernels.reference.map_file import (  # noqa: PLC0415 - imports all reference kernels
            map_file as map_by_python,
        )

        return map_by_python(handle, size)
    return np.asarray(_Map(address, size))


def release_pages(source: Bytes) -> None:
    """Release the memory of a map; pages are mapped again on access."""
    base: object = source.base
    if isinstance(base, _Map):
        base.release_pages()
    else:
        from lancelet.kernels.reference.map_file import (  # noqa: PLC0415 - see `map_file`
            release_pages as forget_by_python,
        )

        forget_by_python(source)
