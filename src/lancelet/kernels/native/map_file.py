"""Mapping by `native/src/baseline/map_file.cpp`; `reference/map_file.py` defines it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from lancelet.buffers import Bytes, Slices
from lancelet.kernels import _native
from lancelet.kernels.arguments import slice_arrays
from lancelet.kernels.faults import checked


class _Map:
    """What an array over mapped bytes holds on to; the map goes when the last array does."""

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
        """Take the pages out of this process; nothing depends on whether the system does so."""
        _native.release_pages(self._address, self._size)

    def __del__(self, unmap: Callable[[int, int], int] = _native.unmap_file) -> None:
        unmap(self._address, self._size)


def map_file(handle: int, size: int) -> Bytes:
    """Return the first `size` bytes of an open file, without keeping it open."""
    address = _native.map_file(handle, size)
    if address < 0:
        raise OSError(-address, os.strerror(-address))
    if not address:
        # A system whose maps are Python's business; elsewhere the definitions are not loaded.
        from lancelet.kernels.reference.map_file import (  # noqa: PLC0415 - with it come all others
            map_file as map_by_python,
        )

        return map_by_python(handle, size)
    return np.asarray(_Map(address, size))


def release_pages(source: Bytes) -> None:
    """Take the pages of a map out of this process; they come back when they are looked at."""
    base: object = source.base
    if isinstance(base, _Map):
        base.release_pages()
    else:
        from lancelet.kernels.reference.map_file import (  # noqa: PLC0415 - see `map_file`
            release_pages as forget_by_python,
        )

        forget_by_python(source)


def read_ahead(slices: Slices, prefetched: Bytes) -> int:
    """Ask the system to read what the slices cover and is not `prefetched`; return how often."""
    return checked(_native.read_ahead(*slice_arrays(slices), prefetched), kernel="read_ahead")
