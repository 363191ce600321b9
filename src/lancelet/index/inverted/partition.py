"""A partition: documents, tokens, and which token is in which document.

One that is stored is read as it is asked; one in memory holds rows that no index has. Both answer
the same questions, so that scores are computed in one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.index.folder import SegmentFolder
from lancelet.index.inverted import layout
from lancelet.index.inverted.arena import ListArena
from lancelet.index.inverted.bm25 import Corpus, norms_of, quantized_lengths
from lancelet.index.inverted.layout import Codec
from lancelet.index.inverted.postings import Postings, parse_positions, positions_of
from lancelet.index.inverted.tokens import (
    AutomatonTokens,
    Blocks,
    SortedTokens,
    TokenAutomaton,
    TokenList,
    TokenSet,
    all_tokens,
    streams_of,
)
from lancelet.index.inverted.write import block_sizes
from lancelet.index.text.elements import Places, no_places
from lancelet.io.cache import estimate_bytes
from lancelet.io.metered import IoCounts
from lancelet.kernels import PostingLists, decode_postings, decode_streams
from lancelet.rowids.address import UInt64s
from lancelet.values import cached_property

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]


class Partition(Protocol):
    """Documents, and what there is to find them by."""

    @property
    def numbers(self) -> UInt64s:
        """The number of the row of each document."""

    @property
    def places(self) -> Places:
        """Where each document is in the lists of its row, with no columns if rows are documents."""

    @property
    def lengths(self) -> UInt32s:
        """How many tokens each document has."""

    @property
    def corpus(self) -> Corpus:
        """How many documents and tokens there are."""

    @property
    def block_docs(self) -> int:
        """How many documents a block has."""

    @property
    def has_positions(self) -> bool:
        """Whether positions are known."""

    @property
    def tokens(self) -> TokenSet:
        """The tokens."""

    @property
    def num_tokens(self) -> int:
        """How many tokens there are."""

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""

    def everything(self) -> tuple[list[str], Postings]:
        """Return all tokens and all postings."""

    def num_docs_with(self, token: int) -> int:
        """Return how many documents have a token."""

    def norms(self, mean_length: float) -> Float32s:
        """Return the norms of the documents, if they have so many tokens on average."""

    def postings_of(self, token: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents that have a token, and how often each has it."""

    def lists(
        self, tokens: Sequence[int], norms: Float32s, *, with_position: bool = False
    ) -> PostingLists:
        """Return the lists of tokens that documents have, for a search with these norms."""


_QUANTIZED_BLOCK_DOCS: Final = 256
"""Where blocks have so many documents, norms come of lengths that were rounded."""

_LISTS: Final = "lists"
_NUMBERS: Final = "numbers"
_LENGTHS: Final = "lengths"
_TOKENS: Final = "tokens"
_COUNTS: Final = "counts"
"""What is kept of a partition, by name."""


class StoredPartition:
    """A partition in files."""

    def __init__(self, folder: SegmentFolder, number: int, *, is_automaton: bool) -> None:
        """Open the files of a partition."""
        self._docs = folder.open(layout.file_name(number, "docs"))
        self._token_file = folder.open(layout.file_name(number, "tokens"))
        self._invert = folder.open(layout.file_name(number, "invert"))
        self._is_automaton = is_automaton
        self.codec = Codec.of(self._invert.metadata)
        names = self._invert.schema.names
        self._loads, self._kept, self._number = folder.loads, folder.kept, number
        self._position_column = next(
            (name for name in ("_compressed_position", "_position") if name in names), None
        )

    @property
    def block_docs(self) -> int:
        """How many documents a block has."""
        return self.codec.block_docs

    @property
    def has_positions(self) -> bool:
        """Whether positions are known."""
        return self._position_column is not None

    def _key(self, name: str) -> tuple[str, int]:
        return name, self._number

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes by itself: what it reads is weighed apart, and shared."""
        return 0

    @property
    def _arena(self) -> ListArena:
        return self._kept.get_or_make(
            self._key(_LISTS),
            lambda: ListArena(block_docs=self.block_docs, is_varint=self.codec.is_varint),
        )

    @property
    def numbers(self) -> UInt64s:
        """The number of the row of each document."""
        return self._kept.get_or_make(self._key(_NUMBERS), lambda: self._read_docs("_rowid"))

    @property
    def places(self) -> Places:
        """Where each document is in the lists of its row, with no columns if rows are documents."""
        depth = len(self._docs.schema.names) - len(layout.docs_schema(0))
        if not depth:
            return no_places(self._docs.num_rows)
        return self._kept.get_or_make(self._key("places"), lambda: self._read_places(depth))

    def _read_places(self, depth: int) -> Places:
        columns = self._docs.read([layout.place_name(each) for each in range(depth)])
        return np.stack([column.to_numpy() for column in columns], axis=1)

    @property
    def lengths(self) -> UInt32s:
        """How many tokens each document has."""
        return self._kept.get_or_make(self._key(_LENGTHS), lambda: self._read_docs("_num_tokens"))

    def _read_docs(self, column: str) -> Any:
        (found,) = self._docs.read([column])
        return found.to_numpy()

    @cached_property
    def corpus(self) -> Corpus:
        """How many documents and tokens there are."""
        return Corpus(self._docs.num_rows, int(self.lengths.sum(dtype=np.int64)))

    @property
    def num_tokens(self) -> int:
        """How many tokens there are."""
        return self._invert.num_rows

    @property
    def tokens(self) -> TokenSet:
        """The tokens."""
        return self._kept.get_or_make(self._key(_TOKENS), self._read_tokens)

    def _read_tokens(self) -> TokenSet:
        if self._is_automaton:
            (data,) = self._token_file.read(["_token_fst_bytes"])
            automaton = TokenAutomaton(data[0].as_py() if len(data) else b"")
            return AutomatonTokens(automaton, self.num_tokens)
        tokens, ids = self._token_file.read(["_token", "_token_id"])
        return SortedTokens(tokens, ids.to_numpy())

    @property
    def _counts(self) -> UInt32s:
        return self._kept.get_or_make(self._key(_COUNTS), self._read_counts)

    def _read_counts(self) -> UInt32s:
        (column,) = self._invert.read(["_length"])
        found: UInt32s = column.to_numpy()
        return found

    def _has(self, name: str) -> bool:
        """Return whether something is in memory."""
        return self._key(name) in self._kept

    def num_docs_with(self, token: int) -> int:
        """Return how many documents have a token."""
        if token >= self.num_tokens:
            raise CorruptDataError("a token has no postings", token=token, tokens=self.num_tokens)
        return int(self._counts[token])

    def norms(self, mean_length: float) -> Float32s:
        """Return the norms of the documents, if they have so many tokens on average."""
        key = ("norms", self._number, mean_length)
        return self._kept.get_or_make(key, lambda: _norms_of(self, mean_length))

    def postings_of(self, token: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents that have a token, and how often each has it."""
        return self._read_list(token, False).decode(self.corpus.num_docs)

    def lists(
        self, tokens: Sequence[int], norms: Float32s, *, with_position: bool = False
    ) -> PostingLists:
        """Return the lists of tokens that documents have, for a search with these norms."""
        read = self._loads.parts
        found = self._arena.lists(
            tokens, norms, self._read_list, with_position=with_position, loads=self._loads
        )
        if self._loads.parts != read:
            self._kept.update_size(self._key(_LISTS))
        return found

    def estimate_reads(self, tokens: Sequence[str], *, with_position: bool) -> IoCounts:
        """Return about what searching tokens will read, of what is not in memory."""
        found = IoCounts()
        if not self._has(_NUMBERS):
            found += self._docs.estimate_reads(["_rowid"])
        if not self._has(_LENGTHS):
            found += self._docs.estimate_reads(["_num_tokens"])
        if not self._has(_COUNTS):
            found += self._invert.estimate_reads(["_length"])
        columns = ["_posting", *self._position_columns] if with_position else ["_posting"]
        if not self._has(_TOKENS):
            found += self._token_file.estimate_reads(self._token_columns)
            each = self._invert.estimate_reads(columns)
            share = min(len(tokens), self.num_tokens) / max(1, self.num_tokens)
            return found + IoCounts(each.read_iops * len(tokens), int(each.read_bytes * share))
        for token in tokens:
            number = self.tokens.find(token)
            if number is not None and not self._arena.holds(number, with_position=with_position):
                found += self._expected_list(columns, number)
        return found

    def _expected_list(self, columns: Sequence[str], number: int) -> IoCounts:
        """Return about what reading the list of a token asks for, by how many documents it has."""
        requests = self._invert.estimate_reads(columns, RowRange(number, number + 1)).read_iops
        everything = self._invert.estimate_reads(columns).read_bytes
        counts = self._counts if self._has(_COUNTS) else np.ones(self.num_tokens, np.uint32)
        share = int(counts[number]) / max(1, int(counts.sum(dtype=np.int64)))
        return IoCounts(requests, int(everything * share))

    def known_docs_with(self, tokens: Sequence[str]) -> list[int] | None:
        """Return how many documents have each token, or None if that is not in memory."""
        if not self._has(_TOKENS) or not self._has(_COUNTS):
            return None
        numbers = [self.tokens.find(token) for token in tokens]
        return [0 if number is None else self.num_docs_with(number) for number in numbers]

    @property
    def _token_columns(self) -> list[str]:
        return ["_token_fst_bytes"] if self._is_automaton else ["_token", "_token_id"]

    @property
    def _position_columns(self) -> list[str]:
        if "_position_block_offset" in self._invert.schema.names:
            return ["_compressed_position", "_position_block_offset"]
        return [] if self._position_column is None else [self._position_column]

    def everything(self) -> tuple[list[str], Postings]:
        """Return all tokens and all postings."""
        tokens = all_tokens(self.tokens, self.num_tokens)
        rows = RowRange(0, self.num_tokens)
        return tokens, self._read(rows, with_position=self.has_positions)

    def _read_list(self, token: int, with_position: bool) -> TokenList:
        rows = RowRange(token, token + 1)
        counts = self._counts[token : token + 1].astype(np.int64)
        stored, blocks, sizes = self._read_blocks(rows, counts)
        found = TokenList(int(counts[0]), Blocks.of(stored), self.block_docs, self.codec.is_varint)
        if not with_position:
            return found
        if "_position_block_offset" in self._invert.schema.names:
            return replace(found, streams=Blocks.of(self._streams(rows, blocks)))
        _, freqs = found.decode(self.corpus.num_docs)
        positions = self._positions(rows, freqs, sizes, blocks)
        return replace(found, streams=streams_of(positions, freqs, sizes))

    def _read_blocks(self, rows: RowRange, counts: Int64s) -> tuple[Slices, Int64s, Int64s]:
        """Return the blocks of lists, how many each has, and the documents of each."""
        (lists,) = self._invert.read(["_posting"], rows)
        blocks, sizes = block_sizes(counts, self.block_docs)
        if lists.value_lengths().to_numpy(zero_copy_only=False).tolist() != blocks.tolist():
            raise CorruptDataError("a posting list has not as many blocks as it must have")
        return _slices(lists.flatten()), blocks, sizes

    def _read(self, rows: RowRange, *, with_position: bool) -> Postings:
        counts = self._counts[rows.start : rows.stop].astype(np.int64)
        stored, blocks, sizes = self._read_blocks(rows, counts)
        docs, freqs = decode_postings(
            stored, sizes, block_docs=self.block_docs, is_varint=self.codec.is_varint
        )
        if len(docs) and int(docs.max()) >= self.corpus.num_docs:
            raise CorruptDataError("a posting list names a document that is not there")
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

    def _streams(self, rows: RowRange, blocks: Int64s) -> Slices:
        """Return the positions of each block of lists."""
        streams, offsets = self._invert.read(
            ["_compressed_position", "_position_block_offset"], rows
        )
        whole = _slices(streams)
        starts = np.repeat(whole.position, blocks)
        ends = np.repeat(whole.position + whole.size, blocks)
        own = offsets.flatten().to_numpy().astype(np.int64)
        if len(own) != len(starts):
            raise CorruptDataError("a position stream has not as many blocks as it must have")
        begins = starts + own
        stops = np.append(begins[1:], 0)
        last = np.cumsum(blocks) - 1
        stops[last] = ends[last]
        return Slices(whole.source, begins, stops - begins)


def _norms_of(partition: Partition, mean_length: float) -> Float32s:
    """Return the norms of documents that have so many tokens on average."""
    lengths = partition.lengths
    if partition.block_docs == _QUANTIZED_BLOCK_DOCS:
        lengths = quantized_lengths(lengths)
    return norms_of(lengths, mean_length)


class MemoryPartition:
    """A partition of rows that were just read, or of an index that is read as a whole."""

    block_docs = 128

    def __init__(
        self,
        tokens: Sequence[str],
        postings: Postings,
        numbers: UInt64s,
        lengths: UInt32s,
        places: Places | None = None,
    ) -> None:
        """Search posting lists."""
        self.places = no_places(len(numbers)) if places is None else places
        self._names = tokens
        self.has_positions = postings.positions is not None
        order = sorted(range(len(tokens)), key=lambda place: tokens[place].encode())
        texts = pa.array([tokens[place] for place in order], pa.string())
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
        """How much memory it takes, with the posting lists that were asked for."""
        return self._own_bytes + 4 * len(self.lengths) + self._arena.memory_bytes

    @cached_property
    def _own_bytes(self) -> int:
        arrays = self.numbers, self.lengths, self._ends, self._position_ends
        names = 2 * sum(map(estimate_bytes, self._names))
        return sum(each.nbytes for each in arrays) + names + estimate_bytes(self._postings)

    @property
    def num_tokens(self) -> int:
        """How many tokens there are."""
        return len(self._names)

    def everything(self) -> tuple[list[str], Postings]:
        """Return all tokens and all postings."""
        return list(self._names), self._postings

    def num_docs_with(self, token: int) -> int:
        """Return how many documents have a token."""
        start, end = self._span(token)
        return end - start

    def norms(self, mean_length: float) -> Float32s:
        """Return the norms of the documents, if they have so many tokens on average."""
        known = self._norms
        if known is None or known[0] != mean_length:
            self._norms = known = mean_length, _norms_of(self, mean_length)
        return known[1]

    def postings_of(self, token: int) -> tuple[UInt32s, UInt32s]:
        """Return the documents that have a token, and how often each has it."""
        start, end = self._span(token)
        return self._postings.docs[start:end], self._postings.freqs[start:end]

    def lists(
        self, tokens: Sequence[int], norms: Float32s, *, with_position: bool = False
    ) -> PostingLists:
        """Return the lists of tokens that documents have, for a search with these norms."""
        return self._arena.lists(tokens, norms, self._list_of, with_position=with_position)

    def _list_of(self, token: int, with_position: bool) -> TokenList:
        start, end = self._span(token)
        all_of = self._postings
        positions = None
        if with_position and all_of.positions is not None:
            before = int(self._position_ends[start] - all_of.freqs[start]) if end > start else 0
            after = int(self._position_ends[end - 1]) if end > start else 0
            positions = all_of.positions[before:after]
        own = Postings(
            all_of.tokens[start:end], all_of.docs[start:end], all_of.freqs[start:end], positions
        )
        return TokenList.of(own, self.block_docs)

    def _span(self, token: int) -> tuple[int, int]:
        return int(self._ends[token - 1]) if token else 0, int(self._ends[token])


def _slices(strings: pa.Array) -> Slices:
    """Return byte strings as slices of their buffer."""
    strings = strings.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    if offsets is None:
        nothing = np.empty(0, np.int64)
        return Slices(np.empty(0, np.uint8), nothing, nothing)
    ends = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    source = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Slices(source, ends[:-1], np.diff(ends))
