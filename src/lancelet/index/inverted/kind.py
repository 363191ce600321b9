"""The INVERTED kind: texts by their tokens, scored by BM25.

    texts      0 "a red fox"    1 "red, red"
    postings   fox {0: 1}       red {0: 1, 1: 2}

The search for the best rows is in `query`, since scores of several segments are compared; here is
how segments are made, read, merged and renumbered.

Segments as the first releases wrote them: one partition, and a row for every occurrence.

    tokens.lance     _token, _token_id                   options in the metadata, as `tokenizer`
    docs.lance       _rowid, _num_tokens
    invert.lance     _rowid, _frequency, _position       rows of token i from offsets[i] on

Such segments are small, as nothing is packed in them, so they are read as a whole.
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
from lancelet.index.inverted.postings import Postings, in_order, selected
from lancelet.index.inverted.tokens import SortedTokens, all_tokens
from lancelet.index.inverted.write import WAITING_BYTES, SegmentWriter
from lancelet.index.query import ScalarQuery
from lancelet.index.text.analyzer import Analyzer
from lancelet.index.text.documents import analyzer_of
from lancelet.index.text.elements import (
    check_has_lists,
    elements_of,
    is_list,
    is_text,
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
_BESIDE_OPTIONS: Final = {
    "analyzer",
    "format_version",
    "memory_limit",
    "num_workers",
    _GRANULARITY,
}
"""What an index may be asked for beside how texts are cut."""

TEXTS_TOGETHER: Final = 64 * 1024
"""So many texts are cut at a time."""

_IN_BOTH: Final = (
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
"""Options that files and metadata both have, in every release that writes the size of blocks."""

UInt32s = npt.NDArray[np.uint32]

TOKENS: Final = "tokens.lance"
_OPTIONS: Final = "tokenizer"
_OFFSETS: Final = "offsets"


class InvertedSegment:
    """An open INVERTED."""

    def __init__(self, folder: SegmentFolder, *, by_element: bool = False) -> None:
        """Read what the segment was asked for, and open its partitions.

        By element each element of a list is a document, which the metadata of the index say.
        """
        self.by_element = by_element
        self.is_automaton = False
        self.partitions: list[Partition]
        try:
            metadata = folder.open(layout.METADATA).metadata
        except ObjectNotFoundError as error:
            self._open_flat(folder, error)
            return
        try:
            self.options = TextOptions.parse(metadata.get(layout.PARAMS, "{}"))
            self.codec = Codec.of(metadata)
            numbers = [int(number) for number in json.loads(metadata[layout.PARTITIONS])]
        except (KeyError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise CorruptDataError(
                "the metadata of a text index cannot be read",
                path=f"{folder.path}/{layout.METADATA}",
                found=str(error),
            ) from error
        self.is_automaton = metadata.get(layout.TOKEN_SET) == "fst"
        self.partitions = [
            StoredPartition(folder, number, is_automaton=self.is_automaton) for number in numbers
        ]

    def _open_flat(self, folder: SegmentFolder, missing: ObjectNotFoundError) -> None:
        """Open a segment of the first releases, unless it is not one either."""
        try:
            self.options, partition = open_flat(folder)
        except ObjectNotFoundError:
            raise missing from None
        self.codec, self.partitions = Codec(), [partition]

    @cached_property
    def analyzer(self) -> Analyzer:
        """What makes tokens of texts as the segment was built."""
        return analyzer_of(self.options)

    def estimate(self, query: ScalarQuery) -> int | None:  # noqa: ARG002
        """Return None: filters are not answered."""
        return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Refuse: filters are not answered."""
        raise InvalidInputError("a text index answers no filter", question=str(query))

    def nulls(self) -> RowSet | None:
        """Return None: rows without tokens are not listed."""
        return None

    @property
    def memory_bytes(self) -> int:
        """How much memory its partitions take, without posting lists of files."""
        return sum(each.memory_bytes for each in self.partitions)

    def statistics(self) -> dict[str, Any]:
        """Return the options, and how many tokens and documents there are."""
        return {
            "params": self.options.as_params(),
            "num_tokens": sum(each.num_tokens for each in self.partitions),
            "num_docs": sum(each.corpus.num_docs for each in self.partitions),
        }


class Inverted(ScalarKind[InvertedSegment]):
    """Posting lists of tokens."""

    name = "INVERTED"
    reads_json_text = True
    title = "Inverted"
    type_url = "/lance.table.InvertedIndexDetails"
    newest_version = 3
    unsupported_message = "an INVERTED index needs a column of texts, of lists of texts, or of JSON"
    addresses_since = None
    can_remap = True
    reports_progress = True
    accepts_nested_lists = True

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the version of the format, which also says how tails and positions are stored."""
        _check_names(parameters)
        version = _codec_of(parameters, TextOptions.asked(parameters.values)).version
        return _NEWEST if _is_by_element(parameters) else version

    def name_suffix(self, parameters: Parameters) -> str:
        """Return what is behind the column in the name of an index that was given none."""
        return "list_element_idx" if _is_by_element(parameters) else "idx"

    def describe(self, details: bytes) -> dict[str, Any]:
        """Return the options that the details name."""
        found = parse_message(index_details_pb.InvertedIndexDetails, details)
        code = found.code_config
        longest = found.max_token_length if found.HasField("max_token_length") else None
        return {
            "lance_tokenizer": None,
            "base_tokenizer": found.base_tokenizer or "simple",
            "language": json.loads(found.language) if found.language else "English",
            "with_position": found.with_position,
            "max_token_length": longest,
            "lower_case": found.lower_case,
            "stem": found.stem,
            "remove_stop_words": found.remove_stop_words,
            "custom_stop_words": None,
            "ascii_folding": found.ascii_folding,
            "min_ngram_length": found.min_ngram_length or 3,
            "max_ngram_length": found.max_ngram_length or 3,
            "prefix_only": found.prefix_only,
            "block_size": found.block_size or 128,
            "split_identifiers": code.split_identifiers,
            "split_on_numerics": code.split_on_numerics,
            "preserve_original": code.preserve_original,
            "index_operators": code.index_operators,
            "document_granularity": _ELEMENTS if found.document_granularity else _ROWS,
        }

    def infer_parameters(self, details: bytes, segment: InvertedSegment | None) -> Parameters:
        """Return what another segment is asked for; words that are left out are in files alone."""
        found = parse_message(index_details_pb.InvertedIndexDetails, details)
        own = self.describe(details)
        if segment is not None:
            own = {**segment.options.as_params(), _GRANULARITY: own[_GRANULARITY]}
        if found.posting_format_version:
            own["format_version"] = found.posting_format_version
        return Parameters(own)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether it is text, or lists of texts, or documents."""
        texts = data_type.value_type if is_list(data_type) else data_type
        return isinstance(data_type, pa.JsonType) or is_text(texts)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Cut the texts into tokens and write posting lists."""
        return _train(rows, folder, parameters, is_automaton=True)

    def append(
        self,
        segment: InvertedSegment,
        rows: IndexedRows,
        folder: SegmentFolder,
        parameters: Parameters,
    ) -> bytes:
        """Write a segment of new rows, whose tokens are stored as those of the one beside it."""
        return _train(rows, folder, parameters, is_automaton=segment.is_automaton)

    def open(self, folder: SegmentFolder, details: bytes) -> InvertedSegment:
        """Open a segment, whose files must say of texts what its metadata say."""
        said = parse_message(index_details_pb.InvertedIndexDetails, details)
        found = InvertedSegment(folder, by_element=bool(said.document_granularity))
        if said.block_size:
            described, own = self.describe(details), found.options.as_params()
            wrong = {name: own[name] for name in _IN_BOTH if own[name] != described[name]}
            if wrong:
                raise CorruptDataError(
                    "the files of a text index are of other options than its metadata",
                    path=f"{folder.path}/{layout.METADATA}",
                    expected={name: described[name] for name in wrong},
                    found=wrong,
                )
        return found

    def merge(
        self,
        segments: Sequence[InvertedSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Write the documents of all partitions that are still there, and those of the new rows."""
        newest = segments[-1]
        options, codec, by_element = newest.options, newest.codec, newest.by_element
        is_automaton = any(segment.is_automaton for segment in segments)
        with SegmentWriter(folder, options, codec, is_automaton=is_automaton) as writer:
            for segment, move in zip(segments, moves, strict=True):
                _add_segment(writer, segment, move)
            _add_rows(writer, rows, newest.analyzer, by_element=by_element)
            writer.finish()
        return _details(options, codec, by_element=by_element)


def _train(
    rows: IndexedRows, folder: SegmentFolder, parameters: Parameters, *, is_automaton: bool
) -> bytes:
    _check_names(parameters)
    by_element = _is_by_element(parameters)
    if by_element:
        check_has_lists(rows.data_type)
    options = TextOptions.asked(parameters.values)
    if isinstance(rows.data_type, pa.JsonType):
        options = replace(options, lance_tokenizer="json")
    codec, waiting = _codec_of(parameters, options), _waiting_bytes(parameters)
    with SegmentWriter(folder, options, codec, waiting, is_automaton=is_automaton) as writer:
        _add_rows(writer, rows, analyzer_of(options), by_element=by_element)
        writer.finish(rows.progress)
    return _details(options, codec, by_element=by_element)


def _add_rows(
    writer: SegmentWriter, rows: IndexedRows, analyzer: Analyzer, *, by_element: bool
) -> None:
    done = 0
    rows.progress("tokenize_docs", done, rows.num_rows)
    for values, numbers in rows.parts:
        for start in range(0, len(values), TEXTS_TOGETHER):
            own, rows_of = values.slice(start, TEXTS_TOGETHER), numbers[start:][:TEXTS_TOGETHER]
            if by_element:
                found = elements_of(own)
                writer.add_texts(found.texts, rows_of[found.rows], analyzer, found.places)
            else:
                writer.add_texts(texts_per_row(own), rows_of, analyzer)
            done += len(own)
            rows.progress("tokenize_docs", done, rows.num_rows)


def _add_segment(writer: SegmentWriter, segment: InvertedSegment, move: Move) -> None:
    for partition in segment.partitions:
        tokens, postings = partition.everything()
        numbers = move(partition.numbers)
        lives = numbers != NO_ADDRESS
        lengths, places = partition.lengths, partition.places
        if not lives.all():
            kept = selected(postings, lives[postings.docs])
            renumbered = (np.cumsum(lives) - 1).astype(np.uint32)
            postings = Postings(kept.tokens, renumbered[kept.docs], kept.freqs, kept.positions)
            numbers, lengths, places = numbers[lives], lengths[lives], places[lives]
            used = np.unique(postings.tokens)
            tokens = [tokens[place] for place in used.tolist()]
            postings = Postings(
                np.searchsorted(used, postings.tokens).astype(np.uint32),
                postings.docs,
                postings.freqs,
                postings.positions,
            )
        writer.add_postings(tokens, postings, numbers, lengths, places)


def _check_names(parameters: Parameters) -> None:
    """Refuse names that mean nothing, which are slips as a rule: `with_positions`."""
    known = {field.name for field in fields(TextOptions)} | _BESIDE_OPTIONS
    unknown = sorted(parameters.values.keys() - known)
    if unknown:
        raise InvalidInputError(
            f"unknown FTS index parameter '{unknown[0]}'", found=unknown, known=sorted(known)
        )


def _waiting_bytes(parameters: Parameters) -> int:
    """Return how many bytes of postings may wait in memory, which is given in MiB."""
    given = parameters.values.get("memory_limit", os.environ.get(_MEMORY_VARIABLE))
    if given is None:
        return WAITING_BYTES
    if not str(given).isdecimal():
        raise InvalidInputError("a memory limit is a number of MiB", memory_limit=given)
    return int(given) << 20


def _codec_of(parameters: Parameters, options: TextOptions) -> Codec:
    given = parameters.values.get("format_version")
    if given is None:
        is_third = options.block_size == 256 or options.base_tokenizer == "code"
        return Codec(_NEWEST if is_third else 2, options.block_size)
    text = str(given).lower().removeprefix("v")
    codec = Codec(int(text) if text.isdecimal() else 0, options.block_size)
    if options.base_tokenizer == "code" and codec.version != _NEWEST:
        raise InvalidInputError(
            f"base_tokenizer='code' requires FTS format_version=3, got {codec.version}"
        )
    return codec


def _is_by_element(parameters: Parameters) -> bool:
    """Return whether each element of a list shall be a document."""
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
    """Return what texts were cut by, and the documents."""
    files = [folder.open(name) for name in (TOKENS, "docs.lance", "invert.lance")]
    try:
        return _read(*files)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptDataError(
            "a text index of an old release cannot be read", path=folder.path, found=str(error)
        ) from error


def _read(
    tokens: StoredFile, docs: StoredFile, occurrences: StoredFile
) -> tuple[TextOptions, MemoryPartition]:
    options = json.loads(tokens.metadata.get(_OPTIONS, "{}"))
    texts, ids = tokens.read(["_token", "_token_id"])
    names = all_tokens(SortedTokens(texts, ids.to_numpy()), tokens.num_rows)
    numbers, lengths = (column.to_numpy() for column in docs.read(["_rowid", "_num_tokens"]))
    own, freqs = occurrences.read(["_rowid", "_frequency"])
    starts = np.array(json.loads(occurrences.metadata[_OFFSETS]), np.int64)
    counts = np.diff(starts, append=occurrences.num_rows)
    if len(starts) != len(names) or np.any(counts < 0) or starts[:1].any():
        raise ValueError("token lists overlap")
    order = np.argsort(numbers)
    places = np.searchsorted(numbers, own.to_numpy(), sorter=order)
    found = order[np.minimum(places, len(order) - 1)]
    if np.any(numbers[found] != own.to_numpy()):
        raise ValueError("a token is in a document that is not listed")
    with_position = "_position" in occurrences.schema.names
    often = freqs.to_numpy().astype(np.uint32)
    postings = Postings(
        np.repeat(np.arange(len(names), dtype=np.uint32), counts),
        found.astype(np.uint32),
        often,
        _positions(occurrences, often) if with_position else None,
    )
    partition = MemoryPartition(names, in_order(postings), numbers, lengths)
    return TextOptions.of({**options, "with_position": with_position}), partition


def _positions(occurrences: StoredFile, freqs: UInt32s) -> UInt32s:
    (lists,) = occurrences.read(["_position"])
    if np.any(lists.value_lengths().to_numpy() != freqs):
        raise ValueError("a document has not as many positions as tokens")
    found: UInt32s = lists.flatten().to_numpy().astype(np.uint32)
    return found
