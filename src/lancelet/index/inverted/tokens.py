"""The tokens of a partition: a sorted column, or an automaton.

_token      apple  pear  plum
_token_id   4      0     2        the row of the token in the file of postings
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import CorruptDataError
from lancelet.index.inverted.automaton import TokenAutomaton
from lancelet.values import cached_property

_TOKENS_KNOWN: Final = 4096
"""Where so many tokens are is remembered."""
_TOKENS_TOGETHER: Final = 1024
"""So many tokens are turned into text at a time."""


class TokenSet(Protocol):
    """Tokens by number and numbers by token."""

    def find(self, token: str) -> int | None:
        """Return the number of a token, or None."""

    def starting_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the tokens with a beginning, in order, and their numbers."""


class SortedTokens:
    """Tokens in order, searched by halves."""

    def __init__(self, tokens: pa.Array, ids: npt.NDArray[np.integer]) -> None:
        """Search a column of tokens whose bytes ascend."""
        self._tokens = tokens.cast(pa.large_string())
        self._ids = ids
        self._known = lru_cache(maxsize=_TOKENS_KNOWN)(self._find)

    def find(self, token: str) -> int | None:
        """Return the number of a token, or None."""
        return self._known(token)

    def _find(self, token: str) -> int | None:
        wanted = token.encode()
        place = self._place(wanted)
        if place < len(self._tokens) and self._at(place) == wanted:
            return int(self._ids[place])
        return None

    def starting_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the tokens with a beginning, in order, and their numbers."""
        for start in range(self._place(prefix.encode()), len(self._tokens), _TOKENS_TOGETHER):
            own = slice(start, start + _TOKENS_TOGETHER)
            pairs = zip(self._tokens[own].to_pylist(), self._ids[own].tolist(), strict=True)
            for token, number in pairs:
                if not token.startswith(prefix):
                    return
                yield token, number

    def _at(self, place: int) -> bytes:
        found: bytes = self._tokens[place].as_buffer().to_pybytes()
        return found

    def _place(self, wanted: bytes) -> int:
        low, high = 0, len(self._tokens)
        while low < high:
            middle = (low + high) // 2
            if self._at(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low


class AutomatonTokens:
    """Tokens of an automaton, which is walked for one token and read as a whole for more."""

    def __init__(self, automaton: TokenAutomaton, count: int) -> None:
        """Walk an automaton of so many tokens."""
        self._automaton, self._count = automaton, count
        self._sorted_bytes = 0
        self._known = lru_cache(maxsize=_TOKENS_KNOWN)(self._find)

    def find(self, token: str) -> int | None:
        """Return the number of a token, or None."""
        return self._known(token)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, more when it was read as a whole."""
        return self._automaton.memory_bytes + self._sorted_bytes

    def starting_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield the tokens with a beginning, in order, and their numbers."""
        return self._sorted.starting_with(prefix)

    def _find(self, token: str) -> int | None:
        return self._automaton.find(token.encode())

    @cached_property
    def _sorted(self) -> SortedTokens:
        text, ends, numbers = self._automaton.everything(self._count)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        tokens = pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
        try:
            tokens.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptDataError("a token set has tokens that are no text") from error
        self._sorted_bytes = tokens.nbytes + numbers.nbytes
        return SortedTokens(tokens, numbers)


def all_tokens(tokens: TokenSet, count: int) -> list[str]:
    """Return every token by its number; each number must have one."""
    found: list[str | None] = [None] * count
    for token, number in tokens.starting_with(""):
        if number >= count or found[number] is not None:
            raise CorruptDataError("a token set has a wrong number", number=number, tokens=count)
        found[number] = token
    named = [token for token in found if token is not None]
    if len(named) != count:
        raise CorruptDataError("a token set lacks tokens", tokens=count, found=len(named))
    return named
