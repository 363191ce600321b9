"""Finite-state transducers from keys to numbers, written from sorted keys and read as a whole.

    keys      "ax" 1, "b" 2     written from the leaves up, so the root is the last node
    nodes     x: final 1        a: one transition, to x       root: a, b: final 2

Keys share prefixes but not suffixes, because the number of a key is its final output. A node is
written when no later key can extend it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.kernels.fst import (
    COMMON,
    HEADER_BYTES,
    INDEXED_FROM,
    WORD_BYTES_MAX,
    read_node,
)
from lancelet.kernels.faults import Fault, corrupt

_COUNT_MAX: Final = 0x3F
_NUMBER_MASK: Final = (1 << 64) - 1
_CODES: Final = {symbol: code for code, symbol in enumerate(COMMON, 1)}


@dataclass(slots=True)
class _OpenNode:
    """An unwritten node: its transitions, and the number of a key that ends here."""

    number: int | None = None
    symbols: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)


def write_fst(offsets: Int64s, data: Bytes, numbers: Int64s) -> tuple[Bytes, int]:
    """Return the nodes of sorted keys, preceded by room for a header, and the root address.

    Keys must be unique.
    """
    if len(offsets) != len(numbers) + 1:
        raise corrupt(Fault.BAD_LENGTH, kernel="write_fst", index=0)
    out = bytearray(HEADER_BYTES)
    open_nodes = [_OpenNode()]
    before, source = b"", data.tobytes()
    for index, number in enumerate(numbers.tolist()):
        start, stop = int(offsets[index]), int(offsets[index + 1])
        if not 0 <= start <= stop <= len(source):
            raise corrupt(Fault.BAD_OFFSETS, kernel="write_fst", index=index)
        key = source[start:stop]
        if number < 0 or (index and key <= before):
            raise corrupt(Fault.BAD_INDEX, kernel="write_fst", index=index)
        shared = _shared(before, key)
        _close(out, open_nodes, before, shared)
        open_nodes += [_OpenNode() for _ in key[shared:]]
        open_nodes[-1].number = number
        before = key
    _close(out, open_nodes, before, 0)
    root = _write(out, open_nodes[0])
    return np.frombuffer(bytes(out), np.uint8), root


def read_fst(data: Bytes, root: int, max_count: int) -> tuple[Bytes, Int64s, Int64s]:
    """Return at most `max_count` keys: their bytes, the end of each, and their numbers."""
    source = data.tobytes()
    text = bytearray()
    ends: list[int] = []
    numbers: list[int] = []
    stack = [(b"", 0, root)]
    while stack:
        key, total, address = stack.pop()
        node = read_node(source, address)
        if node.is_final:
            if len(ends) == max_count:
                raise corrupt(Fault.BAD_COUNT, kernel="read_fst", index=max_count)
            text += key
            ends.append(len(text))
            # Numbers of corrupt data wrap around at 64 bits.
            numbers.append((total + node.final_output) & _NUMBER_MASK)
        elif not node.transitions and key:
            raise CorruptDataError("a path of a token set has no token", address=address)
        if node.transitions and len(key) == WORD_BYTES_MAX:
            raise corrupt(Fault.BAD_STREAM, kernel="read_fst", index=len(ends))
        for symbol, output, target in reversed(node.transitions):
            stack.append((key + bytes((symbol,)), total + output, target))
    found = np.array(numbers, np.uint64).view(np.int64)
    return np.frombuffer(bytes(text), np.uint8), np.array(ends, np.int64), found


def _shared(first: bytes, second: bytes) -> int:
    """Return the length of the common prefix."""
    max_count = min(len(first), len(second))
    if first[:max_count] == second[:max_count]:
        return max_count
    return next(at for at in range(max_count) if first[at] != second[at])


def _close(out: bytearray, open_nodes: list[_OpenNode], key: bytes, depth: int) -> None:
    """Write the nodes of a key below a depth, deepest first."""
    for at in range(len(key), depth, -1):
        target = _write(out, open_nodes.pop())
        open_nodes[-1].symbols.append(key[at - 1])
        open_nodes[-1].targets.append(target)


def _write(out: bytearray, node: _OpenNode) -> int:
    """Write a node and return the address of its last byte; 0 for a final node with number 0."""
    count, last = len(node.symbols), len(out) - 1
    if not count and node.number == 0:
        return 0
    if count == 1 and node.number is None and node.targets[0] == last and last >= HEADER_BYTES:
        code = _CODES.get(node.symbols[0], 0)
        if not code:
            out.append(node.symbols[0])
        out.append(0xC0 | code)
        return len(out) - 1
    start = len(out)
    number = node.number or 0
    deltas = [start - target if target else 0 for target in node.targets]
    target_bytes, number_bytes = _width(max(deltas, default=0)), _width(number)
    if count:
        target_bytes = max(target_bytes, 1)  # required by other readers
    out += number.to_bytes(number_bytes, "little")
    out += bytes(number_bytes * count)  # transitions have no outputs
    for delta in reversed(deltas):
        out += delta.to_bytes(target_bytes, "little")
    out += bytes(reversed(node.symbols))
    if count > INDEXED_FROM:
        index = bytearray(b"\xff" * 256)
        for rank, symbol in enumerate(node.symbols):
            index[symbol] = rank & 0xFF
        out += index
    out.append(target_bytes << 4 | number_bytes)
    state = 0x40 if node.number is not None else 0
    if 0 < count <= _COUNT_MAX:
        state |= count
    else:
        out.append(1 if count == 256 else count)
    out.append(state)
    return len(out) - 1


def _width(number: int) -> int:
    return -(-number.bit_length() // 8)
