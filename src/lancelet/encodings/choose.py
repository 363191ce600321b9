"""Which encoding a page gets: try what may help on a sample, and take what costs least to read.

    float64 with two decimals, a million values
      flat(64)                                  8.02 B,  0.6 ns
      general(zstd){flat(64)}                   3.22 B,  9.5 ns
      dictionary of 34 294, indices packed      2.16 B,  1.6 ns     chosen
    the others are refused; `encoding_report()` shows their numbers

Codecs propose what is worth a trial, so nothing here knows how a codec works; `cost` weighs the
bytes that a trial yields against the time to decode them. A sample is a few runs of neighbouring
values, as repetition and order would not show in single ones. A dictionary is tried on the whole
page, for its size is not seen in a sample, but only if so many values repeat within the sample
that indices can be expected to take less than the best without a dictionary. All pages of a batch
are looked at together, and those that get the same are encoded together.

What the field's metadata ask for comes first: then only the choices that obey are tried. Whatever
is chosen, the reference implementation reads it in the file version that is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.encodings import registry
from lancelet.encodings.base import Block, Fields, FileVersion, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkLimits, Codec, EncodedBlock, EncodedValues
from lancelet.encodings.codecs.dictionary import split
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.encodings.codecs.words import WORDS, from_words
from lancelet.encodings.cost import BYTE_NS, LOOK_UP_NS, Cost, Refused, try_values
from lancelet.encodings.layout import NOTHING
from lancelet.encodings.options import (
    PLAIN_OPTIONS,
    ByteStreamSplitMode,
    Compression,
    EncodingOptions,
)
from lancelet.encodings.pages import ChunkedPages, Pages, raw_bytes
from lancelet.encodings.sample import sample_of, sample_of_long, sample_rows
from lancelet.encodings.trials import Trial, best_of, try_all
from lancelet.values import dataclass, replace

SMALL_CHUNK_VALUES_BYTES: Final = 16000
"""The most bytes of values in a chunk of 2.1, which leaves half of the chunk to levels."""

LARGE_CHUNK_VALUES_BYTES: Final = 1 << 30
"""The same since 2.2."""

REPEATED_MIN: Final = 0.05
"""A dictionary is tried if this share of a sample repeats other values of the sample."""

TINY_BYTES: Final = 512
"""So few bytes are stored as they are: what describes them takes more than could be saved, ..."""

FEW_ROWS: Final = 128
FEW_NUMBERS_BYTES: Final = 1024
FEW_TEXTS_BYTES: Final = 2048
"""... and so are these of so few rows: what could be saved of them pays for what choosing takes
when it was read a hundred times."""

COMPRESS_ITEMS_FROM_BYTES: Final = 4096
"""Fewer bytes of a dictionary's items are not worth a general compression."""

INDICES_MAX: Final = 0.88
"""Indices must be expected to take less than this share of the best without a dictionary."""


OBVIOUS: Final = 0.15
"""Where a dictionary is expected to cost less than this share of plain strings, no code of
strings comes near, and none is tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """The items that the values of a page are indices of."""

    block: EncodedBlock
    num_items: int


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlocks:
    """The values of mini-block pages that are encoded alike, and how they came to be so.

    `which` are the numbers of the pages within their batch. `refused` gives, for every choice
    that was tried, what it would have cost.
    """

    which: Int64s
    chunks: ChunkedPages
    descriptions: Sequence[str]
    refused: Sequence[Mapping[str, str]]
    dictionaries: Sequence[Dictionary] | None = None


def _are_few(pages: Pages, options: EncodingOptions) -> npt.NDArray[np.bool_]:
    """Return which pages have so few values that they are stored as they are."""
    found: npt.NDArray[np.bool_]
    if _plain(pages.block) is None or options != PLAIN_OPTIONS:
        found = np.zeros(pages.count, np.bool_)
    elif pages.rows > FEW_ROWS:
        found = pages.raw_bytes <= TINY_BYTES
    else:
        is_text = isinstance(pages.block, Variable)
        found = pages.raw_bytes <= (FEW_TEXTS_BYTES if is_text else FEW_NUMBERS_BYTES)
    return found


def encode_mini_blocks(
    pages: Pages, *, version: FileVersion, options: EncodingOptions
) -> Iterator[MiniBlocks]:
    """Encode the values of pages with what is cheapest to read."""
    limits = limits_of(version, options)
    plain = _plain(pages.block)
    is_tiny = _are_few(pages, options)
    if plain is not None and is_tiny.any():
        which = is_tiny.nonzero()[0]
        part = pages.take(which)
        values = plain.encode_pages(part.block, part.rows, limits)
        descriptions = [registry.describe(values.encoding)] * len(which)
        refused = [NOTHING] * len(which)
        yield MiniBlocks(which, ChunkedPages.of(values, part), descriptions, refused)
        if len(which) == pages.count:
            return
    rows = np.where(is_tiny, -1, sample_rows(pages))
    for each in sorted(set(rows[~is_tiny].tolist())):
        which = (rows == each).nonzero()[0]
        for found in _Batch(pages.take(which), options, limits).encode():
            yield replace(found, which=which[found.which])


def encode_dictionary_mini_block(
    indices: FixedWidth, items: Block, *, version: FileVersion, options: EncodingOptions
) -> MiniBlocks:
    """Encode values that have a dictionary already: the indices as is cheapest to read."""
    dictionary = Dictionary(encode_items(items, options), items.count)
    tried = _Tried(Pages.one(indices), options, limits_of(version, options))
    (found,) = tried.encode(tried.pages.every)
    described = _describe_dictionary(found.descriptions[0], dictionary)
    return replace(found, descriptions=[described], dictionaries=[dictionary])


def encode_items(items: Block, options: EncodingOptions) -> EncodedBlock:
    """Encode the items of a dictionary as the smallest block that the options allow."""
    plain: Codec = VariableCodec() if isinstance(items, Variable) else Flat()
    choices: list[Codec] = [plain]
    is_free = options.compression is not Compression.NONE
    if isinstance(items, FixedWidth) and items.bits in WORDS and is_free:
        choices.append(OutOfLineBitpacking())
    level = options.dict_values_compression_level
    may_compress = is_free and raw_bytes(items) >= COMPRESS_ITEMS_FROM_BYTES
    match options.dict_values_compression:
        case Compression.LZ4 | Compression.ZSTD as wanted:
            choices = [General(plain, wanted, level)]
        case None if may_compress:
            asked_for_lz4 = options.compression is Compression.LZ4
            choices.append(
                General(plain, Compression.LZ4 if asked_for_lz4 else Compression.ZSTD, level)
            )
        case _:
            pass
    return min((codec.encode_block(items) for codec in choices), key=lambda item: len(item.data))


def encode_full_zip(block: Block, *, options: EncodingOptions) -> EncodedValues:
    """Encode values one by one, each to be read alone, with what is cheapest to read."""
    if isinstance(block, Fields):
        return VariablePackedStruct().encode_values(block)
    if not isinstance(block, Variable):
        codec = Flat() if isinstance(block, FixedWidth) else FixedSizeListCodec()
        return codec.encode_values(block)
    best, *others = _string_choices(options)
    if others:
        sample = sample_of_long(block)
        best = min((best, *others), key=lambda codec: try_values(codec, sample).total)
    return best.encode_values(block)


def limits_of(version: FileVersion, options: EncodingOptions) -> ChunkLimits:
    """Return how large the chunks of a page may become."""
    is_large = version >= FileVersion.V2_2
    bytes_max = LARGE_CHUNK_VALUES_BYTES if is_large else SMALL_CHUNK_VALUES_BYTES
    limits = ChunkLimits(bytes_max=bytes_max)
    aim = options.minichunk_size or limits.bytes_aim
    return replace(limits, bytes_aim=min(aim, bytes_max))


def _plain(block: Block) -> Codec | None:
    """Return what stores values as they are, if they are no lists and no structs."""
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


class _Tried:
    """Pages whose samples have the same rows, and what is cheapest for each of them."""

    def __init__(
        self,
        pages: Pages,
        options: EncodingOptions,
        limits: ChunkLimits,
        sample: Pages | None = None,
    ) -> None:
        self.pages = pages
        self._sample = sample_of(pages) if sample is None else sample
        self._trials = try_all(
            self._sample, page_bytes=pages.raw_bytes, options=options, limits=limits
        )
        self._best = best_of(self._trials, options)
        self._costs = [(trial.description, trial.costs, trial.place) for trial in self._trials]

    def cost(self, page: int) -> Cost:
        """Return what a value of a page costs by the best that was tried."""
        trial = self._of(page)
        return trial.costs.of(int(trial.place[page]))

    def description(self, page: int) -> str:
        """Return the best that was tried, in words."""
        return self._of(page).description

    def refused(self, page: int) -> Mapping[str, str]:
        """Return what the other choices would have cost."""
        return Refused(self._costs, int(self._best[page]), page)

    def encode(self, which: Int64s) -> Iterator[MiniBlocks]:
        """Encode some of the pages, those together that get the same."""
        best = self._best[which]
        for number in sorted(set(best.tolist())):
            own = which[best == number]
            trial = self._trials[number]
            chunks = trial.encode(self.pages, own, self._sample)
            refused = [self.refused(page) for page in own.tolist()]
            yield MiniBlocks(own, chunks, [trial.description] * len(own), refused)

    def _of(self, page: int) -> Trial:
        return self._trials[int(self._best[page])]


@dataclass(frozen=True, slots=True, eq=False)
class _Indexed:
    """Pages of a batch as indices of one width, into a dictionary of each."""

    which: Int64s
    tried: _Tried
    dictionaries: Sequence[Dictionary]
    most: npt.NDArray[np.float64]
    """The bytes that a value may take at most, by what the options ask."""

    def is_small(self, place: int) -> bool:
        """Return whether a dictionary makes a page as small as the options ask."""
        return self.cost(place).bytes_per_value <= float(self.most[place])

    def cost(self, place: int) -> Cost:
        """Return what a value costs with its share of the dictionary."""
        items = len(self.dictionaries[place].block.data)
        return self.tried.cost(place).plus(items / self.tried.pages.rows, LOOK_UP_NS)

    def description(self, place: int) -> str:
        """Return the dictionary and the indices in words."""
        return _describe_dictionary(self.tried.description(place), self.dictionaries[place])


class _Batch:
    """Pages whose samples have the same rows, and which of them get a dictionary."""

    def __init__(self, pages: Pages, options: EncodingOptions, limits: ChunkLimits) -> None:
        self._pages, self._options, self._limits = pages, options, limits
        self._items_max = min(pages.rows // options.dict_divisor, options.dict_max_size)

    def encode(self) -> Iterator[MiniBlocks]:
        """Encode all pages."""
        sample = sample_of(self._pages)
        items = self._items_in(sample)
        obvious = self._is_obvious(items)
        settled: list[int] = []
        most = np.full(len(obvious), self._items_max)
        for indexed in self._indexed(obvious.nonzero()[0], most):
            small = [place for place in range(len(indexed.which)) if indexed.is_small(place)]
            settled += indexed.which[small].tolist()
            yield from _with_dictionaries(indexed, small, {})
        waits = np.ones(len(obvious), np.bool_)
        waits[settled] = False
        others = waits.nonzero()[0]
        if not len(others):
            return
        items[obvious] = np.inf
        sample = sample.take(others)
        tried = _Tried(self._pages.take(others), self._options, self._limits, sample)
        refused: list[Mapping[str, str]] = [NOTHING] * len(others)
        is_plain = np.ones(len(others), np.bool_)
        most = np.zeros_like(self._pages.every)
        most[others] = self._items_that_pay(items[others], sample, tried)
        for indexed in self._indexed(most.nonzero()[0], most):
            better: dict[int, Mapping[str, str]] = {}
            own = others.searchsorted(indexed.which).tolist()
            for place, page in enumerate(own):
                if not indexed.is_small(place):
                    continue
                cost, best = indexed.cost(place), tried.cost(page)
                if cost.total < best.total:
                    is_plain[page] = False
                    better[place] = {**tried.refused(page), tried.description(page): str(best)}
                else:
                    refused[page] = {indexed.description(place): str(cost)}
            yield from _with_dictionaries(indexed, [*better], better)
        for found in tried.encode(is_plain.nonzero()[0]):
            each = zip(found.which.tolist(), found.refused, strict=True)
            joined = [
                {**trials, **refused[page]} if refused[page] else trials for page, trials in each
            ]
            yield replace(found, which=others[found.which], refused=joined)

    def _items_in(self, sample: Pages) -> npt.NDArray[np.float64]:
        """Return how many items each page is expected to have, without end if too many."""
        block, rows = sample.block, sample.rows
        is_fixed = isinstance(block, FixedWidth) and block.bits > 8
        few = self._pages.rows < self._options.dict_too_small
        if few or not self._items_max or not (isinstance(block, Variable) or is_fixed):
            return np.full(sample.count, np.inf)
        most = math.floor((1 - REPEATED_MIN) * rows)
        items = np.array(
            [
                items_expected(distinct, rows) if distinct <= most else math.inf
                for distinct in sample.repeats[1].tolist()
            ]
        )
        return np.where(items <= self._items_max, items, np.inf)

    def _is_obvious(self, items: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        """Return which pages of strings need no look at anything but a dictionary."""
        pages = self._pages
        if not isinstance(pages.block, Variable) or self._options.compression is not None:
            return np.zeros(pages.count, np.bool_)
        plain = pages.raw_bytes / max(pages.rows, 1)
        indices = np.log2(np.maximum(items, 2)) / 8 + items * plain / max(pages.rows, 1)
        found: npt.NDArray[np.bool_] = BYTE_NS * indices + LOOK_UP_NS < OBVIOUS * BYTE_NS * plain
        return found

    def _items_that_pay(
        self, items: npt.NDArray[np.float64], sample: Pages, tried: _Tried
    ) -> Int64s:
        """Return of how many items at most indices take fewer bytes; 0 if a page has more."""
        if not np.isfinite(items).any():
            return np.zeros(sample.count, np.int64)
        to_beat = np.array([tried.cost(page).bytes_per_value for page in range(sample.count)])
        most = np.minimum(np.exp2(np.minimum(8 * INDICES_MAX * to_beat, 62)), self._items_max)
        # In runs of equal values indices take less than their width.
        most[sample.repeats[0] * 2 <= sample.rows] = self._items_max
        return np.where(items <= most, most, 0).astype(np.int64)

    def _indexed(self, which: Int64s, most: Int64s) -> list[_Indexed]:
        """Return pages with a dictionary each, those apart whose indices have other widths.

        A page i that turns out to have more than `most[i]` items is left out.
        """
        found: dict[int, list[tuple[int, npt.NDArray[np.unsignedinteger], Dictionary]]] = {}
        for page in which.tolist():
            parts = split(self._pages.page(page), int(most[page]))
            if parts is not None:
                indices, items = parts
                bits = _index_bits(items.count)
                dictionary = Dictionary(encode_items(items, self._options), items.count)
                found.setdefault(bits, []).append((page, indices.astype(WORDS[bits]), dictionary))
        made: list[_Indexed] = []
        for each in found.values():
            options = replace(self._options, bss=ByteStreamSplitMode.OFF)
            pages, words, dictionaries = zip(*each, strict=True)
            block = from_words(words[0] if len(words) == 1 else np.concatenate(words))
            tried = _Tried(Pages(block, self._pages.rows, len(pages)), options, self._limits)
            raw = self._pages.raw_bytes[list(pages)] / self._pages.rows
            bytes_max = self._options.dict_size_ratio * raw
            made.append(_Indexed(np.array(pages), tried, dictionaries, bytes_max))
        return made


def _with_dictionaries(
    indexed: _Indexed, places: Sequence[int], refused: Mapping[int, Mapping[str, str]]
) -> Iterator[MiniBlocks]:
    """Encode some of the pages that are indices."""
    for found in indexed.tried.encode(np.array(places, np.int64)):
        own = found.which.tolist()
        yield MiniBlocks(
            indexed.which[found.which],
            found.chunks,
            [indexed.description(place) for place in own],
            [refused.get(place, NOTHING) for place in own],
            [indexed.dictionaries[place] for place in own],
        )


@lru_cache(1024)
def items_expected(distinct: int, drawn: int) -> float:
    """Return of how many equally frequent items as many values show so many distinct ones.

    Of n items, d draws miss each with probability e^(-d/n).

    >>> round(items_expected(3223, 4096), -2)
    8200.0
    """
    if distinct >= drawn:
        return math.inf
    low, high = float(distinct), float(drawn) ** 2
    while high - low > 0.01 * low + 0.5:
        middle = (low + high) / 2
        if middle * -math.expm1(-drawn / middle) < distinct:
            low = middle
        else:
            high = middle
    return low


def _index_bits(items: int) -> int:
    """Return the width of the smallest word that can index so many items.

    >>> [_index_bits(256), _index_bits(257), _index_bits(100_000)]
    [8, 16, 32]
    """
    return next(bits for bits in WORDS if items <= 1 << bits)


def _describe_dictionary(indices: str, dictionary: Dictionary) -> str:
    items = registry.describe(dictionary.block.encoding)
    return f"dictionary({dictionary.num_items}, {items}){{{indices}}}"
