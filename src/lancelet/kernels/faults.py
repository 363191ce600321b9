"""Why a kernel refuses its input: one numbered fault each, with the words for it.

A native kernel returns a number. Zero or more is a result; less than zero is a fault and the
place where it was met, packed into one number so that a failure costs no output argument:

    status = -(place * 16 + fault)          -(7 * 16 + 2) = -114: TOO_SHORT at slice 7

The NumPy definitions raise the same errors through `corrupt`, so a caller cannot tell which
implementation it has.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from lancelet.errors import CorruptDataError, InternalError, LanceletError


class Fault(IntEnum):
    """The faults of `native/src/kernel.hpp`, under the same numbers."""

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


_WORDS: Final = {
    Fault.OUT_OF_SOURCE: "a slice lies outside of the bytes that were read",
    Fault.TOO_SHORT: "a slice is shorter than what it claims to hold",
    Fault.BAD_WIDTH: "a bit width exceeds the width of its word",
    Fault.BAD_COUNT: "more values are claimed than the encoding can hold",
    Fault.BAD_OFFSETS: "offsets go backwards or leave their buffer",
    Fault.TOO_LARGE: "the values do not fit 32-bit offsets; ask for 64-bit ones or for fewer rows",
    Fault.BAD_CODE: "a code is not in the symbol table, or an escape is cut short",
    Fault.BAD_STREAM: "a compressed stream is malformed",
    Fault.BAD_INDEX: "an index is outside of what it points into",
    Fault.BAD_LENGTH: "lengths do not add up to the number of values",
    Fault.NO_MEMORY: "scratch memory was refused",
    Fault.OUTPUT_FULL: "the output is too small for the values",
    Fault.BAD_LEVELS: "levels continue a list that is null or empty, or that never began",
}


class OffsetOverflowError(LanceletError, OverflowError):
    """The values exceed 2 GiB, so they need 64-bit offsets or have to be read in parts."""


def corrupt(fault: Fault, *, kernel: str, index: int) -> LanceletError:
    """Return the error for a fault; `index` is the index of the slice, block or value."""
    if fault is Fault.TOO_LARGE:
        return OffsetOverflowError(_WORDS[fault], kernel=kernel, index=index)
    if fault in (Fault.NO_MEMORY, Fault.OUTPUT_FULL):
        return InternalError(_WORDS[fault], kernel=kernel, index=index)
    return CorruptDataError(_WORDS[fault], kernel=kernel, index=index)


def checked(status: int, *, kernel: str) -> int:
    """Return the result of a native kernel, or raise the fault that it reports.

    >>> checked(12, kernel="unpack_chunks")
    12
    >>> checked(-114, kernel="unpack_chunks")
    Traceback (most recent call last):
    lancelet.errors.CorruptDataError: a slice is shorter than what it claims to hold \
(kernel='unpack_chunks', index=7)
    """
    if status >= 0:
        return status
    index, fault = divmod(-status, 16)
    raise corrupt(Fault(fault), kernel=kernel, index=index)
