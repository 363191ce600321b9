"""Node format of finite-state transducers (FST) from keys to numbers, used by text indices.

    node          outputs, distances and bytes of its transitions, sizes, state; read backwards
    transition    a byte, an output to add, the distance to the target node

Kernels read and write whole transducers; this module is shared with code that walks them.
"""

from __future__ import annotations

from typing import Final

from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

HEADER_BYTES: Final = 16
"""Size of the header, which precedes all nodes."""
INDEXED_FROM: Final = 32
"""Nodes with more transitions have an index of transitions by byte."""
NUMBER_BYTES_MAX: Final = 8
"""Maximum number of bytes read of a number."""
WORD_BYTES_MAX: Final = 1 << 16
"""Maximum key size in bytes when reading."""
COMMON: Final = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""Bytes encoded in the state byte, by codes from 1 on."""


@dataclass(frozen=True, slots=True)
class Node:
    """A decoded node; a key that ends here adds `final_output` to its number."""

    is_final: bool
    final_output: int
    transitions: tuple[tuple[int, int, int], ...]
    """Byte, output and target address, in byte order."""


END: Final = Node(True, 0, ())
"""The final node with address 0."""


def read_node(data: bytes, address: int) -> Node:
    """Decode the node with its last byte at `address`."""
    if address == 0:
        return END
    if not HEADER_BYTES <= address < len(data):
        raise CorruptDataError("a node of a token set is out of bounds", address=address)
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
        raise CorruptDataError("a node of a token set is truncated", address=address)
    targets = [_target(at, delta) for delta in deltas]
    return Node(
        bool(state & 0x40), final_output, tuple(zip(symbols, outputs, targets, strict=True))
    )


def _number(data: bytes, at: int, size: int) -> int:
    if at < HEADER_BYTES:
        raise CorruptDataError("a node of a token set is truncated", position=at)
    return int.from_bytes(data[at : at + min(size, NUMBER_BYTES_MAX)], "little")


def _target(at: int, delta: int) -> int:
    if delta == 0:
        return 0
    if delta > at - HEADER_BYTES:
        raise CorruptDataError("a transition of a token set is out of bounds", position=at)
    return at - delta
