"""Token sets as the reference writes them: a finite-state map from bytes to numbers.

    header    u64 version 3, u64 type 0
    nodes     each known by the position of its last byte, and read downwards from there
    trailer   u64 keys, u64 root, u32 checksum

The number of a token is the sum of what the ways to it add. A query walks the map; whoever wants
all tokens reads it as a whole.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import CorruptDataError
from lancelet.kernels import crc32c, read_automaton, write_automaton
from lancelet.kernels.automaton_nodes import HEADER_BYTES, Node, read_node

_VERSION: Final = 3
_TRAILER_BYTES: Final = 20
_NODE_BYTES: Final = 600
"""What a node takes once it was read, about."""
_CHECKSUM_STEP: Final = 0xA282EAD8


class TokenAutomaton:
    """A map from tokens to numbers, read as it is walked."""

    def __init__(self, data: bytes) -> None:
        """Check the header and the trailer."""
        version = int.from_bytes(data[:8], "little")
        if len(data) < HEADER_BYTES + _TRAILER_BYTES or version not in (2, _VERSION):
            raise CorruptDataError("a token set is no automaton", bytes=len(data), version=version)
        trailer = len(data) - (_TRAILER_BYTES if version > 2 else 16)
        self.num_keys = int.from_bytes(data[trailer : trailer + 8], "little")
        self._root = int.from_bytes(data[trailer + 8 : trailer + 16], "little")
        self._nodes_of, self._known = data[:trailer], dict[int, Node]()

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, with the nodes that were read."""
        return len(self._nodes_of) + _NODE_BYTES * len(self._known)

    def find(self, token: bytes) -> int | None:
        """Return the number of a token, or None."""
        found = self._walk(token)
        if found is None:
            return None
        total, address = found
        node = self._node(address)
        return total + node.final_output if node.is_final else None

    def everything(self, most: int) -> tuple[Bytes, Int64s, Int64s]:
        """Return all tokens, at most so many: their bytes, where each ends, their numbers."""
        return read_automaton(np.frombuffer(self._nodes_of, np.uint8), self._root, most)

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

    def _node(self, address: int) -> Node:
        node = self._known.get(address)
        if node is None:
            node = self._known[address] = read_node(self._nodes_of, address)
        return node


def render_automaton(offsets: Int64s, data: Bytes, numbers: Int64s) -> bytes:
    """Return the map of tokens, each there once and in the order of their bytes, to numbers."""
    nodes, root = write_automaton(offsets, data, numbers)
    out = _VERSION.to_bytes(8, "little") + nodes[8:].tobytes()
    out += len(numbers).to_bytes(8, "little") + root.to_bytes(8, "little")
    found = crc32c(np.frombuffer(out, np.uint8))
    masked = (((found >> 15) | (found << 17)) + _CHECKSUM_STEP) & 0xFFFFFFFF
    return out + masked.to_bytes(4, "little")
