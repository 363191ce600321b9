"""Writer of INVERTED segments. Buffers postings and writes a partition when the buffer is full.

    texts         the tokens of a batch are inverted immediately
    partitions    of merged segments are added with renumbered documents
    flush         encodes and writes the postings of a range of tokens at a time

The number of postings per partition is limited, which bounds memory for any number of rows.
Postings of a batch are sorted by token, so a flush merges only the postings of a few tokens at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, Int64s
from lancelet.index.base import Progress, silent
from lancelet.index.folder import SegmentFolder
from lancelet.index.inverted import layout
from lancelet.index.inverted.bm25 import Corpus, length_codes, norms_of, weights
from lancelet.index.inverted.layout import Codec
from lancelet.index.inverted.packed import PostingBuffer
from lancelet.index.inverted.postings import (
    Postings,
    invert,
    join,
    position_steps,
    render_positions,
)
from lancelet.index.inverted.tokens import render_fst
from lancelet.index.kernels import encode_impacts, encode_postings, encode_streams
from lancelet.index.kernels.postings import BLOCKS_PER_GROUP
from lancelet.index.text.analyzer import Analyzer, Vocabulary
from lancelet.index.text.elements import ElementIndices, no_element_indices
from lancelet.index.text.options import TextOptions
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

UInt32s = npt.NDArray[np.uint32]

POSTINGS_MAX: Final = 32 * 1024 * 1024
"""Approximate number of postings per partition."""

BUFFER_BYTES: Final = 16 << 20
"""Bytes of postings buffered in memory before they spill to a file."""

_POSTINGS_PER_BATCH: Final = 128 * 1024
"""Number of postings merged at a time during a flush."""

_PLAIN: Final = {"lance-encoding:compression": "none"}


class SegmentWriter(AbstractContextManager["SegmentWriter"]):
    """Writes the partitions of a segment, then its metadata."""

    def __init__(
        self,
        folder: SegmentFolder,
        options: TextOptions,
        codec: Codec,
        buffer_bytes: int = BUFFER_BYTES,
        *,
        is_fst: bool = True,
    ) -> None:
        """Create a writer that buffers up to `buffer_bytes` of postings in memory.

        Token sets are written as FSTs, or as sorted columns if other segments of the index use
        columns: the reference writes FSTs and does not merge segments with different encodings.
        """
        self._is_fst = is_fst
        self._folder, self._options, self._codec = folder, options, codec
        self._buffer_bytes = buffer_bytes
        self._partitions = 0
        self._start()

    def __exit__(self, *_: object) -> None:
        """Discard unwritten postings."""
        self._buffer.close()

    def add_texts(
        self,
        texts: pa.Array,
        numbers: UInt64s,
        analyzer: Analyzer,
        element_indices: ElementIndices | None = None,
    ) -> None:
        """Add rows of texts. Without `element_indices`, rows without tokens are skipped."""
        analyzed = analyzer.analyze(texts, self._vocabulary)
        has_tokens = analyzed.counts > 0
        if element_indices is None and not has_tokens.all():
            numbers, counts = numbers[has_tokens], analyzed.counts[has_tokens]
            analyzed = type(analyzed)(analyzed.ids, analyzed.positions, counts)
        postings = invert(
            analyzed,
            len(self._vocabulary.tokens),
            self._num_docs,
            with_position=self._options.with_position,
        )
        self._add(postings, numbers, analyzed.counts.astype(np.uint32), element_indices)

    def add_postings(
        self,
        tokens: Sequence[str],
        postings: Postings,
        numbers: UInt64s,
        lengths: UInt32s,
        element_indices: ElementIndices,
    ) -> None:
        """Add documents of another partition, numbered from 0."""
        number = self._vocabulary.number
        ids = np.fromiter((number(token) for token in tokens), np.uint32, len(tokens))
        docs = postings.docs + np.uint32(self._num_docs)
        renumbered = Postings(ids[postings.tokens], docs, postings.freqs, postings.positions)
        self._add(renumbered, numbers, lengths, element_indices)

    def finish(self, progress: Progress = silent) -> None:
        """Write the remaining postings and the metadata."""
        progress("copy_partitions", 0, 1)
        if self._num_docs:
            self._flush()
        progress("copy_partitions", 1, 1)
        progress("write_metadata", 0, 1)
        metadata = {
            layout.PARTITIONS: f"[{','.join(map(str, range(self._partitions)))}]",
            layout.PARAMS: self._options.render(),
            layout.TOKEN_SET: "fst" if self._is_fst else "arrow",
            **self._codec.as_metadata(with_position=self._options.with_position),
        }
        empty = bytes.fromhex("3a30000000000000")
        field = pa.field(layout.DELETED_FRAGMENTS, pa.binary(), nullable=False)
        table = pa.Table.from_arrays([pa.array([empty], pa.binary())], schema=pa.schema([field]))
        self._folder.write(layout.METADATA, table, metadata)
        progress("write_metadata", 1, 1)

    def _start(self) -> None:
        self._vocabulary = Vocabulary()
        self._buffer = PostingBuffer(self._buffer_bytes)
        self._numbers: list[UInt64s] = []
        self._lengths: list[UInt32s] = []
        self._element_indices: list[ElementIndices] = []
        self._num_docs = self._num_postings = 0

    def _add(
        self,
        postings: Postings,
        numbers: UInt64s,
        lengths: UInt32s,
        element_indices: ElementIndices | None,
    ) -> None:
        if np.any(postings.tokens[1:] < postings.tokens[:-1]):
            postings = join([postings], len(self._vocabulary.tokens))
        self._buffer.add(postings)
        self._numbers.append(numbers)
        self._lengths.append(lengths)
        self._element_indices.append(
            no_element_indices(len(numbers)) if element_indices is None else element_indices
        )
        self._num_docs += len(numbers)
        self._num_postings += len(postings)
        if self._num_postings >= POSTINGS_MAX:
            self._flush()

    def _flush(self) -> None:
        num_tokens = len(self._vocabulary.tokens)
        lengths = np.concatenate(self._lengths)
        numbers = np.concatenate(self._numbers)
        number = self._partitions
        element_indices = np.concatenate(self._element_indices).T
        docs = pa.Table.from_arrays(
            [
                pa.array(numbers),
                pa.array(lengths),
                *map(pa.array, np.ascontiguousarray(element_indices)),
            ],
            schema=layout.docs_schema(len(element_indices)),
        )
        total = int(lengths.sum(dtype=np.int64))
        self._folder.write(
            layout.file_name(number, "docs"), docs, {layout.TOTAL_TOKENS: str(total)}
        )
        self._folder.write(
            layout.file_name(number, "tokens"),
            _token_table(self._vocabulary.tokens, is_fst=self._is_fst),
        )
        self._vocabulary = Vocabulary()  # Release memory before the lists are written.
        self._write_lists(
            layout.file_name(number, "invert"), _Documents.from_lengths(lengths), num_tokens
        )
        self._partitions += 1
        self._buffer.close()
        self._start()

    def _write_lists(self, name: str, documents: _Documents, num_tokens: int) -> None:
        """Write the posting lists of all tokens, a range of tokens at a time."""
        tables = (
            _posting_table(postings, documents, count, self._codec)
            for count, postings in self._buffer.by_tokens(num_tokens, _POSTINGS_PER_BATCH)
        )
        first = next(tables)
        with self._folder.create(name, first.schema) as file:
            file.write(first)
            for table in tables:
                file.write(table)
                # The memory pool would retain the memory of long posting lists.
                pa.default_memory_pool().release_unused()
            metadata = self._codec.as_metadata(with_position=self._options.with_position)
            for key, value in metadata.items():
                file.add_schema_metadata(key, value)


@dataclass(frozen=True, slots=True, eq=False)
class _Documents:
    """The corpus statistics and document norms of a partition."""

    corpus: Corpus
    norms: npt.NDArray[np.float32]
    codes: npt.NDArray[np.uint8]

    @staticmethod
    def from_lengths(lengths: UInt32s) -> _Documents:
        corpus = Corpus(len(lengths), int(lengths.sum(dtype=np.int64)))
        norms = norms_of(lengths, corpus.mean_length)
        return _Documents(corpus, norms, length_codes(lengths).astype(np.uint8))


def _token_table(tokens: Sequence[str], *, is_fst: bool) -> pa.Table:
    texts = pa.array(tokens, pa.string())
    order = pc.array_sort_indices(texts)  # in byte order, as required by readers
    ordered = texts.take(order)
    if not is_fst:
        return pa.Table.from_arrays([ordered, order.cast(pa.uint32())], schema=layout.TOKENS_SCHEMA)
    _, offsets, data = ordered.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(tokens) + 1].astype(np.int64)
    source = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    fst = render_fst(ends, source, order.to_numpy().astype(np.int64))
    values = ([fst], [len(tokens)], [int(ends[-1])])
    arrays = map(pa.array, values, layout.FST_SCHEMA.types)
    return pa.Table.from_arrays(list(arrays), schema=layout.FST_SCHEMA)


def _posting_table(
    postings: Postings, documents: _Documents, num_tokens: int, codec: Codec
) -> pa.Table:
    counts = postings.counts(num_tokens)
    blocks, block_counts = block_sizes(counts, codec.block_docs)
    idf = np.array([documents.corpus.idf(count) for count in counts.tolist()], np.float32)
    scores = idf[postings.tokens] * weights(postings.freqs, documents.norms[postings.docs])
    block_scores = (
        np.maximum.reduceat(scores, _group_starts(block_counts)) if len(scores) else scores
    )
    list_scores = (
        np.maximum.reduceat(block_scores, _group_starts(blocks)) if len(scores) else scores
    )
    data, ends = encode_postings(
        postings.docs,
        postings.freqs,
        counts,
        block_scores,
        block_docs=codec.block_docs,
        is_varint=codec.is_varint,
    )
    columns = {
        _field("_posting", pa.list_(pa.large_binary())): _lists(_binaries(data, ends), blocks),
        _field("_max_score", pa.float32()): pa.array(list_scores, pa.float32()),
        _field("_length", pa.uint32()): pa.array(counts.astype(np.uint32)),
        _field("_impacts", pa.list_(pa.large_binary())): _impacts(
            postings, counts, documents, codec
        ),
    }
    if postings.positions is not None:
        columns |= _position_columns(postings, postings.positions, blocks, block_counts, codec)
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(list(columns)))


def _impacts(
    postings: Postings,
    counts: Int64s,
    documents: _Documents,
    codec: Codec,
) -> pa.Array:
    """Return the impacts of each block: upper bounds of its scores for any corpus statistics."""
    data, ends = encode_impacts(
        postings.docs, postings.freqs, counts, documents.codes, block_docs=codec.block_docs
    )
    blocks = -(-counts // codec.block_docs)
    return _lists(_binaries(data, ends), blocks + -(-blocks // BLOCKS_PER_GROUP))


def _position_columns(
    postings: Postings,
    positions: UInt32s,
    blocks: Int64s,
    block_counts: Int64s,
    codec: Codec,
) -> dict[pa.Field, pa.Array]:
    if not codec.is_varint:
        old = render_positions(
            positions, postings.freqs, np.add.reduceat(block_counts, _group_starts(blocks))
        )
        return {_field("_position", pa.list_(pa.list_(pa.large_binary()))): old}
    steps = position_steps(positions, postings.freqs)
    per_block = np.add.reduceat(postings.freqs.astype(np.int64), _group_starts(block_counts))
    data, ends = encode_streams(steps, per_block)
    last = np.cumsum(blocks) - 1
    token_ends = ends[last]
    token_starts = np.concatenate([np.zeros(1, np.int64), token_ends[:-1]])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    offsets = (starts - np.repeat(token_starts, blocks)).astype(np.uint32)
    return {
        _field("_compressed_position", pa.large_binary()): _binaries(data, token_ends),
        _field("_position_block_offset", pa.list_(pa.uint32())): _lists(pa.array(offsets), blocks),
    }


def block_sizes(counts: Int64s, block_docs: int) -> tuple[Int64s, Int64s]:
    """Return the number of blocks of each list, and the number of documents of each block.

    >>> blocks, sizes = block_sizes(np.array([3, 300]), 128)
    >>> blocks.tolist(), sizes.tolist()
    ([1, 3], [3, 128, 128, 44])
    """
    blocks = -(-counts // block_docs)
    sizes = np.full(int(blocks.sum()), block_docs, np.int64)
    last = np.cumsum(blocks) - 1
    sizes[last] = counts - (blocks - 1) * block_docs
    return blocks, sizes


def _group_starts(counts: Int64s) -> Int64s:
    """Return the start offset of each group."""
    starts: Int64s = np.cumsum(counts) - counts
    return starts


def _field(name: str, data_type: pa.DataType) -> pa.Field:
    return pa.field(name, data_type, nullable=False, metadata=_PLAIN)


def _binaries(data: Bytes, ends: Int64s) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)


def _lists(values: pa.Array, counts: Int64s) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
