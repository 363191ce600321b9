"""The INVERTED index kind: maps tokens to the rows that contain them, ranked by BM25.

    texts      0 "a red fox"    1 "red, red"
    postings   fox {0: 1}       red {0: 1, 1: 2}

This module builds, opens, merges and renumbers segments. The search is in the package
`search`, because it compares the scores of several segments.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import CorruptDataError, InvalidInputError, ObjectNotFoundError
from lancelet.format.protos import index_details_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.base import IndexedRows, Move, Parameters, ScalarKind, SearchResult
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.inverted import layout
from lancelet.index.inverted.layout import Codec
from lancelet.index.inverted.partition import MemoryPartition, Partition, StoredPartition
from lancelet.index.inverted.postings import Postings, select_postings, sort_postings
from lancelet.index.inverted.tokens import SortedTokens, all_tokens
from lancelet.index.inverted.write import BUFFER_BYTES, SegmentWriter
from lancelet.index.query import ScalarQuery
from lancelet.index.text.analyzer import Analyzer
from lancelet.index.text.documents import make_analyzer
from lancelet.index.text.elements import (
    check_has_lists,
    is_list,
    is_text,
    list_elements,
    texts_per_row,
)
from lancelet.index.text.options import TextOptions
from lancelet.rowids.address import NO_ADDRESS
from lancelet.rowids.selection import RowSet
from lancelet.values import cached_property

_NEWEST: Final = 3
_MEMORY_VARIABLE: Final = "LANCE_FTS_PARTITION_SIZE"
_GRANULARITY: Final = "document_granularity"
_ROWS: Final = "row"
_ELEMENTS: Final = "list_element"
_INDEX_OPTIONS: Final = {
    "analyzer",
    "format_version",
    "memory_limit",
    "num_workers",
    _GRANULARITY,
}
"""Index parameters other than the options of the tokenizer."""

TEXTS_PER_BATCH: Final = 64 * 1024
"""Number of texts tokenized per batch."""

_SHARED_OPTIONS: Final = (
    "base_tokenizer",
    "language",
    "with_position",
    "max_token_length",
    "lower_case",
    "stem",
    "remove_stop_words",
    "ascii_folding",
    "min_ngram_length",
    "max_ngram_length",
    "prefix_only",
)
"""Options stored in both files and metadata, in all releases that write the block size."""

UInt32s = npt.NDArray[np.uint32]

TOKENS: Final = "tokens.lance"
_OPTIONS: Final = "tokenizer"
_OFFSETS: Final = "offsets"


class InvertedSegment:
    """An open segment of an INVERTED index."""

    def __init__(self, folder: SegmentFolder, *, by_element: bool = False) -> None:
        """Read the options of the segment and open its partitions.

        With `by_element`, which the index metadata records, each list element is a document.
        """
        self.by_element = by_element
        self.is_fst = False
        self.partitions: list[Partition]
        try:
            metadata = folder.open(layout.METADATA).metadata
        except ObjectNotFoundError as error:
            self._open_flat(folder, error)
            return
        try:
            self.options = TextOptions.parse(metadata.get(layout.PARAMS, "{}"))
            self.codec = Codec.from_metadata(metadata)
            numbers = [int(number) for number in json.loads(metadata[layout.PARTITIONS])]
        except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise CorruptDataError(
                "invalid metadata in a text index",
                path=f"{folder.path}/{layout.METADATA}",
                found=str(error),
            ) from error
        self.is_fst = metadata.get(layout.TOKEN_SET) == "fst"
        self.partitions = [
            StoredPartition(folder, number, is_fst=self.is_fst) for number in numbers
        ]

    def _open_flat(self, folder: SegmentFolder, missing: ObjectNotFoundError) -> None:
        """Open a segment in the layout of early releases, or raise `missing`."""
        try:
            self.options, partition = open_flat(folder)
        except ObjectNotFoundError:
            raise missing from None
        self.codec, self.partitions = Codec(), [partition]

    @cached_property
    def analyzer(self) -> Analyzer:
        """Analyzer with the options of the segment."""
        return make_analyzer(self.options)

    def estimate(self, query: ScalarQuery) -> int | None:  # noqa: ARG002
        """Return None; text indices do not support filters."""
        return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Raise; text indices do not support filters."""
        raise InvalidInputError("text indices do not support filters", question=str(query))

    def nulls(self) -> RowSet | None:
        """Return None; rows without tokens are not recorded."""
        return None

    @property
    def memory_bytes(self) -> int:
        """Memory of the partitions in bytes, without posting lists read from files."""
        return sum(each.memory_bytes for each in self.partitions)

    def statistics(self) -> dict[str, Any]:
        """Return the options and the numbers of tokens and documents."""
        return {
            "params": self.options.as_params(),
            "num_tokens": sum(each.num_tokens for each in self.partitions),
            "num_docs": sum(each.corpus.num_docs for each in self.partitions),
        }


class Inverted(ScalarKind[InvertedSegment]):
    """An index that maps tokens to posting lists."""

    name = "INVERTED"
    reads_json_text = True
    title = "Inverted"
    type_url = "/lance.table.InvertedIndexDetails"
    newest_version = 3
    unsupported_message = (
        "an INVERTED index requires a column of strings, lists of strings, or JSON"
    )
    addresses_since = None
    can_remap = True
    reports_progress = True
    accepts_nested_lists = True

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the format version, which determines the encoding of tails and positions."""
        _check_names(parameters)
        version = _make_codec(parameters, TextOptions.from_arguments(parameters.values)).version
        return _NEWEST if _is_by_element(parameters) else version

    def name_suffix(self, parameters: Parameters) -> str:
        """Return the suffix of a default index name."""
        return "list_element_idx" if _is_by_element(parameters) else "idx"

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return the options stored in the index details."""
        message = parse_message(index_details_pb.InvertedIndexDetails, details)
        code = message.code_config
        max_token_length = (
            message.max_token_length if message.HasField("max_token_length") else None
        )
        return {
            "lance_tokenizer": None,
            "base_tokenizer": message.base_tokenizer or "simple",
            "language": json.loads(message.language) if message.language else "English",
            "with_position": message.with_position,
            "max_token_length": max_token_length,
            "lower_case": message.lower_case,
            "stem": message.stem,
            "remove_stop_words": message.remove_stop_words,
            "custom_stop_words": None,
            "ascii_folding": message.ascii_folding,
            "min_ngram_length": message.min_ngram_length or 3,
            "max_ngram_length": message.max_ngram_length or 3,
            "prefix_only": message.prefix_only,
            "block_size": message.block_size or 128,
            "split_identifiers": code.split_identifiers,
            "split_on_numerics": code.split_on_numerics,
            "preserve_original": code.preserve_original,
            "index_operators": code.index_operators,
            "document_granularity": _ELEMENTS if message.document_granularity else _ROWS,
        }

    def infer_parameters(self, details: bytes, segment: InvertedSegment | None) -> Parameters:
        """Return the parameters for another segment. Custom stop words are stored in files only."""
        message = parse_message(index_details_pb.InvertedIndexDetails, details)
        values = self.describe(details)
        if segment is not None:
            values = {**segment.options.as_params(), _GRANULARITY: values[_GRANULARITY]}
        if message.posting_format_version:
            values["format_version"] = message.posting_format_version
        return Parameters(values)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type is a string, a list of strings, or JSON."""
        texts = data_type.value_type if is_list(data_type) else data_type
        return isinstance(data_type, pa.JsonType) or is_text(texts)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Tokenize the texts and write posting lists."""
        return _train(rows, folder, parameters, is_fst=True)

    def append(
        self,
        segment: InvertedSegment,
        rows: IndexedRows,
        folder: SegmentFolder,
        parameters: Parameters,
    ) -> bytes:
        """Write a segment for new rows, with the token set encoding of an existing segment."""
        return _train(rows, folder, parameters, is_fst=segment.is_fst)

    def open(self, folder: SegmentFolder, details: bytes) -> InvertedSegment:
        """Open a segment. Raise if the options in its files and its metadata differ."""
        message = parse_message(index_details_pb.InvertedIndexDetails, details)
        segment = InvertedSegment(folder, by_element=bool(message.document_granularity))
        if message.block_size:
            described, stored = self.describe(details), segment.options.as_params()
            differing = {
                name: stored[name] for name in _SHARED_OPTIONS if stored[name] != described[name]
            }
            if differing:
                raise CorruptDataError(
                    "the options of a text index differ between files and metadata",
                    path=f"{folder.path}/{layout.METADATA}",
                    expected={name: described[name] for name in differing},
                    found=differing,
                )
        return segment

    def merge(
        self,
        segments: Sequence[InvertedSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Write the remaining documents of all partitions, and new rows."""
        newest = segments[-1]
        options, codec, by_element = newest.options, newest.codec, newest.by_element
        is_fst = any(segment.is_fst for segment in segments)
        with SegmentWriter(folder, options, codec, is_fst=is_fst) as writer:
            for segment, move in zip(segments, moves, strict=True):
                _add_segment(writer, segment, move)
            _add_rows(writer, rows, newest.analyzer, by_element=by_element)
            writer.finish()
        return _details(options, codec, by_element=by_element)


def _train(
    rows: IndexedRows, folder: SegmentFolder, parameters: Parameters, *, is_fst: bool
) -> bytes:
    _check_names(parameters)
    by_element = _is_by_element(parameters)
    if by_element:
        check_has_lists(rows.data_type)
    options = TextOptions.from_arguments(parameters.values)
    if isinstance(rows.data_type, pa.JsonType):
        options = replace(options, lance_tokenizer="json")
    codec, buffer_bytes = _make_codec(parameters, options), _memory_limit_bytes(parameters)
    with SegmentWriter(folder, options, codec, buffer_bytes, is_fst=is_fst) as writer:
        _add_rows(writer, rows, make_analyzer(options), by_element=by_element)
        writer.finish(rows.progress)
    return _details(options, codec, by_element=by_element)


def _add_rows(
    writer: SegmentWriter, rows: IndexedRows, analyzer: Analyzer, *, by_element: bool
) -> None:
    done = 0
    rows.progress("tokenize_docs", done, rows.num_rows)
    for values, numbers in rows.parts:
        for start in range(0, len(values), TEXTS_PER_BATCH):
            batch, batch_numbers = (
                values.slice(start, TEXTS_PER_BATCH),
                numbers[start:][:TEXTS_PER_BATCH],
            )
            if by_element:
                elements = list_elements(batch)
                writer.add_texts(
                    elements.texts, batch_numbers[elements.rows], analyzer, elements.element_indices
                )
            else:
                writer.add_texts(texts_per_row(batch), batch_numbers, analyzer)
            done += len(batch)
            rows.progress("tokenize_docs", done, rows.num_rows)


def _add_segment(writer: SegmentWriter, segment: InvertedSegment, move: Move) -> None:
    for partition in segment.partitions:
        tokens, postings = partition.read_all()
        numbers = move(partition.numbers)
        is_live = numbers != NO_ADDRESS
        lengths, element_indices = partition.lengths, partition.element_indices
        if not is_live.all():
            remaining = select_postings(postings, is_live[postings.docs])
            renumbered = (np.cumsum(is_live) - 1).astype(np.uint32)
            postings = Postings(
                remaining.tokens, renumbered[remaining.docs], remaining.freqs, remaining.positions
            )
            numbers, lengths, element_indices = (
                numbers[is_live],
                lengths[is_live],
                element_indices[is_live],
            )
            used = np.unique(postings.tokens)
            tokens = [tokens[number] for number in used.tolist()]
            postings = Postings(
                np.searchsorted(used, postings.tokens).astype(np.uint32),
                postings.docs,
                postings.freqs,
                postings.positions,
            )
        writer.add_postings(tokens, postings, numbers, lengths, element_indices)


def _check_names(parameters: Parameters) -> None:
    """Raise for unknown parameters, such as the misspelled `with_positions`."""
    supported = {field.name for field in fields(TextOptions)} | _INDEX_OPTIONS
    unknown = sorted(parameters.values.keys() - supported)
    if unknown:
        raise InvalidInputError(
            f"unknown FTS index parameter '{unknown[0]}'", found=unknown, expected=sorted(supported)
        )


def _memory_limit_bytes(parameters: Parameters) -> int:
    """Return the memory limit for postings in bytes. The parameter is in MiB."""
    given = parameters.values.get("memory_limit", os.environ.get(_MEMORY_VARIABLE))
    if given is None:
        return BUFFER_BYTES
    if not str(given).isdecimal():
        raise InvalidInputError("memory_limit must be a number of MiB", memory_limit=given)
    return int(given) << 20


def _make_codec(parameters: Parameters, options: TextOptions) -> Codec:
    given = parameters.values.get("format_version")
    if given is None:
        needs_v3 = options.block_size == 256 or options.base_tokenizer == "code"
        return Codec(_NEWEST if needs_v3 else 2, options.block_size)
    text = str(given).lower().removeprefix("v")
    codec = Codec(int(text) if text.isdecimal() else 0, options.block_size)
    if options.base_tokenizer == "code" and codec.version != _NEWEST:
        raise InvalidInputError(
            f"base_tokenizer='code' requires FTS format_version=3, got {codec.version}"
        )
    return codec


def _is_by_element(parameters: Parameters) -> bool:
    """Return whether each list element is a document."""
    given = parameters.values.get(_GRANULARITY) or _ROWS
    if given not in (_ROWS, _ELEMENTS):
        raise InvalidInputError(
            f"unknown FTS document granularity '{given}'; expected 'row' or 'list_element'"
        )
    return bool(given == _ELEMENTS)


def _details(options: TextOptions, codec: Codec, *, by_element: bool) -> bytes:
    details = index_details_pb.InvertedIndexDetails(
        base_tokenizer=options.base_tokenizer,
        language=json.dumps(options.language),
        with_position=options.with_position,
        lower_case=options.lower_case,
        stem=options.stem,
        remove_stop_words=options.remove_stop_words,
        ascii_folding=options.ascii_folding,
        min_ngram_length=options.min_ngram_length,
        max_ngram_length=options.max_ngram_length,
        prefix_only=options.prefix_only,
        block_size=codec.block_docs,
        posting_format_version=codec.version,
        document_granularity=(
            index_details_pb.InvertedIndexDetails.LIST_ELEMENT
            if by_element
            else index_details_pb.InvertedIndexDetails.ROW
        ),
    )
    if options.max_token_length is not None:
        details.max_token_length = options.max_token_length
    if options.base_tokenizer == "code":
        details.code_config.split_identifiers = options.split_identifiers
        details.code_config.split_on_numerics = options.split_on_numerics
        details.code_config.preserve_original = options.preserve_original
        details.code_config.index_operators = options.index_operators
    return render_message(details)


def open_flat(folder: SegmentFolder) -> tuple[TextOptions, MemoryPartition]:
    """Read a segment of an early release and return its options and documents.

    These segments are uncompressed and small. They have one partition and one row per posting:

        tokens.lance     _token, _token_id                   options in the metadata key `tokenizer`
        docs.lance       _rowid, _num_tokens
        invert.lance     _rowid, _frequency, _position       token i starts at row offsets[i]
    """
    files = [folder.open(name) for name in (TOKENS, "docs.lance", "invert.lance")]
    try:
        return _read(*files)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptDataError(
            "invalid text index in the layout of early releases", path=folder.path, found=str(error)
        ) from error


def _read(
    tokens: StoredFile, docs: StoredFile, occurrences: StoredFile
) -> tuple[TextOptions, MemoryPartition]:
    options = json.loads(tokens.metadata.get(_OPTIONS, "{}"))
    texts, ids = tokens.read(["_token", "_token_id"])
    names = all_tokens(SortedTokens(texts, ids.to_numpy()), tokens.num_rows)
    numbers, lengths = (column.to_numpy() for column in docs.read(["_rowid", "_num_tokens"]))
    row_ids, freqs = occurrences.read(["_rowid", "_frequency"])
    starts = np.array(json.loads(occurrences.metadata[_OFFSETS]), np.int64)
    counts = np.diff(starts, append=occurrences.num_rows)
    if len(starts) != len(names) or np.any(counts < 0) or starts[:1].any():
        raise ValueError("overlapping posting lists")
    order = np.argsort(numbers)
    sorted_positions = np.searchsorted(numbers, row_ids.to_numpy(), sorter=order)
    docs_by_posting = order[np.minimum(sorted_positions, len(order) - 1)]
    if np.any(numbers[docs_by_posting] != row_ids.to_numpy()):
        raise ValueError("a posting refers to an unknown document")
    with_position = "_position" in occurrences.schema.names
    frequencies = freqs.to_numpy().astype(np.uint32)
    postings = Postings(
        np.repeat(np.arange(len(names), dtype=np.uint32), counts),
        docs_by_posting.astype(np.uint32),
        frequencies,
        _positions(occurrences, frequencies) if with_position else None,
    )
    partition = MemoryPartition(names, sort_postings(postings), numbers, lengths)
    return TextOptions.from_params({**options, "with_position": with_position}), partition


def _positions(occurrences: StoredFile, freqs: UInt32s) -> UInt32s:
    (lists,) = occurrences.read(["_position"])
    if np.any(lists.value_lengths().to_numpy() != freqs):
        raise ValueError("the number of positions differs from the token frequency")
    positions: UInt32s = lists.flatten().to_numpy().astype(np.uint32)
    return positions
