"""Encoding selection: candidate encodings are tried on a sample and ranked by read cost.

    float64 with two decimals, a million values
      flat(64)                                  8.02 B,  0.6 ns
      general(zstd){flat(64)}                   3.22 B,  9.5 ns
      dictionary of 34 294, indices packed      2.16 B,  1.6 ns     chosen
    `encoding_report()` shows the costs of the rejected candidates

Codecs propose candidates, so this module is independent of codec internals; `cost` combines the
encoded bytes with the decoding time. A sample has a few runs of adjacent values, because single
values would hide repetition and order. A dictionary is tried on the entire page, as a sample does
not show its size, but only if enough values repeat within the sample for the indices to be smaller
than the best other encoding. All pages of a batch are analyzed together, and pages with the same
encoding are encoded together.

Options in the field metadata restrict the candidates. The reference implementation can read every
choice in the file version being written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.encodings.base import Block, Fields, FileVersion, FixedWidth, Variable
from lancelet.encodings.choice.cost import BYTE_NS, LOOKUP_NS, Cost, RejectedCosts, try_values
from lancelet.encodings.choice.options import (
    PLAIN_OPTIONS,
    ByteStreamSplitMode,
    Compression,
    EncodingOptions,
)
from lancelet.encodings.choice.sample import sample_long_strings, sample_pages, sample_rows
from lancelet.encodings.choice.trials import Trial, best_trials, try_all
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkLimits, Codec, EncodedBlock, EncodedValues
from lancelet.encodings.codecs.dictionary import split
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.unsigned import UNSIGNED_TYPES, from_unsigned
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.encodings.pages.layout import NO_CANDIDATES
from lancelet.encodings.pages.leaf_pages import ChunkedPages, Pages, raw_bytes
from lancelet.values import dataclass, replace

WIDE_BYTES: Final = 256
"""Minimum average value size for full-zip pages, in bytes."""

LONG_BYTES: Final = 64 * 1024
"""Maximum string length in mini-block pages, in bytes."""

LONG_BYTES_BEFORE_2_2: Final = 4096
"""The same before 2.2, where chunks had at most 32 KiB."""

SMALL_CHUNK_VALUES_BYTES: Final = 16000
"""Maximum bytes of values in a chunk of 2.1; leaves half of the chunk for levels."""

LARGE_CHUNK_VALUES_BYTES: Final = 1 << 30
"""Maximum bytes of values in a chunk since 2.2."""

REPEATED_MIN: Final = 0.05
"""A dictionary is tried if at least this share of the sample repeats other sampled values."""

TINY_BYTES: Final = 512
"""Pages up to this size are stored plain: the metadata of an encoding exceeds its savings."""

FEW_ROWS: Final = 128
FEW_NUMBERS_BYTES: Final = 1024
FEW_TEXTS_BYTES: Final = 2048
"""Limits for storing short pages plain: up to `FEW_ROWS` rows with this many bytes.

Encoding savings would amortize the selection cost only after about a hundred reads.
"""

COMPRESS_ITEMS_FROM_BYTES: Final = 4096
"""Minimum bytes of dictionary items for general compression."""

INDICES_MAX: Final = 0.88
"""Maximum estimated size of indices, relative to the best encoding without a dictionary."""


OBVIOUS: Final = 0.15
"""Maximum estimated cost of a dictionary, relative to plain strings, at which no other encoding is
tried: no string codec comes close.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """The encoded dictionary items of a page."""

    block: EncodedBlock
    num_items: int


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlocks:
    """Values of mini-block pages with the same encoding.

    `page_indices` are relative to the batch. `refused` maps each rejected candidate to its cost.
    """

    page_indices: Int64s
    chunks: ChunkedPages
    descriptions: Sequence[str]
    refused: Sequence[Mapping[str, str]]
    dictionaries: Sequence[Dictionary] | None = None


def _is_tiny(pages: Pages, options: EncodingOptions) -> npt.NDArray[np.bool_]:
    """Return a mask of the pages small enough to be stored plain."""
    is_tiny: npt.NDArray[np.bool_]
    if _plain(pages.block) is None or options != PLAIN_OPTIONS:
        is_tiny = np.zeros(pages.count, np.bool_)
    elif pages.rows > FEW_ROWS:
        is_tiny = pages.raw_bytes <= TINY_BYTES
    else:
        is_text = isinstance(pages.block, Variable)
        is_tiny = pages.raw_bytes <= (FEW_TEXTS_BYTES if is_text else FEW_NUMBERS_BYTES)
    return is_tiny


def encode_mini_blocks(
    pages: Pages, *, version: FileVersion, options: EncodingOptions
) -> Iterator[MiniBlocks]:
    """Encode the values of pages with the cheapest encoding to read."""
    limits = limits_of(version, options)
    plain = _plain(pages.block)
    is_tiny = _is_tiny(pages, options)
    if plain is not None and is_tiny.any():
        page_indices = is_tiny.nonzero()[0]
        subset = pages.take(page_indices)
        values = plain.encode_pages(subset.block, subset.rows, limits)
        descriptions = [registry.describe(values.encoding)] * len(page_indices)
        refused = [NO_CANDIDATES] * len(page_indices)
        yield MiniBlocks(page_indices, ChunkedPages.of(values, subset), descriptions, refused)
        if len(page_indices) == pages.count:
            return
    rows = np.where(is_tiny, -1, sample_rows(pages))
    for num_rows in sorted(set(rows[~is_tiny].tolist())):
        page_indices = (rows == num_rows).nonzero()[0]
        for encoded in _Batch(pages.take(page_indices), options, limits).encode():
            yield replace(encoded, page_indices=page_indices[encoded.page_indices])


def encode_dictionary_mini_block(
    indices: FixedWidth, items: Block, *, version: FileVersion, options: EncodingOptions
) -> MiniBlocks:
    """Encode dictionary values; the indices get the cheapest encoding to read."""
    dictionary = Dictionary(encode_items(items, options), items.count)
    trials = _PageTrials(Pages.single(indices), options, limits_of(version, options))
    (encoded,) = trials.encode(trials.pages.indices)
    description = _describe_dictionary(encoded.descriptions[0], dictionary)
    return replace(encoded, descriptions=[description], dictionaries=[dictionary])


def encode_items(items: Block, options: EncodingOptions) -> EncodedBlock:
    """Encode dictionary items as the smallest block permitted by the options."""
    plain: Codec = VariableCodec() if isinstance(items, Variable) else Flat()
    choices: list[Codec] = [plain]
    is_free = options.compression is not Compression.NONE
    if isinstance(items, FixedWidth) and items.bits in UNSIGNED_TYPES and is_free:
        choices.append(OutOfLineBitpacking())
    level = options.dict_values_compression_level
    may_compress = is_free and raw_bytes(items) >= COMPRESS_ITEMS_FROM_BYTES
    match options.dict_values_compression:
        case Compression.LZ4 | Compression.ZSTD as compression:
            choices = [General(plain, compression, level)]
        case None if may_compress:
            is_lz4 = options.compression is Compression.LZ4
            choices.append(General(plain, Compression.LZ4 if is_lz4 else Compression.ZSTD, level))
        case _:
            pass
    return min((codec.encode_block(items) for codec in choices), key=lambda item: len(item.data))


def encode_full_zip(block: Block, *, options: EncodingOptions) -> EncodedValues:
    """Encode values for random access with the cheapest codec to read."""
    if isinstance(block, Fields):
        return VariablePackedStruct().encode_values(block)
    if not isinstance(block, Variable):
        codec = Flat() if isinstance(block, FixedWidth) else FixedSizeListCodec()
        return codec.encode_values(block)
    best, *others = _string_choices(options)
    if others:
        sample = sample_long_strings(block)
        best = min((best, *others), key=lambda codec: try_values(codec, sample).total)
    return best.encode_values(block)


def limits_of(version: FileVersion, options: EncodingOptions) -> ChunkLimits:
    """Return the size limits of chunks."""
    is_large = version >= FileVersion.V2_2
    bytes_max = LARGE_CHUNK_VALUES_BYTES if is_large else SMALL_CHUNK_VALUES_BYTES
    limits = ChunkLimits(bytes_max=bytes_max)
    aim = options.minichunk_size or limits.bytes_aim
    return replace(limits, bytes_aim=min(aim, bytes_max))


def _plain(block: Block) -> Codec | None:
    """Return the codec for plain values; None for lists and structs."""
    match block:
        case Variable():
            return VariableCodec()
        case FixedWidth():
            return Flat()
        case _:
            return None


def _string_choices(options: EncodingOptions) -> tuple[Codec, ...]:
    plain = VariableCodec()
    match options.compression:
        case Compression.NONE:
            return (plain,)
        case Compression.FSST:
            return (Fsst(),)
        case Compression.ZSTD | Compression.LZ4:
            return (General(plain, Compression.ZSTD, options.compression_level),)
        case None:
            return (plain, Fsst(), General(plain, Compression.ZSTD))


# --- batches ----------------------------------------------------------------------------------


class _PageTrials:
    """Trials of pages with equal sample sizes, with the cheapest trial per page."""

    def __init__(
        self,
        pages: Pages,
        options: EncodingOptions,
        limits: ChunkLimits,
        sample: Pages | None = None,
    ) -> None:
        self.pages = pages
        self._sample = sample_pages(pages) if sample is None else sample
        self._trials = try_all(
            self._sample, page_bytes=pages.raw_bytes, options=options, limits=limits
        )
        self._best = best_trials(self._trials, options)
        self._costs = [
            (trial.description, trial.costs, trial.sample_index) for trial in self._trials
        ]

    def cost(self, page: int) -> Cost:
        """Return the cost per value of a page with its best trial."""
        trial = self._best_trial(page)
        return trial.costs.page_cost(int(trial.sample_index[page]))

    def description(self, page: int) -> str:
        """Return the description of the best trial."""
        return self._best_trial(page).description

    def refused(self, page: int) -> Mapping[str, str]:
        """Return the costs of the rejected trials."""
        return RejectedCosts(self._costs, int(self._best[page]), page)

    def encode(self, page_indices: Int64s) -> Iterator[MiniBlocks]:
        """Encode a subset of the pages; pages with the same encoding are encoded together."""
        best = self._best[page_indices]
        for number in sorted(set(best.tolist())):
            subset = page_indices[best == number]
            trial = self._trials[number]
            chunks = trial.encode(self.pages, subset, self._sample)
            refused = [self.refused(page) for page in subset.tolist()]
            yield MiniBlocks(subset, chunks, [trial.description] * len(subset), refused)

    def _best_trial(self, page: int) -> Trial:
        return self._trials[int(self._best[page])]


@dataclass(frozen=True, slots=True, eq=False)
class _DictionaryPages:
    """Dictionary-encoded pages of a batch with indices of equal width."""

    page_indices: Int64s
    trials: _PageTrials
    dictionaries: Sequence[Dictionary]
    bytes_max: npt.NDArray[np.float64]
    """Maximum bytes per value for a dictionary, from the options."""

    def is_small(self, index: int) -> bool:
        """Return whether the dictionary is within the size limit of the options."""
        return self.cost(index).bytes_per_value <= float(self.bytes_max[index])

    def cost(self, index: int) -> Cost:
        """Return the cost per value, including the dictionary items."""
        items = len(self.dictionaries[index].block.data)
        return self.trials.cost(index).plus(items / self.trials.pages.rows, LOOKUP_NS)

    def description(self, index: int) -> str:
        """Return the description of the dictionary and its indices."""
        return _describe_dictionary(self.trials.description(index), self.dictionaries[index])


class _Batch:
    """Dictionary selection for pages with equal sample sizes."""

    def __init__(self, pages: Pages, options: EncodingOptions, limits: ChunkLimits) -> None:
        self._pages, self._options, self._limits = pages, options, limits
        self._items_max = min(pages.rows // options.dict_divisor, options.dict_max_size)

    def encode(self) -> Iterator[MiniBlocks]:
        sample = sample_pages(self._pages)
        items = self._estimate_items(sample)
        is_obvious = self._is_obvious(items)
        encoded: list[int] = []
        items_max = np.full(len(is_obvious), self._items_max)
        for indexed in self._build_dictionaries(is_obvious.nonzero()[0], items_max):
            small = [index for index in range(len(indexed.page_indices)) if indexed.is_small(index)]
            encoded += indexed.page_indices[small].tolist()
            yield from _encode_dictionaries(indexed, small, {})
        is_pending = np.ones(len(is_obvious), np.bool_)
        is_pending[encoded] = False
        others = is_pending.nonzero()[0]
        if not len(others):
            return
        items[is_obvious] = np.inf
        sample = sample.take(others)
        tried = _PageTrials(self._pages.take(others), self._options, self._limits, sample)
        refused: list[Mapping[str, str]] = [NO_CANDIDATES] * len(others)
        is_plain = np.ones(len(others), np.bool_)
        items_max = np.zeros_like(self._pages.indices)
        items_max[others] = self._beneficial_items(items[others], sample, tried)
        for indexed in self._build_dictionaries(items_max.nonzero()[0], items_max):
            chosen: dict[int, Mapping[str, str]] = {}
            positions = others.searchsorted(indexed.page_indices).tolist()
            for index, page in enumerate(positions):
                if not indexed.is_small(index):
                    continue
                cost, best = indexed.cost(index), tried.cost(page)
                if cost.total < best.total:
                    is_plain[page] = False
                    chosen[index] = {**tried.refused(page), tried.description(page): str(best)}
                else:
                    refused[page] = {indexed.description(index): str(cost)}
            yield from _encode_dictionaries(indexed, [*chosen], chosen)
        for mini_blocks in tried.encode(is_plain.nonzero()[0]):
            refused_pages = zip(mini_blocks.page_indices.tolist(), mini_blocks.refused, strict=True)
            joined = [
                {**trials, **refused[page]} if refused[page] else trials
                for page, trials in refused_pages
            ]
            yield replace(
                mini_blocks, page_indices=others[mini_blocks.page_indices], refused=joined
            )

    def _estimate_items(self, sample: Pages) -> npt.NDArray[np.float64]:
        """Estimate the number of dictionary items per page; infinite if above the limit."""
        block, rows = sample.block, sample.rows
        is_fixed = isinstance(block, FixedWidth) and block.bits > 8
        is_small = self._pages.rows < self._options.dict_too_small
        if is_small or not self._items_max or not (isinstance(block, Variable) or is_fixed):
            return np.full(sample.count, np.inf)
        distinct_max = math.floor((1 - REPEATED_MIN) * rows)
        items = np.array(
            [
                estimate_items(distinct, rows) if distinct <= distinct_max else math.inf
                for distinct in sample.runs_and_distinct[1].tolist()
            ]
        )
        return np.where(items <= self._items_max, items, np.inf)

    def _is_obvious(self, items: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return a mask of the string pages where only a dictionary needs to be tried."""
        pages = self._pages
        if not isinstance(pages.block, Variable) or self._options.compression is not None:
            return np.zeros(pages.count, np.bool_)
        plain = pages.raw_bytes / max(pages.rows, 1)
        indices = np.log2(np.maximum(items, 2)) / 8 + items * plain / max(pages.rows, 1)
        is_obvious: npt.NDArray[np.bool_] = (
            BYTE_NS * indices + LOOKUP_NS < OBVIOUS * BYTE_NS * plain
        )
        return is_obvious

    def _beneficial_items(
        self, items: npt.NDArray[np.float64], sample: Pages, trials: _PageTrials
    ) -> Int64s:
        """Return the maximum dictionary size that pays; 0 if a page exceeds it."""
        if not np.isfinite(items).any():
            return np.zeros(sample.count, np.int64)
        bytes_per_value = np.array(
            [trials.cost(page).bytes_per_value for page in range(sample.count)]
        )
        items_max = np.minimum(
            np.exp2(np.minimum(8 * INDICES_MAX * bytes_per_value, 62)), self._items_max
        )
        # Runs of equal values compress indices below their bit width.
        items_max[sample.runs_and_distinct[0] * 2 <= sample.rows] = self._items_max
        return np.where(items <= items_max, items_max, 0).astype(np.int64)

    def _build_dictionaries(
        self, page_indices: Int64s, items_max: Int64s
    ) -> list[_DictionaryPages]:
        """Build a dictionary per page, grouped by index width.

        Omits a page i with more than `items_max[i]` items.
        """
        by_bits: dict[int, list[tuple[int, npt.NDArray[np.unsignedinteger], Dictionary]]] = {}
        for page in page_indices.tolist():
            parts = split(self._pages.page(page), int(items_max[page]))
            if parts is not None:
                indices, items = parts
                bits = _index_bits(items.count)
                dictionary = Dictionary(encode_items(items, self._options), items.count)
                by_bits.setdefault(bits, []).append(
                    (page, indices.astype(UNSIGNED_TYPES[bits]), dictionary)
                )
        groups: list[_DictionaryPages] = []
        for group in by_bits.values():
            options = replace(self._options, bss=ByteStreamSplitMode.OFF)
            pages, indices_by_page, dictionaries = zip(*group, strict=True)
            block = from_unsigned(
                indices_by_page[0] if len(indices_by_page) == 1 else np.concatenate(indices_by_page)
            )
            trials = _PageTrials(Pages(block, self._pages.rows, len(pages)), options, self._limits)
            raw = self._pages.raw_bytes[list(pages)] / self._pages.rows
            bytes_max = self._options.dict_size_ratio * raw
            groups.append(_DictionaryPages(np.array(pages), trials, dictionaries, bytes_max))
        return groups


def _encode_dictionaries(
    indexed: _DictionaryPages, indices: Sequence[int], refused: Mapping[int, Mapping[str, str]]
) -> Iterator[MiniBlocks]:
    """Encode a subset of dictionary pages."""
    for mini_blocks in indexed.trials.encode(np.array(indices, np.int64)):
        subset = mini_blocks.page_indices.tolist()
        yield MiniBlocks(
            indexed.page_indices[mini_blocks.page_indices],
            mini_blocks.chunks,
            [indexed.description(index) for index in subset],
            [refused.get(index, NO_CANDIDATES) for index in subset],
            [indexed.dictionaries[index] for index in subset],
        )


@lru_cache(1024)
def estimate_items(distinct: int, sampled: int) -> float:
    """Estimate the number of equally frequent items from the distinct values of a sample.

    Each of n items is missing from d draws with probability e^(-d/n).

    >>> round(estimate_items(3223, 4096), -2)
    8200.0
    """
    if distinct >= sampled:
        return math.inf
    low, high = float(distinct), float(sampled) ** 2
    while high - low > 0.01 * low + 0.5:
        middle = (low + high) / 2
        if middle * -math.expm1(-sampled / middle) < distinct:
            low = middle
        else:
            high = middle
    return low


def _index_bits(items: int) -> int:
    """Return the smallest integer width that can index `items` items.

    >>> [_index_bits(256), _index_bits(257), _index_bits(100_000)]
    [8, 16, 32]
    """
    return next(bits for bits in UNSIGNED_TYPES if items <= 1 << bits)


def _describe_dictionary(indices: str, dictionary: Dictionary) -> str:
    items = registry.describe(dictionary.block.encoding)
    return f"dictionary({dictionary.num_items}, {items}){{{indices}}}"
