"""The tokens of a partition: a sorted column, or an automaton.

_token      apple  pear  plum
_token_id   4      0     2        the row of the token in the file of postings

Token sets as the reference writes them: a finite-state map from bytes to numbers.

    header    u64 version 3, u64 type 0
    nodes     each known by the position of its last byte, and read downwards from there
    trailer   u64 keys, u64 root, u32 checksum

The number of a token is the sum of what the ways to it add. A query walks the map; whoever wants
all tokens reads it as a whole.

The posting list of one token as it is stored: documents in blocks, positions in streams.

300 documents    blocks of 128, 128 and 44       each a byte string, one behind the other
positions        a stream for each block
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.errors import CorruptDataError
from lancelet.index.inverted.postings import Postings, position_steps
from lancelet.kernels import (
    crc32c,
    decode_postings,
    encode_postings,
    encode_streams,
    read_automaton,
    write_automaton,
)
from lancelet.kernels.automaton_nodes import HEADER_BYTES, Node, read_node
from lancelet.values import cached_property, dataclass

_TOKENS_KNOWN: Final = 4096
"""Where so many tokens are is remembered."""
_TOKENS_TOGETHER: Final = 1024
"""So many tokens are turned into text at a time."""

_VERSION: Final = 3
_TRAILER_BYTES: Final = 20
_NODE_BYTES: Final = 600
"""What a node takes once it was read, about."""
_CHECKSUM_STEP: Final = 0xA282EAD8

UInt32s = npt.NDArray[np.uint32]


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


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Byte strings that lie one behind the other, each ending where the next begins."""

    data: Bytes
    ends: Int64s

    @staticmethod
    def of(strings: Slices) -> Blocks:
        """Copy byte strings out of a buffer in which they lie one behind the other."""
        if not len(strings):
            return Blocks(np.empty(0, np.uint8), np.empty(0, np.int64))
        start = int(strings.position[0])
        ends = strings.position + strings.size
        return Blocks(strings.source[start : int(ends[-1])].copy(), ends - start)

    @staticmethod
    def empty(count: int) -> Blocks:
        """Return so many empty strings."""
        return Blocks(np.empty(0, np.uint8), np.zeros(count, np.int64))

    def as_slices(self) -> Slices:
        """Return the strings as slices of their bytes."""
        sizes = np.diff(self.ends, prepend=0)
        return Slices(self.data, self.ends - sizes, sizes)


@dataclass(frozen=True, slots=True, eq=False)
class TokenList:
    """The documents of a token: how many, in blocks, with the positions of each block."""

    count: int
    blocks: Blocks
    block_docs: int
    is_varint: bool
    streams: Blocks | None = None

    @staticmethod
    def of(postings: Postings, block_docs: int) -> TokenList:
        """Encode the documents of a token."""
        count = len(postings)
        sizes = sizes_of(count, block_docs)
        data, ends = encode_postings(
            postings.docs,
            postings.freqs,
            np.array([count], np.int64),
            np.zeros(len(sizes), np.float32),
            block_docs=block_docs,
        )
        streams = None
        if postings.positions is not None:
            streams = streams_of(postings.positions, postings.freqs, sizes)
        return TokenList(count, Blocks(data, ends), block_docs, True, streams)

    @property
    def sizes(self) -> Int64s:
        """How many documents each block has."""
        return sizes_of(self.count, self.block_docs)

    def decode(self, num_docs: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents, of which there are so many at most, and the frequencies."""
        docs, freqs = decode_postings(
            self.blocks.as_slices(),
            self.sizes,
            block_docs=self.block_docs,
            is_varint=self.is_varint,
        )
        if np.any(docs[1:] <= docs[:-1]) or (len(docs) and int(docs[-1]) >= num_docs):
            raise CorruptDataError("a posting list names a document twice, or one that is not")
        return docs, freqs


def streams_of(positions: UInt32s, freqs: UInt32s, sizes: Int64s) -> Blocks:
    """Encode the positions of the documents of blocks of these sizes."""
    starts = np.cumsum(sizes) - sizes
    counts = np.add.reduceat(freqs.astype(np.int64), starts)
    return Blocks(*encode_streams(position_steps(positions, freqs), counts))


def sizes_of(count: int, block_docs: int) -> Int64s:
    """Return how many documents each block of a list has.

    >>> sizes_of(300, 128).tolist()
    [128, 128, 44]
    """
    sizes = np.full(-(-count // block_docs), block_docs, np.int64)
    sizes[-1:] = count - (len(sizes) - 1) * block_docs
    return sizes
