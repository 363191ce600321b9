"""Token sets of a partition, and the encoding of its posting lists.

A token set is a sorted column or a finite-state transducer (FST):

    _token      apple  pear  plum
    _token_id   4      0     2        row of the token in the file of postings

The FST maps byte strings to token numbers, in the encoding of the reference:

    header    u64 version 3, u64 type 0
    nodes     identified by the position of their last byte, decoded backwards
    trailer   u64 keys, u64 root, u32 checksum

The number of a token is the sum of the outputs of its transitions. Lookups decode single nodes;
listing all tokens decodes the whole FST.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.inverted.postings import Postings, position_steps
from lancelet.index.kernels import (
    decode_postings,
    encode_postings,
    encode_streams,
    read_fst,
    write_fst,
)
from lancelet.index.kernels.fst import HEADER_BYTES, Node, read_node
from lancelet.kernels import crc32c
from lancelet.values import cached_property, dataclass

_TOKENS_CACHED: Final = 4096
"""Number of token lookups cached per token set."""
_TOKENS_PER_BATCH: Final = 1024
"""Number of tokens converted to Python strings per batch."""

_VERSION: Final = 3
_TRAILER_BYTES: Final = 20
_NODE_BYTES: Final = 600
"""Approximate memory of a decoded FST node."""
_CHECKSUM_STEP: Final = 0xA282EAD8

UInt32s = npt.NDArray[np.uint32]


class TokenSet(Protocol):
    """Maps tokens to numbers."""

    def find(self, token: str) -> int | None:
        """Return the number of a token, or None."""

    def starting_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield tokens with a prefix and their numbers, in order."""


class SortedTokens:
    """Tokens in a sorted column."""

    def __init__(self, tokens: pa.Array, ids: npt.NDArray[np.integer]) -> None:
        """Wrap a column of tokens in ascending byte order."""
        self._tokens = tokens.cast(pa.large_string())
        self._ids = ids
        self._find_cached = lru_cache(maxsize=_TOKENS_CACHED)(self._find)

    def find(self, token: str) -> int | None:
        """Return the number of a token, or None."""
        return self._find_cached(token)

    def _find(self, token: str) -> int | None:
        key = token.encode()
        index = self._insertion_point(key)
        if index < len(self._tokens) and self._token_bytes(index) == key:
            return int(self._ids[index])
        return None

    def starting_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield tokens with a prefix and their numbers, in order."""
        for start in range(
            self._insertion_point(prefix.encode()), len(self._tokens), _TOKENS_PER_BATCH
        ):
            batch = slice(start, start + _TOKENS_PER_BATCH)
            pairs = zip(self._tokens[batch].to_pylist(), self._ids[batch].tolist(), strict=True)
            for token, number in pairs:
                if not token.startswith(prefix):
                    return
                yield token, number

    def _token_bytes(self, index: int) -> bytes:
        data: bytes = self._tokens[index].as_buffer().to_pybytes()
        return data

    def _insertion_point(self, key: bytes) -> int:
        low, high = 0, len(self._tokens)
        while low < high:
            middle = (low + high) // 2
            if self._token_bytes(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low


class FstTokens:
    """Tokens in an FST. Prefix searches decode the whole FST."""

    def __init__(self, fst: TokenFst, count: int) -> None:
        """Wrap an FST with `count` tokens."""
        self._fst, self._count = fst, count
        self._sorted_bytes = 0
        self._find_cached = lru_cache(maxsize=_TOKENS_CACHED)(self._find)

    def find(self, token: str) -> int | None:
        """Return the number of a token, or None."""
        return self._find_cached(token)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes, including decoded nodes and the sorted tokens."""
        return self._fst.memory_bytes + self._sorted_bytes

    def starting_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield tokens with a prefix and their numbers, in order."""
        return self._sorted.starting_with(prefix)

    def _find(self, token: str) -> int | None:
        return self._fst.find(token.encode())

    @cached_property
    def _sorted(self) -> SortedTokens:
        text, ends, numbers = self._fst.read_all(self._count)
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
        tokens = pa.Array.from_buffers(pa.large_string(), len(ends), buffers)
        try:
            tokens.validate(full=True)
        except pa.ArrowInvalid as error:
            raise CorruptDataError("a token set contains invalid UTF-8") from error
        self._sorted_bytes = tokens.nbytes + numbers.nbytes
        return SortedTokens(tokens, numbers)


def all_tokens(tokens: TokenSet, count: int) -> list[str]:
    """Return all tokens in the order of their numbers. Raise if a number has no token."""
    by_number: list[str | None] = [None] * count
    for token, number in tokens.starting_with(""):
        if number >= count or by_number[number] is not None:
            raise CorruptDataError(
                "invalid or duplicate number in a token set", number=number, tokens=count
            )
        by_number[number] = token
    result = [token for token in by_number if token is not None]
    if len(result) != count:
        raise CorruptDataError("missing tokens in a token set", tokens=count, found=len(result))
    return result


class TokenFst:
    """An FST from tokens to numbers. Nodes are decoded on access and cached."""

    def __init__(self, data: bytes) -> None:
        """Validate the header and parse the trailer."""
        version = int.from_bytes(data[:8], "little")
        if len(data) < HEADER_BYTES + _TRAILER_BYTES or version not in (2, _VERSION):
            raise CorruptDataError(
                "invalid FST header in a token set", bytes=len(data), version=version
            )
        trailer = len(data) - (_TRAILER_BYTES if version > 2 else 16)
        self.num_keys = int.from_bytes(data[trailer : trailer + 8], "little")
        self._root = int.from_bytes(data[trailer + 8 : trailer + 16], "little")
        self._data, self._nodes = data[:trailer], dict[int, Node]()

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes, including decoded nodes."""
        return len(self._data) + _NODE_BYTES * len(self._nodes)

    def find(self, token: bytes) -> int | None:
        """Return the number of a token, or None."""
        end = self._walk(token)
        if end is None:
            return None
        total, address = end
        node = self._node(address)
        return total + node.final_output if node.is_final else None

    def read_all(self, count_max: int) -> tuple[Bytes, Int64s, Int64s]:
        """Decode at most `count_max` tokens; return their bytes, end offsets and numbers."""
        return read_fst(np.frombuffer(self._data, np.uint8), self._root, count_max)

    def _walk(self, prefix: bytes) -> tuple[int, int] | None:
        """Return the sum of the outputs along a prefix and the final node, or None."""
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
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = read_node(self._data, address)
        return node


def render_fst(offsets: Int64s, data: Bytes, numbers: Int64s) -> bytes:
    """Encode an FST from distinct tokens in ascending byte order to numbers."""
    nodes, root = write_fst(offsets, data, numbers)
    out = _VERSION.to_bytes(8, "little") + nodes[8:].tobytes()
    out += len(numbers).to_bytes(8, "little") + root.to_bytes(8, "little")
    checksum = crc32c(np.frombuffer(out, np.uint8))
    masked = (((checksum >> 15) | (checksum << 17)) + _CHECKSUM_STEP) & 0xFFFFFFFF
    return out + masked.to_bytes(4, "little")


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Consecutive byte strings with their end offsets."""

    data: Bytes
    ends: Int64s

    @staticmethod
    def copy_from(strings: ByteSlices) -> Blocks:
        """Copy consecutive byte strings out of a buffer."""
        if not len(strings):
            return Blocks(np.empty(0, np.uint8), np.empty(0, np.int64))
        start = int(strings.position[0])
        ends = strings.position + strings.size
        return Blocks(strings.source[start : int(ends[-1])].copy(), ends - start)

    @staticmethod
    def empty(count: int) -> Blocks:
        """Return `count` empty strings."""
        return Blocks(np.empty(0, np.uint8), np.zeros(count, np.int64))

    def as_slices(self) -> ByteSlices:
        """Return the strings as slices of `data`."""
        sizes = np.diff(self.ends, prepend=0)
        return ByteSlices(self.data, self.ends - sizes, sizes)


@dataclass(frozen=True, slots=True, eq=False)
class TokenList:
    """An encoded posting list: document count, blocks, and the position stream of each block.

    300 documents have blocks of 128, 128 and 44 documents, which are consecutive byte strings.
    """

    count: int
    blocks: Blocks
    block_docs: int
    is_varint: bool
    streams: Blocks | None = None

    @staticmethod
    def encode(postings: Postings, block_docs: int) -> TokenList:
        """Encode the postings of a token."""
        count = len(postings)
        sizes = list_block_sizes(count, block_docs)
        data, ends = encode_postings(
            postings.docs,
            postings.freqs,
            np.array([count], np.int64),
            np.zeros(len(sizes), np.float32),
            block_docs=block_docs,
        )
        streams = None
        if postings.positions is not None:
            streams = encode_position_streams(postings.positions, postings.freqs, sizes)
        return TokenList(count, Blocks(data, ends), block_docs, True, streams)

    @property
    def sizes(self) -> Int64s:
        """Number of documents in each block."""
        return list_block_sizes(self.count, self.block_docs)

    def decode(self, num_docs: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents and frequencies. Raise if a document is not below `num_docs`."""
        docs, freqs = decode_postings(
            self.blocks.as_slices(),
            self.sizes,
            block_docs=self.block_docs,
            is_varint=self.is_varint,
        )
        if np.any(docs[1:] <= docs[:-1]) or (len(docs) and int(docs[-1]) >= num_docs):
            raise CorruptDataError("a posting list contains duplicate or unknown documents")
        return docs, freqs


def encode_position_streams(positions: UInt32s, freqs: UInt32s, sizes: Int64s) -> Blocks:
    """Encode the positions of each block, given the number of documents per block."""
    starts = np.cumsum(sizes) - sizes
    counts = np.add.reduceat(freqs.astype(np.int64), starts)
    return Blocks(*encode_streams(position_steps(positions, freqs), counts))


def list_block_sizes(count: int, block_docs: int) -> Int64s:
    """Return the number of documents in each block of a posting list.

    >>> list_block_sizes(300, 128).tolist()
    [128, 128, 44]
    """
    sizes = np.full(-(-count // block_docs), block_docs, np.int64)
    sizes[-1:] = count - (len(sizes) - 1) * block_docs
    return sizes
