"""What codecs expect of what they are given, with the words for when it is not so.

`check_` and `expect_..._rows` judge bytes from storage; the other `expect_` judge what a caller
hands to an encoder.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.errors import CorruptDataError, UnsupportedError

VIRTUAL_BYTES_MAX = 1 << 28
"""The most bytes of values that are believed without a byte in storage that says so."""

EXPANSION_MAX = 1024
"""Of how many times their bytes in storage more values than that are believed."""


def expect_fixed_width(block: Block, codec: str) -> FixedWidth:
    """Return a block that a codec for fixed-width values was given, or say that it was not."""
    if not isinstance(block, FixedWidth):
        raise UnsupportedError(
            f"the codec {codec} stores values of fixed width only", found=type(block).__name__
        )
    return block


def expect_variable(block: Block, codec: str) -> Variable:
    """Return a block that a codec for byte strings was given, or say that it was not."""
    if not isinstance(block, Variable):
        raise UnsupportedError(
            f"the codec {codec} stores byte strings only", found=type(block).__name__
        )
    return block


def expect_fixed_rows(rows: Block, bits: int, codec: str) -> FixedWidth:
    """Return rows from storage, whose width must be the one that the encoding gives."""
    if not isinstance(rows, FixedWidth) or rows.bits != bits:
        raise CorruptDataError(
            "the rows of the page do not have the width that its encoding gives",
            codec=codec,
            expected_bits=bits,
            found=rows.bits if isinstance(rows, FixedWidth) else "variable",
        )
    return rows


def expect_variable_rows(rows: Block, codec: str) -> Variable:
    """Return rows from storage, which must be byte strings."""
    if not isinstance(rows, Variable):
        raise CorruptDataError(
            "the page has rows of fixed width where its encoding needs byte strings", codec=codec
        )
    return rows


def check_sizes(slices: Slices, expected: Int64s, *, codec: str) -> None:
    """Raise unless every slice has just the bytes that its count of values needs."""
    wrong = np.flatnonzero(slices.size != expected)
    if len(wrong):
        chunk = int(wrong[0])
        raise CorruptDataError(
            "a buffer does not have the bytes that its values need",
            codec=codec,
            chunk=chunk,
            expected_bytes=int(expected[chunk]),
            found_bytes=int(slices.size[chunk]),
        )


def check_counts(counts: Int64s, *, most: int, codec: str) -> None:
    """Raise if a buffer claims more values than its codec puts into one."""
    if len(counts) and int(counts.max()) > most:
        raise CorruptDataError(
            "a buffer claims more values than its codec puts into one",
            codec=codec,
            found=int(counts.max()),
            most=most,
        )


def check_virtual(counts: Int64s, *, value_bytes: int, codec: str) -> None:
    """Bound values that take no bytes in storage, since their number cannot be checked."""
    check_expansion(counts, value_bytes=value_bytes, stored_bytes=0, codec=codec)


def check_expansion(counts: Int64s, *, value_bytes: int, stored_bytes: int, codec: str) -> None:
    """Bound values of which a few bytes in storage may claim any number."""
    needed = int(counts.sum()) * value_bytes
    if needed > max(VIRTUAL_BYTES_MAX, EXPANSION_MAX * stored_bytes):
        raise CorruptDataError(
            "a page claims more values than it can have rows",
            codec=codec,
            found=int(counts.sum()),
            value_bytes=value_bytes,
            stored_bytes=stored_bytes,
        )
