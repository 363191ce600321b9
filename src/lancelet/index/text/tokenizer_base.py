"""Types and functions shared by the tokenizers.

A tokenizer takes an array of texts and returns its raw tokens, the position of each, and the number
of tokens per text. Raw tokens are slices of the text buffer where possible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels import find_tokens

UInt32s = npt.NDArray[np.uint32]
RawTokens: TypeAlias = tuple[ByteSlices, UInt32s, Int64s]
Tokenizer: TypeAlias = Callable[[pa.Array], RawTokens]


def text_buffers(texts: pa.Array) -> tuple[Int64s, Bytes]:
    """Return the offsets and bytes of texts. Nulls become empty texts."""
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    if offsets is None:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    source = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends, source


def tokenize_by_characters(members: Bytes, texts: pa.Array) -> RawTokens:
    """Return the maximal runs of the characters set in the bitmap `members`."""
    offsets, data = text_buffers(texts)
    raw_tokens, counts = find_tokens(offsets, data, members)
    return raw_tokens, positions_in_groups(counts), counts


def positions_in_groups(counts: Int64s) -> UInt32s:
    """Return 0, 1, 2, ... for each group of these sizes.

    >>> positions_in_groups(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return (np.arange(total) - np.repeat(ends - counts, counts)).astype(np.uint32)
