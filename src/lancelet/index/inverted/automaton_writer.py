"""Writing token sets as the reference does, for segments beside those that it wrote.

    tokens   "ax" 1, "b" 2      written from the leaves up, so that the root is the last node
    nodes    x: final 1         a: one way, to x       root: a, b: final 2

Tokens share beginnings, not endings: the number of a token stands at its end, so no two ends are
the same. Each node is written when no token that is left can add to it, the tokens being in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lancelet.errors import InternalError
from lancelet.index.inverted.automaton import COMMON, HEADER_BYTES, INDEXED_FROM
from lancelet.kernels import crc32c

_VERSION: Final = 3
_CHECKSUM_STEP: Final = 0xA282EAD8
_COUNT_MAX: Final = 0x3F
_CODES: Final = {symbol: code for code, symbol in enumerate(COMMON, 1)}


@dataclass(slots=True)
class _Node:
    """A node that is not written yet: where its tokens go on, and the number of one that ends."""

    number: int | None = None
    symbols: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)


def render_automaton(tokens: Sequence[tuple[bytes, int]]) -> bytes:
    """Return the map of tokens, each there once and in order, to their numbers."""
    out = bytearray(_VERSION.to_bytes(8, "little") + bytes(8))
    open_nodes = [_Node()]
    before = b""
    for token, number in tokens:
        shared = _shared(before, token)
        if token < before:
            raise InternalError("tokens of a map are not in order", token=repr(token))
        _close(out, open_nodes, before, shared)
        open_nodes += [_Node() for _ in token[shared:]]
        open_nodes[-1].number = number
        before = token
    _close(out, open_nodes, before, 0)
    root = _write(out, open_nodes[0])
    out += len(tokens).to_bytes(8, "little") + root.to_bytes(8, "little")
    found = crc32c(np.frombuffer(bytes(out), np.uint8))
    masked = (((found >> 15) | (found << 17)) + _CHECKSUM_STEP) & 0xFFFFFFFF
    return bytes(out + masked.to_bytes(4, "little"))


def _shared(first: bytes, second: bytes) -> int:
    """Return how many bytes at the beginning are the same."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    return next(at for at in range(most) if first[at] != second[at])


def _close(out: bytearray, open_nodes: list[_Node], token: bytes, depth: int) -> None:
    """Write the nodes of a token below a depth, the last first."""
    for at in range(len(token), depth, -1):
        target = _write(out, open_nodes.pop())
        open_nodes[-1].symbols.append(token[at - 1])
        open_nodes[-1].targets.append(target)


def _write(out: bytearray, node: _Node) -> int:
    """Write a node and return where it is, the place of its last byte; 0 is an end numbered 0."""
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
        target_bytes = max(target_bytes, 1)  # other readers take no fewer
    out += number.to_bytes(number_bytes, "little")
    out += bytes(number_bytes * count)  # nothing is added on the way
    for delta in reversed(deltas):
        out += delta.to_bytes(target_bytes, "little")
    out += bytes(reversed(node.symbols))
    if count > INDEXED_FROM:
        index = bytearray(b"\xff" * 256)
        for place, symbol in enumerate(node.symbols):
            index[symbol] = place & 0xFF
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
