"""Persistent token ids: tokens are numbered from 0 in order of first occurrence.

    ids of  to be or to      0 1 2 0      tokens to be or
    ids of  be not           1 3          tokens to be or not

The table stores the bytes and hash of each token, and a hash table of at least twice the capacity.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s

UInt32s = npt.NDArray[np.uint32]
N = TypeVar("N", bound=np.generic)

_TOKENS_MIN: Final = 64
_TOKEN_BYTES: Final = 8
"""Estimated size of a token."""
NO_TOKEN: Final = 0xFFFFFFFF


class TokenTable:
    """A growing table of distinct tokens."""

    def __init__(self) -> None:
        """Create an empty table."""
        self.slots: UInt32s = np.full(2 * _TOKENS_MIN, NO_TOKEN, np.uint32)
        self.hashes = np.empty(_TOKENS_MIN, np.uint64)
        self.ends: Int64s = np.empty(_TOKENS_MIN, np.int64)
        self.text: Bytes = np.empty(_TOKENS_MIN * _TOKEN_BYTES, np.uint8)
        self.state: Int64s = np.zeros(2, np.int64)

    def __len__(self) -> int:
        """Return the number of tokens."""
        return int(self.state[0])

    def tokens(self, start: int) -> list[bytes]:
        """Return the tokens with ids from `start` on."""
        ends = self.ends[start : len(self)].tolist()
        first = int(self.ends[start - 1]) if start else 0
        text = self.text[first : int(self.state[1])].tobytes()
        starts = [first, *ends]
        return [text[a - first : b - first] for a, b in zip(starts, ends, strict=False)]

    def grow(self, size: int) -> bool:
        """Make room for a token of `size` bytes; return whether the hash table was reset."""
        used = int(self.state[1])
        if used + size > len(self.text):
            self.text = _grown(self.text, used, 2 * used + size)
        if len(self) < len(self.ends):
            return False
        count = 2 * len(self)
        self.hashes = _grown(self.hashes, len(self), count)
        self.ends = _grown(self.ends, len(self), count)
        self.slots = np.empty(2 * count, np.uint32)
        return True


def _grown(array: npt.NDArray[N], used: int, count: int) -> npt.NDArray[N]:
    grown = np.empty(count, array.dtype)
    grown[:used] = array[:used]
    return grown
