"""Nodes of finite-state maps from words to numbers, as the files of text indices have them.

    node      numbers, distances and bytes of its ways, sizes, state      read from its last byte
    way       a byte, what is added to the number, how far below the next node is

Maps are read and written whole by kernels; here is what these and whoever walks a map share.
"""

from __future__ import annotations

from typing import Final

from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

HEADER_BYTES: Final = 16
"""Before it there are no nodes."""
INDEXED_FROM: Final = 32
"""A node with more ways says for each byte which of them is its."""
NUMBER_BYTES_MAX: Final = 8
"""Of a number that is said to have more, these are read."""
WORD_BYTES_MAX: Final = 1 << 16
"""No word that is read is longer."""
COMMON: Final = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""Bytes that have a number, from 1 on, so that a state says them."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that was read; a word that ends there adds `final_output` to its number."""

    is_final: bool
    final_output: int
    transitions: tuple[tuple[int, int, int], ...]
    """Input, output and target of each, the inputs ascending."""


END: Final = Node(True, 0, ())
"""What the address 0 stands for."""


def read_node(data: bytes, address: int) -> Node:
    """Return the node whose last byte is at an address."""
    if address == 0:
        return END
    if not HEADER_BYTES <= address < len(data):
        raise CorruptDataError("a node of a token set lies outside of it", address=address)
    state = data[address]
    common = state & 0x3F
    at = address
    if state & 0x80:
        if common:
            symbol = COMMON[common - 1]
        else:
            at -= 1
            symbol = data[at]
        if state & 0x40:
            return Node(False, 0, ((symbol, 0, at - 1),))
        at -= 1
        target_bytes, output_bytes = data[at] >> 4, data[at] & 15
        at -= target_bytes
        delta = _number(data, at, target_bytes)
        at -= output_bytes
        output = _number(data, at, output_bytes)
        return Node(False, 0, ((symbol, output, _target(at, delta)),))
    count = common
    if count == 0:
        at -= 1
        count = 256 if data[at] == 1 else data[at]
    at -= 1
    target_bytes, output_bytes = data[at] >> 4, data[at] & 15
    if count > INDEXED_FROM:
        at -= 256
    at -= count
    symbols = data[max(at, 0) : at + count][::-1]
    deltas, outputs = [], []
    for _ in range(count):
        at -= target_bytes
        deltas.append(_number(data, at, target_bytes))
    for _ in range(count):
        at -= output_bytes
        outputs.append(_number(data, at, output_bytes))
    final_output = 0
    if state & 0x40 and output_bytes:
        at -= output_bytes
        final_output = _number(data, at, output_bytes)
    if len(symbols) != count:
        raise CorruptDataError("a node of a token set is cut short", address=address)
    targets = [_target(at, delta) for delta in deltas]
    return Node(
        bool(state & 0x40), final_output, tuple(zip(symbols, outputs, targets, strict=True))
    )


def _number(data: bytes, at: int, size: int) -> int:
    if at < HEADER_BYTES:
        raise CorruptDataError("a node of a token set is cut short", position=at)
    return int.from_bytes(data[at : at + min(size, NUMBER_BYTES_MAX)], "little")


def _target(at: int, delta: int) -> int:
    if delta == 0:
        return 0
    if delta > at - HEADER_BYTES:
        raise CorruptDataError("a node of a token set points outside of it", position=at)
    return at - delta
