"""Validation shared by the codecs.

`check_...` and `validate_...` validate stored bytes; `require_...` validate input of encoders.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.errors import CorruptDataError, UnsupportedError

VIRTUAL_BYTES_MAX = 1 << 28
"""Maximum size of values without any stored bytes."""

EXPANSION_MAX = 1024
"""Maximum expansion of stored bytes, for values above that size."""


def require_fixed_width(block: Block, codec: str) -> FixedWidth:
    """Return the block if it has fixed-width values, or raise."""
    if not isinstance(block, FixedWidth):
        raise UnsupportedError(
            f"the codec {codec} requires fixed-width values", found=type(block).__name__
        )
    return block


def require_variable(block: Block, codec: str) -> Variable:
    """Return the block; raise unless it contains byte strings."""
    if not isinstance(block, Variable):
        raise UnsupportedError(
            f"the codec {codec} requires byte strings", found=type(block).__name__
        )
    return block


def validate_fixed_rows(rows: Block, bits: int, codec: str) -> FixedWidth:
    """Return stored rows if they have the bit width of the encoding, or raise."""
    if not isinstance(rows, FixedWidth) or rows.bits != bits:
        raise CorruptDataError(
            "the row width of a page does not match its encoding",
            codec=codec,
            expected_bits=bits,
            found=rows.bits if isinstance(rows, FixedWidth) else "variable",
        )
    return rows


def validate_variable_rows(rows: Block, codec: str) -> Variable:
    """Return stored rows if they are byte strings, or raise."""
    if not isinstance(rows, Variable):
        raise CorruptDataError(
            "the page has fixed-width rows, but its encoding requires byte strings", codec=codec
        )
    return rows


def check_sizes(slices: ByteSlices, required_bytes: Int64s, *, codec: str) -> None:
    """Raise unless every slice has exactly the required bytes."""
    wrong = np.flatnonzero(slices.size != required_bytes)
    if len(wrong):
        chunk = int(wrong[0])
        raise CorruptDataError(
            "the size of a buffer does not match its values",
            codec=codec,
            chunk=chunk,
            expected_bytes=int(required_bytes[chunk]),
            found_bytes=int(slices.size[chunk]),
        )


def check_counts(counts: Int64s, *, count_max: int, codec: str) -> None:
    """Raise if a buffer claims more values than the codec supports."""
    if len(counts) and int(counts.max()) > count_max:
        raise CorruptDataError(
            "a buffer claims more values than its codec supports",
            codec=codec,
            found=int(counts.max()),
            max=count_max,
        )


def check_virtual(counts: Int64s, *, value_bytes: int, codec: str) -> None:
    """Limit values without stored bytes, since their number cannot be validated."""
    check_expansion(counts, value_bytes=value_bytes, stored_bytes=0, codec=codec)


def check_expansion(counts: Int64s, *, value_bytes: int, stored_bytes: int, codec: str) -> None:
    """Limit the expansion of values whose number the stored bytes do not determine."""
    needed = int(counts.sum()) * value_bytes
    if needed > max(VIRTUAL_BYTES_MAX, EXPANSION_MAX * stored_bytes):
        raise CorruptDataError(
            "a page claims more values than it can have rows",
            codec=codec,
            found=int(counts.sum()),
            value_bytes=value_bytes,
            stored_bytes=stored_bytes,
        )
