"""Cache of decoded posting lists in shared arrays, which queries use without copying.

    data          blocks of fox | positions of fox | blocks of red | ...
    blocks        fox 0 1 2   red 3       with position, last document and maximum weight
    doc weights   fox                     for frequent tokens only

A search receives the whole arrays and the block ranges of its lists. Block maxima are computed
from the decoded blocks: they depend on the mean document length, and stored values may be wrong. If
the cache exceeds its limit, the whole arena is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices
from lancelet.index.folder import IndexLoads
from lancelet.index.inverted.bm25 import weights
from lancelet.index.inverted.tokens import Blocks, TokenList
from lancelet.index.kernels import PostingLists
from lancelet.index.kernels.postings import quantize_weights
from lancelet.io.fork import reset_after_fork
from lancelet.values import dataclass

Float32s = npt.NDArray[np.float32]
Key = tuple[int, bool]
"""A token and whether its positions are included."""
QueryKey = tuple[tuple[int, ...], bool]
"""The tokens of a query and whether their positions are included."""

_DESCRIPTOR_BYTES: Final = 1024
_DESCRIPTORS_MAX: Final = 1024
"""Number of queries whose posting list descriptors are cached."""

_DOC_WEIGHTS_SHARE: Final = 16
"""A token has document weights if at least one in this number of documents contains it."""


@dataclass(frozen=True, slots=True)
class _ListRange:
    """Block range of a posting list, its document count, and its document weights or -1."""

    first: int
    stop: int
    count: int
    weights_start: int


class ListArena:
    """The recently used posting lists of a partition. Thread-safe."""

    def __init__(self, *, block_docs: int, is_varint: bool) -> None:
        """Create an empty arena."""
        self._block_docs, self._is_varint = block_docs, is_varint
        self._lock = threading.Lock()
        reset_after_fork(self, ListArena._reset)
        self._norms: Float32s | None = None
        self._ranges: dict[Key, _ListRange] = {}
        self._arrays = _Arrays()
        self._descriptors: dict[QueryKey, PostingLists] = {}

    def lists(
        self,
        tokens: Sequence[int],
        norms: Float32s,
        read: Callable[[int, bool], TokenList],
        *,
        with_position: bool = False,
        loads: IndexLoads | None = None,
    ) -> PostingLists:
        """Return the posting lists of tokens, each with at least one document, for these norms.

        Missing lists are read by token and `with_position`. `loads` counts lists read and cache
        hits.
        """
        loads = IndexLoads() if loads is None else loads
        query_key = tuple(tokens), with_position
        with self._lock:
            descriptor = self._descriptors.get(query_key)
            if descriptor is not None and self._norms is norms:
                loads.count(cache_hits=len(set(tokens)))
                return descriptor
        keys = tuple([(token, with_position) for token in tokens])
        first: list[Key] | None = None
        while True:
            with self._lock:
                missing = self._missing(keys, norms)
                if first is None:
                    first = missing
                    loads.count(parts=len(missing))
                    loads.count(cache_hits=len(set(keys)) - len(missing))
                if not missing:
                    return self._describe(query_key, keys)
            lists = {key: read(*key) for key in missing}
            with self._lock:
                self._add(lists, norms)

    @property
    def memory_bytes(self) -> int:
        """Memory of the lists and of the cached query descriptors in bytes."""
        return self._arrays.num_bytes + _DESCRIPTOR_BYTES * len(self._descriptors)

    def contains(self, token: int, *, with_position: bool) -> bool:
        """Return whether the list of a token is cached."""
        return (token, with_position) in self._ranges

    def _missing(self, keys: Sequence[Key], norms: Float32s) -> list[Key]:
        """Return the lists to read; all of them if the norms changed."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._ranges]
        if self._norms is not norms:
            self._ranges, self._arrays, self._norms = {}, _Arrays(), norms
            self._descriptors = {}
            missing = list(dict.fromkeys(keys))
        return missing

    def _add(self, lists: Mapping[Key, TokenList], norms: Float32s) -> None:
        # If another thread has reset the arena for other norms, the caller retries.
        if self._norms is norms:
            # Cached descriptors remain valid but may reference arrays that were replaced.
            self._descriptors = {}
            for key, token_list in lists.items():
                if key not in self._ranges:
                    self._ranges[key] = self._arrays.add(token_list, norms)

    def _describe(self, query_key: QueryKey, keys: tuple[Key, ...]) -> PostingLists:
        arrays, ranges = self._arrays, [self._ranges[key] for key in keys]
        fields = np.array(
            [(own.first, own.stop, own.count, own.weights_start) for own in ranges]
        ).T.copy()
        if len(self._descriptors) >= _DESCRIPTORS_MAX:
            self._descriptors = {}
        descriptor = self._descriptors[query_key] = PostingLists(
            arrays.blocks,
            arrays.last_docs.values,
            arrays.block_max.values,
            fields[0],
            fields[1],
            fields[2],
            self._block_docs,
            self._is_varint,
            arrays.streams,
            arrays.doc_weights.values,
            fields[3],
        )
        return descriptor

    def _reset(self) -> None:
        self._lock = threading.Lock()


class _GrowingArray:
    """An array that grows by appending. Earlier views remain unchanged."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._buffer = np.empty(16, kind)
        self.values: npt.NDArray[Any] = self._buffer[:0]

    @property
    def num_bytes(self) -> int:
        """Allocated memory in bytes."""
        return self._buffer.nbytes

    def add(self, values: npt.NDArray[Any]) -> int:
        """Append values and return the index of the first."""
        start, stop = len(self.values), len(self.values) + len(values)
        if stop > len(self._buffer):
            grown = np.empty(max(stop, 2 * len(self._buffer)), self._buffer.dtype)
            grown[:start] = self.values
            self._buffer = grown
        self._buffer[start:stop] = values
        self.values = self._buffer[:stop]
        return start


class _Arrays:
    """The arrays of all posting lists."""

    def __init__(self) -> None:
        self._data, self.doc_weights = _GrowingArray(np.uint8), _GrowingArray(np.uint8)
        self.last_docs, self.block_max = _GrowingArray(np.uint32), _GrowingArray(np.float32)
        self._blocks = _GrowingArray(np.int64), _GrowingArray(np.int64)
        self._streams = _GrowingArray(np.int64), _GrowingArray(np.int64)
        self._join()

    @property
    def num_bytes(self) -> int:
        """Approximate memory in bytes."""
        growing = (
            self._data,
            self.doc_weights,
            self.last_docs,
            self.block_max,
            *self._blocks,
            *self._streams,
        )
        return sum(each.num_bytes for each in growing)

    def add(self, token_list: TokenList, norms: Float32s) -> _ListRange:
        """Append a posting list and return its block range."""
        docs, freqs = token_list.decode(len(norms))
        sizes = token_list.sizes
        starts = np.cumsum(sizes) - sizes
        exact = weights(freqs, norms[docs])
        first = self.last_docs.add(docs[starts + sizes - 1])
        self.block_max.add(np.maximum.reduceat(exact, starts))
        self._add_strings(self._blocks, token_list.blocks)
        self._add_strings(self._streams, token_list.streams or Blocks.empty(len(sizes)))
        weights_start = -1
        if token_list.count * _DOC_WEIGHTS_SHARE >= len(norms):
            weights_start = self.doc_weights.add(quantize_weights(len(norms), docs, exact))
        self._join()
        return _ListRange(first, first + len(sizes), token_list.count, weights_start)

    def _add_strings(self, slices: tuple[_GrowingArray, _GrowingArray], strings: Blocks) -> None:
        sizes = np.diff(strings.ends, prepend=0)
        slices[0].add(self._data.add(strings.data) + strings.ends - sizes)
        slices[1].add(sizes)

    def _join(self) -> None:
        data = self._data.values
        self.blocks = ByteSlices(data, self._blocks[0].values, self._blocks[1].values)
        self.streams = ByteSlices(data, self._streams[0].values, self._streams[1].values)
