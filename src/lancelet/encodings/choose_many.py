"""Which encoding many small pages of one type get, found out for all of them at once.

    1000 pages of 1000 words of 64 bits
      runs, different values      of each page, by one call
      widths of their blocks      of each page, by one call
      flat, packed, runs          what each costs, as three arrays: the smallest is chosen

It is what `choose` would choose for each of them alone. Pages that it would look at more closely
are left out: those where a general compression is worth a trial, and those with so few different
values that a dictionary might pay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Int64s
from lancelet.encodings import registry
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.choose import INDICES_MAX, TINY_BYTES, items_expected
from lancelet.encodings.codecs.base import ChunkLimits, Codec, Encoding
from lancelet.encodings.codecs.cut import chunk_counts, chunk_values
from lancelet.encodings.codecs.flat import Flat, flat_encoding
from lancelet.encodings.codecs.inline_bitpacking import (
    BLOCK_VALUES,
    InlineBitpacking,
    inline_encoding,
    page_widths,
)
from lancelet.encodings.codecs.rle import Rle, run_encoding
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.words import WORDS
from lancelet.encodings.cost import BYTE_NS, LOOK_UP_NS, Cost, decode_ns_of, framing_bytes
from lancelet.encodings.options import EncodingOptions
from lancelet.encodings.trials import COMPRESS_FROM_BYTES

_OPTIONS: Final = EncodingOptions()
_NONE: Final = -1
_NO_OTHERS: Final[Mapping[str, str]] = {}
_EXPECTED_WITHIN: Final = 1.02
"""How far `items_expected` may be from the number whose items it tells."""


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """The values of `count` pages of `rows` values each, back to back."""

    block: FixedWidth | Variable
    rows: int
    count: int

    def take(self, which: Int64s) -> Pages:
        """Return some of the pages."""
        if len(which) == self.count:
            return self
        return Pages(self._block_of(which), self.rows, len(which))

    def raw_bytes(self) -> Int64s:
        """Return the bytes of the values of each page."""
        if isinstance(self.block, FixedWidth):
            return np.full(self.count, (self.rows * self.block.bits + 7) // 8)
        ends = self.block.offsets[:: self.rows].astype(np.int64)
        return np.diff(ends) + self.rows * self.block.offsets.itemsize

    def _block_of(self, which: Int64s) -> FixedWidth | Variable:
        block, rows = self.block, self.rows
        if isinstance(block, Variable):
            each = (which[:, None] * rows + np.arange(rows)).reshape(-1)
            return Variable(*kernels.take_variable(block.offsets, block.data, each))
        if block.bits == 1:
            plain = np.unpackbits(block.data, bitorder="little", count=block.count)
            data = np.packbits(plain.reshape(-1, rows)[which], bitorder="little")
        else:
            data = block.data.reshape(self.count, -1)[which].reshape(-1)
        return FixedWidth(block.bits, data, rows * len(which))


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Pages that get one encoding; `refused` is what the others would have cost each of them."""

    which: Int64s
    codec: Codec
    refused: Sequence[Mapping[str, str]]


def choose_pages(pages: Pages, which: Int64s, limits: ChunkLimits) -> Iterator[Chosen]:
    """Yield what some of the pages get; those that want a closer look are in none of it."""
    raw = pages.raw_bytes()[which]
    plain: Codec = VariableCodec() if isinstance(pages.block, Variable) else Flat()
    is_tiny = raw <= TINY_BYTES
    tiny, larger = which[is_tiny], which[~is_tiny & (raw < COMPRESS_FROM_BYTES)]
    if len(tiny):
        yield Chosen(tiny, plain, [_NO_OTHERS] * len(tiny))
    if not len(larger):
        return
    part = pages.take(larger)
    if isinstance(part.block, FixedWidth) and part.block.bits in WORDS:
        yield from _choose_words(part, larger, limits)
        return
    kept = larger
    if isinstance(part.block, Variable) or part.block.bits > 8:
        most = _items_max(part.rows)
        kept = larger[survey(part, most=most)[1] > most]
    if len(kept):
        yield Chosen(kept, plain, [_NO_OTHERS] * len(kept))


def _choose_words(pages: Pages, which: Int64s, limits: ChunkLimits) -> Iterator[Chosen]:
    """Yield what pages of numbers get, by what each of the ways to store them costs."""
    block = pages.block
    assert isinstance(block, FixedWidth)
    words = np.require(block.data.view(WORDS[block.bits]), None, ["A"])
    runs, distinct = survey(pages, most=_items_max(pages.rows))
    widths = page_widths(words, pages.rows)
    has_runs = runs * 2 <= pages.rows
    ways = [
        _flat(pages, block.bits, limits),
        _packed(pages, block.bits, widths),
        _runs(pages, block.bits, has_runs, limits),
    ]
    totals = np.array([way.totals for way in ways])
    best = totals.argmin(axis=0)
    if block.bits > 8:
        stored = np.array([way.bytes_per_value for way in ways])[best, np.arange(pages.count)]
        for page in np.flatnonzero(distinct <= _items_max(pages.rows)).tolist():
            seen = _Repeats(pages.rows, int(distinct[page]), bool(has_runs[page]))
            if seen.may_pay(widths[page], float(stored[page]), float(totals[best[page], page])):
                best[page] = _NONE
    for place, way in enumerate(ways):
        own = np.flatnonzero(best == place)
        if len(own):
            others = [other for other in ways if other is not way]
            refused = [
                {other.description: other.words(page) for other in others if other.is_worth[page]}
                for page in own.tolist()
            ]
            yield Chosen(which[own], way.codec, refused)


def survey(pages: Pages, *, most: int = 0) -> tuple[Int64s, Int64s]:
    """Return how many runs and how many different values each page has, the latter up to a limit.

    >>> found = survey(Pages(FixedWidth(8, np.array([7, 7, 7, 9], np.uint8), 4), 2, 2), most=2)
    >>> [each.tolist() for each in found]
    [[1, 2], [1, 2]]
    """
    block = pages.block
    if isinstance(block, Variable):
        return kernels.survey_strings(block.offsets, block.data, pages.rows, most)
    if block.bits == 1:
        bits = np.unpackbits(block.data, bitorder="little", count=block.count)
        return kernels.survey_words(bits, 1, pages.rows, most)
    return kernels.survey_words(block.data, block.bits // 8, pages.rows, most)


# --- what each way costs ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Way:
    """A way to store pages: for which of them it is worth a thought, and what it costs there."""

    codec: Codec
    description: str
    is_worth: npt.NDArray[np.bool_]
    bytes_per_value: npt.NDArray[np.float64]
    decode_ns: float

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        """What a value costs in each page, without end where it is not worth a thought."""
        totals = BYTE_NS * self.bytes_per_value + self.decode_ns
        return np.where(self.is_worth, totals, np.inf)

    def words(self, page: int) -> str:
        """Return what a value of a page costs, for a report."""
        return _told(float(self.bytes_per_value[page]), self.decode_ns)


@lru_cache(64)
def _told(bytes_per_value: float, decode_ns: float) -> str:
    """Return the words for a cost, which many pages of a table have."""
    return str(Cost(bytes_per_value, decode_ns))


def _flat(pages: Pages, bits: int, limits: ChunkLimits) -> _Way:
    chunks = len(chunk_counts(pages.rows, chunk_values(pages.rows, bits / 8, limits)))
    stored = np.full(pages.count, pages.rows * bits // 8 + framing_bytes(chunks, 1))
    return _way(
        Flat(), flat_encoding(bits), np.ones(pages.count, np.bool_), stored / pages.rows, bits
    )


def _packed(pages: Pages, bits: int, widths: Int64s) -> _Way:
    blocks = widths.shape[1]
    stored = blocks * (bits // 8) + widths.sum(axis=1) * (BLOCK_VALUES // 8)
    is_worth = widths.mean(axis=1) <= bits - 1
    per_value = (stored + framing_bytes(blocks, 1)) / pages.rows
    return _way(InlineBitpacking(), inline_encoding(bits), is_worth, per_value, bits)


def _runs(pages: Pages, bits: int, has_runs: npt.NDArray[np.bool_], limits: ChunkLimits) -> _Way:
    per_value = np.zeros(pages.count)
    own = np.flatnonzero(has_runs)
    if len(own):
        encoded = Rle().encode_pages(pages.take(own).block, pages.rows, limits)
        sizes = sum(part.size.reshape(len(own), -1).sum(axis=1) for part in encoded.parts)
        framing = framing_bytes(len(encoded.counts) // len(own), len(encoded.parts))
        per_value[own] = (sizes + framing) / pages.rows
    return _way(Rle(), run_encoding(bits), has_runs, per_value, bits)


def _way(
    codec: Codec,
    encoding: Encoding,
    is_worth: npt.NDArray[np.bool_],
    bytes_per_value: npt.NDArray[np.float64],
    bits: int,
) -> _Way:
    decode_ns = decode_ns_of(codec, bits / 8)
    return _Way(codec, registry.describe(encoding), is_worth, bytes_per_value, decode_ns)


# --- dictionaries -------------------------------------------------------------------------------


@lru_cache(64)
def _items_max(rows: int) -> int:
    """Return how many different values a page may have at most for a dictionary, or a few more.

    >>> _items_max(1000), _items_max(50)
    (440, 0)
    """
    if rows < _OPTIONS.dict_too_small:
        return 0
    items = _EXPECTED_WITHIN * min(rows // _OPTIONS.dict_divisor, _OPTIONS.dict_max_size) + 1
    return math.ceil(items * -math.expm1(-rows / items)) + 1


@dataclass(frozen=True, slots=True)
class _Repeats:
    """How the numbers of a page repeat."""

    rows: int
    distinct: int
    has_runs: bool

    def may_pay(self, widths: Int64s, bytes_to_beat: float, total_to_beat: float) -> bool:
        """Return whether a dictionary might, for numbers whose blocks have these widths.

        Without runs, the indices of a page of one block take the bits of the last item at least,
        and its items those of the widest.
        """
        if self.has_runs or len(widths) > 1:
            return True
        index_bits = (self.distinct - 1).bit_length()
        stored = (index_bits + int(widths[0]) * self.distinct / self.rows) / 8
        if BYTE_NS * stored + LOOK_UP_NS >= total_to_beat:
            return False
        items = items_expected(self.distinct, self.rows)
        return math.log2(max(items, 1)) / 8 < INDICES_MAX * bytes_to_beat
