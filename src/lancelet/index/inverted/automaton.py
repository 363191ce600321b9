"""Token sets as the reference writes them: a finite-state map from bytes to numbers.

    header    u64 version 3, u64 type 0
    nodes     each known by the position of its last byte, and read downwards from there
    trailer   u64 keys, u64 root, u32 checksum

A node is a state byte and its transitions: input byte, output, and how far below the target is.
The number of a token is the sum of the outputs on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lancelet.errors import CorruptDataError

HEADER_BYTES: Final = 16
"""Before it there are no nodes."""
_TRAILER_BYTES: Final = 20
INDEXED_FROM: Final = 32
"""A node with more transitions says for each byte which of them is its."""
_KEY_BYTES_MAX: Final = 1 << 16
COMMON: Final = b"te/oasripcnw.hlm-du012g=:bf3y5&_4v9678k%?xCDASFIBEjPTzRNM+LOqHG"
"""Bytes that have a number, from 1 on, so that a state says them."""


@dataclass(frozen=True, slots=True)
class _Node:
    is_final: bool
    final_output: int
    transitions: tuple[tuple[int, int, int], ...]
    """Input, output and target of each, the inputs ascending."""


_END: Final = _Node(True, 0, ())


class TokenAutomaton:
    """A map from tokens to numbers, read as it is walked."""

    def __init__(self, data: bytes) -> None:
        """Check the header and the trailer."""
        version = int.from_bytes(data[:8], "little")
        if len(data) < HEADER_BYTES + _TRAILER_BYTES or version not in (2, 3):
            raise CorruptDataError("a token set is no automaton", bytes=len(data), version=version)
        self._data = data
        trailer = len(data) - (_TRAILER_BYTES if version > 2 else 16)
        self.num_keys = int.from_bytes(data[trailer : trailer + 8], "little")
        self._root = int.from_bytes(data[trailer + 8 : trailer + 16], "little")
        self._nodes: dict[int, _Node] = {}

    def find(self, token: bytes) -> int | None:
        """Return the number of a token, or None."""
        found = self._walk(token)
        if found is None:
            return None
        total, address = found
        node = self._node(address)
        return total + node.final_output if node.is_final else None

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """Yield every token that begins with a prefix, and its number, in order."""
        start = self._walk(prefix)
        stack = [] if start is None else [(prefix, *start)]
        found = 0
        while stack:
            token, total, address = stack.pop()
            node = self._node(address)
            if len(token) > _KEY_BYTES_MAX or found > self.num_keys:
                raise CorruptDataError("a token set has more tokens than it claims", found=found)
            if node.is_final:
                found += 1
                yield token, total + node.final_output
            for symbol, output, target in reversed(node.transitions):
                stack.append((token + bytes((symbol,)), total + output, target))

    def _walk(self, prefix: bytes) -> tuple[int, int] | None:
        """Return the sum of the outputs on a way, and the node at its end."""
        total, address = 0, self._root
        for byte in prefix:
            for symbol, output, target in self._node(address).transitions:
                if symbol == byte:
                    total, address = total + output, target
                    break
            else:
                return None
        return total, address

    def _node(self, address: int) -> _Node:
        if address == 0:
            return _END
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = self._read(address)
        return node

    def _read(self, address: int) -> _Node:
        data = self._data
        if not HEADER_BYTES <= address < len(data) - 16:
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
                return _Node(False, 0, ((symbol, 0, at - 1),))
            at -= 1
            target_bytes, output_bytes = data[at] >> 4, data[at] & 15
            at -= target_bytes
            delta = self._number(at, target_bytes)
            at -= output_bytes
            output = self._number(at, output_bytes)
            return _Node(False, 0, ((symbol, output, self._target(at, delta)),))
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
            deltas.append(self._number(at, target_bytes))
        for _ in range(count):
            at -= output_bytes
            outputs.append(self._number(at, output_bytes))
        final_output = 0
        if state & 0x40 and output_bytes:
            at -= output_bytes
            final_output = self._number(at, output_bytes)
        if len(symbols) != count:
            raise CorruptDataError("a node of a token set is cut short", address=address)
        targets = [self._target(at, delta) for delta in deltas]
        found = sorted(zip(symbols, outputs, targets, strict=True))
        return _Node(bool(state & 0x40), final_output, tuple(found))

    def _number(self, at: int, size: int) -> int:
        if at < HEADER_BYTES:
            raise CorruptDataError("a node of a token set is cut short", position=at)
        return int.from_bytes(self._data[at : at + size], "little")

    def _target(self, at: int, delta: int) -> int:
        if delta == 0:
            return 0
        if delta > at - HEADER_BYTES:
            raise CorruptDataError("a node of a token set points outside of it", position=at)
        return at - delta
