"""Numbered faults of kernels, and their errors.

A native kernel returns a number. Negative numbers are faults and encode the index of the faulty
slice or value, so failures need no output argument:

    status = -(index * 16 + fault)          -(7 * 16 + 2) = -114: TOO_SHORT at slice 7

The NumPy implementations raise the same errors through `corrupt`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lancelet.errors import CorruptDataError, InternalError, LanceletError


class Fault(IntEnum):
    """Fault codes, equal to those in `native/src/kernel.hpp`."""

    OUT_OF_SOURCE = 1
    TOO_SHORT = 2
    BAD_WIDTH = 3
    BAD_COUNT = 4
    BAD_OFFSETS = 5
    TOO_LARGE = 6
    BAD_CODE = 7
    BAD_STREAM = 8
    BAD_INDEX = 9
    BAD_LENGTH = 10
    NO_MEMORY = 11
    OUTPUT_FULL = 12
    BAD_LEVELS = 13


_MESSAGES: Final = {
    Fault.OUT_OF_SOURCE: "a slice is outside of the bytes read",
    Fault.TOO_SHORT: "a slice is shorter than its content",
    Fault.BAD_WIDTH: "a bit width exceeds its word size",
    Fault.BAD_COUNT: "the number of values exceeds the capacity of the encoding",
    Fault.BAD_OFFSETS: "offsets decrease or exceed their buffer",
    Fault.TOO_LARGE: "the values do not fit 32-bit offsets; read 64-bit offsets or fewer rows",
    Fault.BAD_CODE: "a code is not in the symbol table, or an escape is truncated",
    Fault.BAD_STREAM: "a compressed stream is malformed",
    Fault.BAD_INDEX: "an index is out of range",
    Fault.BAD_LENGTH: "lengths do not add up to the number of values",
    Fault.NO_MEMORY: "memory allocation failed",
    Fault.OUTPUT_FULL: "the output buffer is too small",
    Fault.BAD_LEVELS: "levels continue a null, empty or missing list",
}


class OffsetOverflowError(LanceletError, OverflowError):
    """The values exceed 2 GiB, so they need 64-bit offsets or must be read in parts."""


def corrupt(fault: Fault, *, kernel: str, index: int) -> LanceletError:
    """Return the error for a fault; `index` is that of the slice, block or value."""
    if fault is Fault.TOO_LARGE:
        return OffsetOverflowError(_MESSAGES[fault], kernel=kernel, index=index)
    if fault in (Fault.NO_MEMORY, Fault.OUTPUT_FULL):
        return InternalError(_MESSAGES[fault], kernel=kernel, index=index)
    return CorruptDataError(_MESSAGES[fault], kernel=kernel, index=index)


def checked(status: int, *, kernel: str) -> int:
    """Return the result of a native kernel, or raise the error of its fault.

    >>> checked(12, kernel="unpack_chunks")
    12
    >>> checked(-114, kernel="unpack_chunks")
    Traceback (most recent call last):
    lancelet.errors.CorruptDataError: a slice is shorter than its content \
(kernel='unpack_chunks', index=7)
    """
    if status >= 0:
        return status
    index, fault = divmod(-status, 16)
    raise corrupt(Fault(fault), kernel=kernel, index=index)
