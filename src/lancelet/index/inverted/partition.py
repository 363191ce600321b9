"""Partitions of an INVERTED index: documents, tokens and posting lists.

A stored partition reads data on demand. A partition in memory contains rows that are not indexed
yet. Both have the same interface, so scores are computed by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.index.folder import SegmentFolder
from lancelet.index.inverted import layout
from lancelet.index.inverted.arena import ListArena
from lancelet.index.inverted.bm25 import Corpus, norms_of, quantized_lengths
from lancelet.index.inverted.layout import Codec
from lancelet.index.inverted.postings import Postings, parse_positions, positions_of
from lancelet.index.inverted.tokens import (
    Blocks,
    FstTokens,
    SortedTokens,
    TokenFst,
    TokenList,
    TokenSet,
    all_tokens,
    encode_position_streams,
)
from lancelet.index.inverted.write import block_sizes
from lancelet.index.kernels import PostingLists, decode_postings, decode_streams
from lancelet.index.text.elements import ElementIndices, no_element_indices
from lancelet.io.cache import estimate_bytes
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.values import cached_property

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]


class Partition(Protocol):
    """Documents with their tokens and posting lists."""

    @property
    def numbers(self) -> UInt64s:
        """Row number of each document."""

    @property
    def element_indices(self) -> ElementIndices:
        """List indices of each document within its row; no columns if rows are documents."""

    @property
    def lengths(self) -> UInt32s:
        """Number of tokens of each document."""

    @property
    def corpus(self) -> Corpus:
        """Numbers of documents and tokens."""

    @property
    def block_docs(self) -> int:
        """Number of documents per posting block."""

    @property
    def has_positions(self) -> bool:
        """Whether the index stores token positions."""

    @property
    def tokens(self) -> TokenSet:
        """Tokens of the partition."""

    @property
    def num_tokens(self) -> int:
        """Number of distinct tokens."""

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""

    def read_all(self) -> tuple[list[str], Postings]:
        """Return all tokens and all postings."""

    def doc_frequency(self, token: int) -> int:
        """Return the document frequency of a token."""

    def norms(self, mean_length: float) -> Float32s:
        """Return the BM25 length norms of the documents for a mean document length."""

    def postings_of(self, token: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents that contain a token, and the frequency in each."""

    def lists(
        self, tokens: Sequence[int], norms: Float32s, *, with_position: bool = False
    ) -> PostingLists:
        """Return the posting lists of tokens for a search with these norms."""


_QUANTIZED_BLOCK_DOCS: Final = 256
"""Block size for which norms are computed from quantized document lengths."""

_LISTS: Final = "lists"
_NUMBERS: Final = "numbers"
_LENGTHS: Final = "lengths"
_TOKENS: Final = "tokens"
_COUNTS: Final = "counts"
"""Cache keys of the parts of a partition."""


class StoredPartition:
    """A partition stored in files."""

    def __init__(self, folder: SegmentFolder, number: int, *, is_fst: bool) -> None:
        """Open the files of a partition."""
        self._docs = folder.open(layout.file_name(number, "docs"))
        self._token_file = folder.open(layout.file_name(number, "tokens"))
        self._invert = folder.open(layout.file_name(number, "invert"))
        self._is_fst = is_fst
        self.codec = Codec.from_metadata(self._invert.metadata)
        names = self._invert.schema.names
        self._loads, self._cache, self._number = folder.loads, folder.cache_scope, number
        self._position_column = next(
            (name for name in ("_compressed_position", "_position") if name in names), None
        )

    @property
    def block_docs(self) -> int:
        """Number of documents per posting block."""
        return self.codec.block_docs

    @property
    def has_positions(self) -> bool:
        """Whether the index stores token positions."""
        return self._position_column is not None

    def _key(self, name: str) -> tuple[str, int]:
        return name, self._number

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes; 0 because cached data is shared and counted separately."""
        return 0

    @property
    def _arena(self) -> ListArena:
        return self._cache.get_or_make(
            self._key(_LISTS),
            lambda: ListArena(block_docs=self.block_docs, is_varint=self.codec.is_varint),
        )

    @property
    def numbers(self) -> UInt64s:
        """Row number of each document."""
        return self._cache.get_or_make(self._key(_NUMBERS), lambda: self._read_docs("_rowid"))

    @property
    def element_indices(self) -> ElementIndices:
        """List indices of each document within its row; no columns if rows are documents."""
        depth = len(self._docs.schema.names) - len(layout.docs_schema(0))
        if not depth:
            return no_element_indices(self._docs.num_rows)
        return self._cache.get_or_make(
            self._key("element_indices"), lambda: self._read_element_indices(depth)
        )

    def _read_element_indices(self, depth: int) -> ElementIndices:
        columns = self._docs.read([layout.element_index_name(each) for each in range(depth)])
        return np.stack([column.to_numpy() for column in columns], axis=1)

    @property
    def lengths(self) -> UInt32s:
        """Number of tokens of each document."""
        return self._cache.get_or_make(self._key(_LENGTHS), lambda: self._read_docs("_num_tokens"))

    def _read_docs(self, column: str) -> Any:
        (values,) = self._docs.read([column])
        return values.to_numpy()

    @cached_property
    def corpus(self) -> Corpus:
        """Numbers of documents and tokens."""
        return Corpus(self._docs.num_rows, int(self.lengths.sum(dtype=np.int64)))

    @property
    def num_tokens(self) -> int:
        """Number of distinct tokens."""
        return self._invert.num_rows

    @property
    def tokens(self) -> TokenSet:
        """Tokens of the partition."""
        return self._cache.get_or_make(self._key(_TOKENS), self._read_tokens)

    def _read_tokens(self) -> TokenSet:
        if self._is_fst:
            (data,) = self._token_file.read(["_token_fst_bytes"])
            fst = TokenFst(data[0].as_py() if len(data) else b"")
            return FstTokens(fst, self.num_tokens)
        tokens, ids = self._token_file.read(["_token", "_token_id"])
        return SortedTokens(tokens, ids.to_numpy())

    @property
    def _counts(self) -> UInt32s:
        return self._cache.get_or_make(self._key(_COUNTS), self._read_counts)

    def _read_counts(self) -> UInt32s:
        (column,) = self._invert.read(["_length"])
        counts: UInt32s = column.to_numpy()
        return counts

    def _has(self, name: str) -> bool:
        return self._key(name) in self._cache

    def doc_frequency(self, token: int) -> int:
        """Return the document frequency of a token."""
        if token >= self.num_tokens:
            raise CorruptDataError(
                "a token has no posting list", token=token, tokens=self.num_tokens
            )
        return int(self._counts[token])

    def norms(self, mean_length: float) -> Float32s:
        """Return the BM25 length norms of the documents for a mean document length."""
        key = ("norms", self._number, mean_length)
        return self._cache.get_or_make(key, lambda: _norms_of(self, mean_length))

    def postings_of(self, token: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents that contain a token, and the frequency in each."""
        return self._read_list(token, False).decode(self.corpus.num_docs)

    def lists(
        self, tokens: Sequence[int], norms: Float32s, *, with_position: bool = False
    ) -> PostingLists:
        """Return the posting lists of tokens for a search with these norms."""
        parts_before = self._loads.parts
        posting_lists = self._arena.lists(
            tokens, norms, self._read_list, with_position=with_position, loads=self._loads
        )
        if self._loads.parts != parts_before:
            self._cache.update_size(self._key(_LISTS))
        return posting_lists

    def estimate_reads(self, tokens: Sequence[str], *, with_position: bool) -> IoCounts:
        """Estimate the reads of a search for tokens, excluding cached data."""
        total = IoCounts()
        if not self._has(_NUMBERS):
            total += self._docs.estimate_reads(["_rowid"])
        if not self._has(_LENGTHS):
            total += self._docs.estimate_reads(["_num_tokens"])
        if not self._has(_COUNTS):
            total += self._invert.estimate_reads(["_length"])
        columns = ["_posting", *self._position_columns] if with_position else ["_posting"]
        if not self._has(_TOKENS):
            total += self._token_file.estimate_reads(self._token_columns)
            all_lists = self._invert.estimate_reads(columns)
            share = min(len(tokens), self.num_tokens) / max(1, self.num_tokens)
            return total + IoCounts(
                all_lists.read_iops * len(tokens), int(all_lists.read_bytes * share)
            )
        for token in tokens:
            number = self.tokens.find(token)
            if number is not None and not self._arena.contains(number, with_position=with_position):
                total += self._estimate_list_reads(columns, number)
        return total

    def _estimate_list_reads(self, columns: Sequence[str], number: int) -> IoCounts:
        """Estimate the reads of a posting list from the document frequency of its token."""
        requests = self._invert.estimate_reads(columns, RowRange(number, number + 1)).read_iops
        total_bytes = self._invert.estimate_reads(columns).read_bytes
        counts = self._counts if self._has(_COUNTS) else np.ones(self.num_tokens, np.uint32)
        share = int(counts[number]) / max(1, int(counts.sum(dtype=np.int64)))
        return IoCounts(requests, int(total_bytes * share))

    def cached_doc_frequencies(self, tokens: Sequence[str]) -> list[int] | None:
        """Return the document frequency of each token, or None if the data is not cached."""
        if not self._has(_TOKENS) or not self._has(_COUNTS):
            return None
        numbers = [self.tokens.find(token) for token in tokens]
        return [0 if number is None else self.doc_frequency(number) for number in numbers]

    @property
    def _token_columns(self) -> list[str]:
        return ["_token_fst_bytes"] if self._is_fst else ["_token", "_token_id"]

    @property
    def _position_columns(self) -> list[str]:
        if "_position_block_offset" in self._invert.schema.names:
            return ["_compressed_position", "_position_block_offset"]
        return [] if self._position_column is None else [self._position_column]

    def read_all(self) -> tuple[list[str], Postings]:
        """Return all tokens and all postings."""
        tokens = all_tokens(self.tokens, self.num_tokens)
        rows = RowRange(0, self.num_tokens)
        return tokens, self._read(rows, with_position=self.has_positions)

    def _read_list(self, token: int, with_position: bool) -> TokenList:
        rows = RowRange(token, token + 1)
        counts = self._counts[token : token + 1].astype(np.int64)
        stored, blocks, sizes = self._read_blocks(rows, counts)
        token_list = TokenList(
            int(counts[0]), Blocks.copy_from(stored), self.block_docs, self.codec.is_varint
        )
        if not with_position:
            return token_list
        if "_position_block_offset" in self._invert.schema.names:
            return replace(token_list, streams=Blocks.copy_from(self._streams(rows, blocks)))
        _, freqs = token_list.decode(self.corpus.num_docs)
        positions = self._positions(rows, freqs, sizes, blocks)
        return replace(token_list, streams=encode_position_streams(positions, freqs, sizes))

    def _read_blocks(self, rows: RowRange, counts: Int64s) -> tuple[ByteSlices, Int64s, Int64s]:
        """Return the blocks of posting lists, the blocks per list and the documents per block."""
        (lists,) = self._invert.read(["_posting"], rows)
        blocks, sizes = block_sizes(counts, self.block_docs)
        if lists.value_lengths().to_numpy(zero_copy_only=False).tolist() != blocks.tolist():
            raise CorruptDataError("wrong number of blocks in a posting list")
        return _slices(lists.flatten()), blocks, sizes

    def _read(self, rows: RowRange, *, with_position: bool) -> Postings:
        counts = self._counts[rows.start : rows.stop].astype(np.int64)
        stored, blocks, sizes = self._read_blocks(rows, counts)
        docs, freqs = decode_postings(
            stored, sizes, block_docs=self.block_docs, is_varint=self.codec.is_varint
        )
        if len(docs) and int(docs.max()) >= self.corpus.num_docs:
            raise CorruptDataError("a posting list refers to an unknown document")
        tokens = np.repeat(np.arange(rows.start, rows.stop, dtype=np.uint32), counts)
        positions = self._positions(rows, freqs, sizes, blocks) if with_position else None
        return Postings(tokens, docs, freqs, positions)

    def _positions(
        self,
        rows: RowRange,
        freqs: UInt32s,
        sizes: Int64s,
        blocks: Int64s,
    ) -> UInt32s:
        column = self._position_column
        if column is None:
            raise CorruptDataError("the index has no positions")
        if "_position_block_offset" not in self._invert.schema.names:
            (documents,) = self._invert.read([column], rows)
            return parse_positions(documents.flatten(), freqs)
        streams = self._streams(rows, blocks)
        ends_of_docs = np.cumsum(sizes)
        total = np.concatenate([np.zeros(1, np.int64), np.cumsum(freqs, dtype=np.int64)])
        counts = total[ends_of_docs] - total[ends_of_docs - sizes]
        return positions_of(decode_streams(streams, counts), freqs)

    def _streams(self, rows: RowRange, blocks: Int64s) -> ByteSlices:
        """Return the position stream of each block."""
        streams, offsets = self._invert.read(
            ["_compressed_position", "_position_block_offset"], rows
        )
        slices = _slices(streams)
        starts = np.repeat(slices.position, blocks)
        ends = np.repeat(slices.position + slices.size, blocks)
        block_offsets = offsets.flatten().to_numpy().astype(np.int64)
        if len(block_offsets) != len(starts):
            raise CorruptDataError("wrong number of blocks in a position stream")
        block_starts = starts + block_offsets
        block_ends = np.append(block_starts[1:], 0)
        last = np.cumsum(blocks) - 1
        block_ends[last] = ends[last]
        return ByteSlices(slices.source, block_starts, block_ends - block_starts)


def _norms_of(partition: Partition, mean_length: float) -> Float32s:
    lengths = partition.lengths
    if partition.block_docs == _QUANTIZED_BLOCK_DOCS:
        lengths = quantized_lengths(lengths)
    return norms_of(lengths, mean_length)


class MemoryPartition:
    """A partition in memory: rows read by a search, or a segment of an early release."""

    block_docs = 128

    def __init__(
        self,
        tokens: Sequence[str],
        postings: Postings,
        numbers: UInt64s,
        lengths: UInt32s,
        element_indices: ElementIndices | None = None,
    ) -> None:
        """Create a partition from posting lists."""
        self.element_indices = (
            no_element_indices(len(numbers)) if element_indices is None else element_indices
        )
        self._names = tokens
        self.has_positions = postings.positions is not None
        order = sorted(range(len(tokens)), key=lambda number: tokens[number].encode())
        texts = pa.array([tokens[number] for number in order], pa.string())
        self.tokens: TokenSet = SortedTokens(texts, np.array(order, np.uint32))
        self.numbers, self.lengths = numbers, lengths
        self.corpus = Corpus(len(numbers), int(lengths.sum(dtype=np.int64)))
        self._postings = postings
        self._norms: tuple[float, Float32s] | None = None
        self._ends = np.cumsum(postings.counts(len(tokens)))
        self._position_ends = np.cumsum(postings.freqs, dtype=np.int64)
        self._arena = ListArena(block_docs=self.block_docs, is_varint=True)

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes, including the posting lists encoded so far."""
        return self._arrays_bytes + 4 * len(self.lengths) + self._arena.memory_bytes

    @cached_property
    def _arrays_bytes(self) -> int:
        arrays = self.numbers, self.lengths, self._ends, self._position_ends
        names = 2 * sum(map(estimate_bytes, self._names))
        return sum(each.nbytes for each in arrays) + names + estimate_bytes(self._postings)

    @property
    def num_tokens(self) -> int:
        """Number of distinct tokens."""
        return len(self._names)

    def read_all(self) -> tuple[list[str], Postings]:
        """Return all tokens and all postings."""
        return list(self._names), self._postings

    def doc_frequency(self, token: int) -> int:
        """Return the document frequency of a token."""
        start, end = self._posting_range(token)
        return end - start

    def norms(self, mean_length: float) -> Float32s:
        """Return the BM25 length norms of the documents for a mean document length."""
        cached = self._norms
        if cached is None or cached[0] != mean_length:
            self._norms = cached = mean_length, _norms_of(self, mean_length)
        return cached[1]

    def postings_of(self, token: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents that contain a token, and the frequency in each."""
        start, end = self._posting_range(token)
        return self._postings.docs[start:end], self._postings.freqs[start:end]

    def lists(
        self, tokens: Sequence[int], norms: Float32s, *, with_position: bool = False
    ) -> PostingLists:
        """Return the posting lists of tokens for a search with these norms."""
        return self._arena.lists(tokens, norms, self._encode_list, with_position=with_position)

    def _encode_list(self, token: int, with_position: bool) -> TokenList:
        start, end = self._posting_range(token)
        postings = self._postings
        positions = None
        if with_position and postings.positions is not None:
            positions_start = (
                int(self._position_ends[start] - postings.freqs[start]) if end > start else 0
            )
            positions_end = int(self._position_ends[end - 1]) if end > start else 0
            positions = postings.positions[positions_start:positions_end]
        token_postings = Postings(
            postings.tokens[start:end],
            postings.docs[start:end],
            postings.freqs[start:end],
            positions,
        )
        return TokenList.encode(token_postings, self.block_docs)

    def _posting_range(self, token: int) -> tuple[int, int]:
        return int(self._ends[token - 1]) if token else 0, int(self._ends[token])


def _slices(strings: pa.Array) -> ByteSlices:
    """Return binary values as slices of their buffer."""
    strings = strings.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    if offsets is None:
        empty = np.empty(0, np.int64)
        return ByteSlices(np.empty(0, np.uint8), empty, empty)
    ends = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    source = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ByteSlices(source, ends[:-1], np.diff(ends))
