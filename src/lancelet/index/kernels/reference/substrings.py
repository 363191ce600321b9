"""Substring search: suffix arrays, and an FM-index in a wavelet tree.

    banana$    suffixes in order: $ a$ ana$ anana$ banana$ na$ nana$     at 6 5 3 1 0 4 2
               preceding bytes: a n n b $ a a                             stored in the tree
    an         prefix of rows 2 to 4, at 3 and 1

Row r represents a suffix. Its preceding byte, and the rank of that byte among the rows above, yield
the row of the suffix that is longer by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.index.kernels.substrings import (
    NODES_MAX,
    STEPS_PER_ROW,
    Int32s,
    UInt32s,
    UInt64s,
    WaveletTree,
)
from lancelet.kernels.faults import Fault, corrupt

_ORDERED_MAX = (1 << 31) - 2
_NODE_WORDS_MAX = 1 << 25
_SET_BITS = (
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.int64)
)


def order_suffixes(text: Bytes) -> Int32s:
    """Return the suffix array of a text, whose last byte must be its only 0."""
    kernel = "order_suffixes"
    count = len(text)
    if not 1 <= count <= _ORDERED_MAX:
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=0)
    wrong = (text == 0) != (np.arange(count) == count - 1)
    if wrong.any():
        raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=int(wrong.argmax()))
    ranks, compared = text.astype(np.int64), 1
    while True:
        # Prefix doubling: combine the ranks by `compared` bytes of two adjacent prefixes.
        following = np.zeros(count, np.int64)
        following[:-compared] = ranks[compared:] + 1
        keys = ranks * (count + 256) + following
        order = np.argsort(keys, kind="stable")
        sorted_keys = keys[order]
        ranks[order] = np.cumsum(np.append(False, sorted_keys[1:] != sorted_keys[:-1]))
        compared *= 2
        if compared >= count or ranks[order[-1]] == count - 1:
            return order.astype(np.int32)


def rank_bits(bit_words: UInt64s, starts: Int64s) -> UInt32s:
    """Return the number of set bits before each word of each node, and in the whole node."""
    kernel = "rank_bits"
    own = _SET_BITS[bit_words.view(np.uint8).reshape(-1, 8)].sum(axis=1)
    parts = []
    for node, (first, end) in enumerate(
        zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    ):
        if not 0 <= first <= end <= len(bit_words):
            raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=node)
        if end - first > _NODE_WORDS_MAX:
            raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=node)
        parts.append(np.append(0, np.cumsum(own[first:end])))
    if sum(map(len, parts)) != len(bit_words) + len(starts) - 1:
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=0)
    return np.concatenate([np.empty(0, np.uint32), *parts]).astype(np.uint32)


def find_suffixes(tree: WaveletTree, pattern: bytes) -> tuple[int, int]:
    """Return the row range of the suffixes that start with a pattern."""
    kernel = "find_suffixes"
    parents, leaves = _links(tree, kernel)
    low, high = 0, tree.length
    for symbol in reversed(pattern):
        if low >= high:
            break
        if symbol not in leaves:
            return 0, 0
        path = [leaves[symbol]]
        while path[-1][0]:
            path.append(parents[path[-1][0]])
        for node, side in reversed(path):
            if high > tree.bits[node]:
                raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=node)
            positions = np.array([low, high])
            ones = _ones(tree, np.full(2, node), positions)
            low, high = (ones if side else positions - ones).tolist()
        low, high = low + int(tree.counts[symbol]), high + int(tree.counts[symbol])
        if high > tree.length:
            raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=symbol)
    return low, max(low, high)


def locate_suffixes(
    tree: WaveletTree, samples: UInt64s, rate: int, first: int, count: int
) -> Int64s:
    """Return the text positions of suffix rows, from samples of every `rate`-th row."""
    kernel = "locate_suffixes"
    _links(tree, kernel)
    if rate < 1 or not 0 <= first <= tree.length - count:
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=first)
    if len(samples) < -(-tree.length // rate):
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=len(samples))
    rows = np.arange(first, first + count, dtype=np.int64)
    steps = np.zeros(count, np.int64)
    # A corrupt tree may have cycles without samples.
    steps_left = tree.length + count * min(rate, tree.length) * STEPS_PER_ROW
    while len(pending := np.flatnonzero(rows % rate)):
        steps_left -= len(pending)
        if steps_left < 0:
            raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=int(pending[0]))
        rows[pending], _ = _step(tree, rows[pending], kernel)
        steps[pending] += 1
    found = samples[rows // rate]
    if len(found) and int(found.max()) >= tree.length:
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=int(found.argmax()))
    return (found.astype(np.int64) + steps) % max(tree.length, 1)


def unwind_text(tree: WaveletTree) -> Bytes:
    """Reconstruct the text."""
    kernel = "unwind_text"
    _links(tree, kernel)
    text = np.zeros(tree.length, np.uint8)
    row = np.zeros(1, np.int64)
    # The first row is the terminator; each step yields the preceding byte.
    for position in range(tree.length - 2, -1, -1):
        row, text[position : position + 1] = _step(tree, row, kernel)
    return text


_Links = tuple[list[tuple[int, int]], dict[int, tuple[int, int]]]


def _links(tree: WaveletTree, kernel: str) -> _Links:
    """Return the parent and child number of each node and byte; raise unless the tree is valid."""
    nodes, counts = len(tree.bits), tree.counts
    if (
        nodes > NODES_MAX
        or len(tree.starts) != nodes + 1
        or len(tree.children) != 2 * nodes
        or len(counts) != 257
        or len(tree.ranks) != len(tree.bit_words) + nodes
        or tree.starts[0] != 0
        or tree.starts[-1] != len(tree.bit_words)
        or counts[0] != 0
        or np.any(np.diff(counts) < 0)
    ):
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=nodes)
    if tree.length != (tree.bits[0] if nodes else 0):
        raise corrupt(Fault.BAD_LENGTH, kernel=kernel, index=0)
    sizes = np.diff(tree.starts)
    if np.any(sizes < 0) or np.any(tree.bits < 0) or np.any(tree.bits > 64 * sizes):
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=0)
    parents: list[tuple[int, int] | None] = [None] * nodes
    leaves: dict[int, tuple[int, int]] = {}
    for position, child in enumerate(tree.children.tolist()):
        node, side = divmod(position, 2)
        is_orphan = node > 0 and parents[node] is None
        if child >= 0:
            is_duplicate = not node < child < nodes or parents[child] is not None
        else:
            is_duplicate = not child >= -256 or -1 - child in leaves
        if is_orphan or is_duplicate:
            raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=node)
        if child >= 0:
            parents[child] = node, side
        else:
            leaves[-1 - child] = node, side
    return [each or (0, 0) for each in parents], leaves


def _ones(tree: WaveletTree, nodes: Int64s, positions: Int64s) -> Int64s:
    """Return the number of set bits of nodes before positions."""
    word_indices = tree.starts[nodes] + positions // 64
    found: Int64s = tree.ranks[word_indices + nodes].astype(np.int64)
    inside = positions % 64 > 0
    masks = (np.uint64(1) << (positions[inside] % 64).astype(np.uint64)) - np.uint64(1)
    parts = np.ascontiguousarray(tree.bit_words[word_indices[inside]] & masks)
    found[inside] += _SET_BITS[parts.view(np.uint8).reshape(-1, 8)].sum(axis=1)
    return found


def _step(tree: WaveletTree, rows: Int64s, kernel: str) -> tuple[Int64s, Bytes]:
    """Return the rows of the suffixes longer by one byte, and these bytes."""
    positions, nodes = rows.copy(), np.zeros(len(rows), np.int64)
    going = np.arange(len(rows))
    while len(going):
        node, position = nodes[going], positions[going]
        outside = position >= tree.bits[node]
        if outside.any():
            raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=int(going[outside.argmax()]))
        word = tree.bit_words[tree.starts[node] + position // 64]
        is_second = (word >> (position % 64).astype(np.uint64) & np.uint64(1)).astype(np.int64)
        ones = _ones(tree, node, position)
        positions[going] = np.where(is_second == 1, ones, position - ones)
        nodes[going] = tree.children[2 * node + is_second]
        going = going[nodes[going] >= 0]
    symbols: npt.NDArray[np.uint8] = (-1 - nodes).astype(np.uint8)
    found: Int64s = tree.counts[symbols] + positions
    if np.any(found >= tree.length):
        raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=int(found.argmax()))
    return found, symbols
