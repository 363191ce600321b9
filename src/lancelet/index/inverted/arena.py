"""Posting lists in memory: all in the same arrays, so that nothing is copied for a query.

    data       blocks of fox | positions of fox | blocks of red | ...
    blocks     fox 0 1 2   red 3       where each is, its last document, its best weight
    glances    fox                     of lists that many documents have

A search is given the whole arrays and the places of the lists it is about. What is best in a
block is worked out once by decoding it, and not read: it depends on how long documents are on
average, and what a file claims might be wrong. When the cache has no room for all, it is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Slices
from lancelet.index.folder import IndexLoads
from lancelet.index.inverted.bm25 import weights
from lancelet.index.inverted.tokens import Blocks, TokenList
from lancelet.io.fork import renew_after_fork
from lancelet.kernels import PostingLists
from lancelet.kernels.posting_lists import glance_of
from lancelet.values import dataclass

Float32s = npt.NDArray[np.float32]
Key = tuple[int, bool]
"""A token, and whether its positions are wanted."""
Chosen = tuple[tuple[int, ...], bool]
"""The same of the tokens of a query."""

_CHOSEN_BYTES: Final = 1024
_CHOSEN_MAX: Final = 1024
"""The lists of so many queries are put together once."""

_GLANCED_SHARE: Final = 16
"""A list has a glance if one in so many of all documents has its token."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a list is: its blocks, how many documents it has, and its glance or -1."""

    first: int
    stop: int
    count: int
    glance: int


class ListArena:
    """The lists of a partition that were asked for lately; for any number of threads."""

    def __init__(self, *, block_docs: int, is_varint: bool) -> None:
        """Hold nothing yet."""
        self._block_docs, self._is_varint = block_docs, is_varint
        self._lock = threading.Lock()
        renew_after_fork(self, ListArena._renew)
        self._norms: Float32s | None = None
        self._places: dict[Key, _Place] = {}
        self._held = _Arrays()
        self._chosen: dict[Chosen, PostingLists] = {}

    def lists(
        self,
        tokens: Sequence[int],
        norms: Float32s,
        read: Callable[[int, bool], TokenList],
        *,
        with_position: bool = False,
        loads: IndexLoads | None = None,
    ) -> PostingLists:
        """Return the lists of tokens, each of which has a document, weighed by these norms.

        Those that are missing are read, by token and whether positions are wanted; `loads` counts
        them, and those that were there.
        """
        loads = IndexLoads() if loads is None else loads
        wanted = tuple(tokens), with_position
        with self._lock:
            chosen = self._chosen.get(wanted)
            if chosen is not None and self._norms is norms:
                loads.count(found=len(set(tokens)))
                return chosen
        keys = tuple([(token, with_position) for token in tokens])
        first: list[Key] | None = None
        while True:
            with self._lock:
                missing = self._missing(keys, norms)
                if first is None:
                    first = missing
                    loads.count(parts=len(missing))
                    loads.count(found=len(set(keys)) - len(missing))
                if not missing:
                    return self._choose(wanted, keys)
            found = {key: read(*key) for key in missing}
            with self._lock:
                self._add(found, norms)

    @property
    def memory_bytes(self) -> int:
        """How much memory the lists take, with what was put together for queries."""
        return self._held.num_bytes + _CHOSEN_BYTES * len(self._chosen)

    def holds(self, token: int, *, with_position: bool) -> bool:
        """Return whether the list of a token is in memory."""
        return (token, with_position) in self._places

    def _missing(self, keys: Sequence[Key], norms: Float32s) -> list[Key]:
        """Return which lists have to be read; that is all of them where norms are others."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._places]
        if self._norms is not norms:
            self._places, self._held, self._norms = {}, _Arrays(), norms
            self._chosen = {}
            missing = list(dict.fromkeys(keys))
        return missing

    def _add(self, found: Mapping[Key, TokenList], norms: Float32s) -> None:
        # Another thread may have begun anew with other norms; then this one looks again.
        if self._norms is norms:
            # What was chosen before is right still, but may hold arrays that were outgrown.
            self._chosen = {}
            for key, own in found.items():
                if key not in self._places:
                    self._places[key] = self._held.add(own, norms)

    def _choose(self, wanted: Chosen, keys: tuple[Key, ...]) -> PostingLists:
        held, places = self._held, [self._places[key] for key in keys]
        chosen = np.array([(own.first, own.stop, own.count, own.glance) for own in places]).T.copy()
        if len(self._chosen) >= _CHOSEN_MAX:
            self._chosen = {}
        found = self._chosen[wanted] = PostingLists(
            held.blocks,
            held.last.whole,
            held.best.whole,
            chosen[0],
            chosen[1],
            chosen[2],
            self._block_docs,
            self._is_varint,
            held.streams,
            held.glances.whole,
            chosen[3],
        )
        return found

    def _renew(self) -> None:
        self._lock = threading.Lock()


class _Growing:
    """An array that grows at its end; what was returned of it before stays as it is."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._room = np.empty(16, kind)
        self.whole: npt.NDArray[Any] = self._room[:0]

    @property
    def num_bytes(self) -> int:
        """How much memory it takes, with the room to grow."""
        return self._room.nbytes

    def add(self, values: npt.NDArray[Any]) -> int:
        """Append values and return where the first of them is."""
        start, stop = len(self.whole), len(self.whole) + len(values)
        if stop > len(self._room):
            grown = np.empty(max(stop, 2 * len(self._room)), self._room.dtype)
            grown[:start] = self.whole
            self._room = grown
        self._room[start:stop] = values
        self.whole = self._room[:stop]
        return start


class _Arrays:
    """The arrays of all lists."""

    def __init__(self) -> None:
        self._data, self.glances = _Growing(np.uint8), _Growing(np.uint8)
        self.last, self.best = _Growing(np.uint32), _Growing(np.float32)
        self._blocks = _Growing(np.int64), _Growing(np.int64)
        self._streams = _Growing(np.int64), _Growing(np.int64)
        self._join()

    @property
    def num_bytes(self) -> int:
        """How much memory it takes, about."""
        growing = self._data, self.glances, self.last, self.best, *self._blocks, *self._streams
        return sum(each.num_bytes for each in growing)

    def add(self, own: TokenList, norms: Float32s) -> _Place:
        """Append a list and return its place."""
        docs, freqs = own.decode(len(norms))
        sizes = own.sizes
        starts = np.cumsum(sizes) - sizes
        weighed = weights(freqs, norms[docs])
        first = self.last.add(docs[starts + sizes - 1])
        self.best.add(np.maximum.reduceat(weighed, starts))
        self._add_strings(self._blocks, own.blocks)
        self._add_strings(self._streams, own.streams or Blocks.empty(len(sizes)))
        glance = -1
        if own.count * _GLANCED_SHARE >= len(norms):
            glance = self.glances.add(glance_of(len(norms), docs, weighed))
        self._join()
        return _Place(first, first + len(sizes), own.count, glance)

    def _add_strings(self, slices: tuple[_Growing, _Growing], strings: Blocks) -> None:
        sizes = np.diff(strings.ends, prepend=0)
        slices[0].add(self._data.add(strings.data) + strings.ends - sizes)
        slices[1].add(sizes)

    def _join(self) -> None:
        data = self._data.whole
        self.blocks = Slices(data, self._blocks[0].whole, self._blocks[1].whole)
        self.streams = Slices(data, self._streams[0].whole, self._streams[1].whole)
