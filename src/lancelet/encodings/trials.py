"""Trying encodings on a sample, no more of them than can matter.

    int64 of 21 bits, a sample of 4096
      flat(64), inline_bitpacking(64)     8.02 B, 2.67 B       tried
      entropy of the byte planes          2.63 B               a look at the bytes
      lz4                                 not below 3 B        skipped: no value repeats
      splitting, zstd                     not below 2.63 B     skipped: packing is as good

Choosing must cost a fraction of encoding, and general compressions are by far the dearest trials.
What they save comes from repetition, which the quickest of them shows, or from bytes that are not
equally frequent, which counting shows (`planes_entropy`). Without either they are not tried.

All pages of a batch are tried at once, each codec on those of them that it is worth a trial for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Int64s
from lancelet.encodings import registry
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkLimits, Codec, MeasuredPages
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.words import WORDS
from lancelet.encodings.cost import Costs, costs_of, costs_of_compressed, saving_min
from lancelet.encodings.options import ByteStreamSplitMode, Compression, EncodingOptions
from lancelet.encodings.pages import ChunkedPages, Pages
from lancelet.values import dataclass, replace

COMPRESSED_AIM: Final = {Compression.LZ4: 32 * 1024, Compression.ZSTD: 16_000}
"""Chunks that are decompressed as a whole are cut to this, so that one row costs some 10 us.

Zstandard also compresses inputs of up to 16 KiB with more care: strings take 5 % less than in
chunks of 24 KiB.
"""

CODED_AIM: Final = 8192
"""The same for strings that are coded without a search, which larger chunks hardly shrink, ..."""

WORDS_AIM: Final = 16 * 1024
"""... and for words, which are read as fast as ten times fewer of the others."""

COMPRESS_FROM_BYTES: Final = 32 * 1024
"""Fewer bytes than this are not worth a general compression.

Tables are appended to, and wide ones written, a thousand rows at a time, and trying compressions
would take as long as all else; so few rows are rewritten when files are compacted.
"""

_Numbers: TypeAlias = npt.NDArray[np.float64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

GENERAL: Final = (Compression.LZ4, Compression.ZSTD)

PACKED: Final = (InlineBitpacking, Rle)
"""Choices that a general compression around them hardly shrinks further."""

_PROPOSING: Final = tuple(kind for kind in registry.CODECS if "propose" in vars(kind))
"""The codecs that ever propose to be tried."""

_CODED_BITS: Final = (1, 8, 64, 128, 256)
"""Bits and bytes are coded by how frequent bytes are; words below 64 bits are packed instead."""

_LOOKED_AT: Final = 1024
"""How many values of a sample the entropy is counted of."""

_REPETITION: Final = 0.9
"""LZ4 has found something if it leaves no more than this share."""

_CODES_LEVEL: Final = 2
_NUMBERS_LEVEL: Final = 1
_STRINGS_LEVEL: Final = 3
"""The level of zstd around codes of strings, which takes 1 % more bytes than level 3 and three
quarters of its time; around numbers and bits, which no other level makes smaller; and around
other strings."""

_COPY_BYTES: Final = 3.0
"""What LZ4 takes for a copy; where no value repeats, each value takes one."""

_ZSTD_OF_LZ4: Final = 0.5
"""The share of LZ4's bytes that zstd may take at best, where there is repetition."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A choice that was tried on samples of pages; `place[i]` is where page i is among them.

    Where it was not tried, that is -1, and bytes and totals have no end.
    """

    codec: Codec
    limits: ChunkLimits
    costs: Costs
    encoded: ChunkedPages | MeasuredPages
    place: Int64s
    bytes_per_value: _Numbers
    totals: _Numbers

    @property
    def description(self) -> str:
        """The choice in words."""
        made = self.encoded.values if isinstance(self.encoded, ChunkedPages) else self.encoded
        words = registry.describe(made.encoding)
        is_coded = isinstance(self.codec, General) and not self.codec.searches
        return f"{words} without a search" if is_coded else words

    def encode(self, pages: Pages, which: Int64s, sample: Pages) -> ChunkedPages:
        """Encode some of the pages of which `sample` was tried."""
        if sample is pages and isinstance(self.encoded, ChunkedPages):
            return self.encoded.take(self.place[which])
        part = pages.take(which)
        return ChunkedPages.of(self.codec.encode_pages(part.block, part.rows, self.limits), part)


def try_all(
    sample: Pages, *, page_bytes: Int64s, options: EncodingOptions, limits: ChunkLimits
) -> list[Trial]:
    """Try on samples what the codecs propose and the options allow, and compressions of it."""
    trials = _Trials(sample, page_bytes, options, limits)
    proposed = _proposed(sample, options)
    has_runs = _wants_runs(sample, options)
    if has_runs.any():
        trials.add(Rle(), has_runs.nonzero()[0])
        proposed = [(codec, which[~has_runs[which]]) for codec, which in proposed]
    for codec, which in proposed:
        trials.add(codec, which)
    if not trials.may_compress:
        return trials.found
    trials.look_at_bytes()
    for general, which in _compressed(sample, proposed, options):
        trials.add_compressed(general, which)
    return trials.found


class _Trials:
    """Trials on samples of pages, and what shows which further ones may matter."""

    def __init__(
        self, sample: Pages, page_bytes: Int64s, options: EncodingOptions, limits: ChunkLimits
    ) -> None:
        self.found: list[Trial] = []
        self._sample, self._options, self._limits = sample, options, limits
        self._is_asked_for = options.compression is not None
        self._is_large = page_bytes >= COMPRESS_FROM_BYTES
        self._least = np.full(sample.count, np.inf)
        """The fewest bytes without a general compression."""
        self._repeated = np.full(sample.count, np.inf)
        """The fewest that LZ4 takes where it finds something."""
        self._entropy = np.zeros(sample.count)
        self._repeats: _Flags = np.ones(sample.count, np.bool_)
        self._parts: dict[bytes, Pages] = {}

    @property
    def may_compress(self) -> bool:
        """Whether a general compression is asked for, or any page is large enough to pay for it."""
        return self._is_asked_for or bool(self._is_large.any())

    def add(self, codec: Codec, which: Int64s) -> None:
        """Try a codec on some of the pages."""
        if not len(which):
            return
        part = self._part(which)
        encoded: ChunkedPages | MeasuredPages | None
        encoded = codec.measure_pages(part.block, part.rows, self._limits)
        if encoded is None:
            values = codec.encode_pages(part.block, part.rows, self._limits)
            encoded = ChunkedPages.of(values, part)
        self._least = np.minimum(
            self._least,
            self._keep(codec, self._limits, encoded, costs_of(codec, encoded, part), which),
        )

    def add_compressed(self, codec: General, which: Int64s) -> None:
        """Try a general compression on those of some pages where it may pay."""
        which = which[self._may_pay(codec)[which]]
        if not len(which):
            return
        limits = self._limits
        if self._options.minichunk_size is None:
            limits = replace(limits, bytes_aim=min(_aim(codec), limits.bytes_max))
        part = self._part(which)
        inner = ChunkedPages.of(codec.inner.encode_pages(part.block, part.rows, limits), part)
        encoded = ChunkedPages(codec.compress_chunks(inner.values), inner.edges)
        around = costs_of(codec.inner, inner, part)
        costs = costs_of_compressed(codec, encoded, inner, around, part)
        stored = self._keep(codec, limits, encoded, costs, which)
        if codec.compression is Compression.LZ4:
            plain = self._sample.raw_bytes / max(self._sample.rows, 1)
            is_less = stored < _REPETITION * plain
            self._repeated = np.where(is_less, np.minimum(self._repeated, stored), self._repeated)

    def look_at_bytes(self) -> None:
        """Find out how regular the bytes of numbers are that may be compressed."""
        which = self._is_large.nonzero()[0]
        if self._is_asked_for or not len(which) or not _has_planes(self._sample):
            return
        part = self._part(which)
        self._entropy[which] = planes_entropy(part)
        self._repeats[which] = _values_repeat(part)

    def _may_pay(self, codec: General) -> _Flags:
        """Return where a compression may save what it must, by what is known of the samples."""
        wanted = (1 - saving_min(codec)) * self._least
        may: _Flags = self._entropy < wanted
        if isinstance(codec.inner, ByteStreamSplit):
            pass
        elif codec.compression is Compression.LZ4:
            may |= (self._least > _COPY_BYTES) | self._repeats
        else:
            may |= _ZSTD_OF_LZ4 * self._repeated < wanted
        return may if self._is_asked_for else may & self._is_large

    def _part(self, which: Int64s) -> Pages:
        """Return the samples of some pages, the same object each time that they are asked for."""
        if len(which) == self._sample.count:
            return self._sample
        return self._parts.setdefault(which.tobytes(), self._sample.take(which))

    def _keep(
        self,
        codec: Codec,
        limits: ChunkLimits,
        encoded: ChunkedPages | MeasuredPages,
        costs: Costs,
        which: Int64s,
    ) -> _Numbers:
        """Keep a trial, and return the bytes that a value takes in each of all pages."""
        place, stored, totals = which, costs.bytes_per_value, costs.totals
        if len(which) < self._sample.count:
            place, stored, totals = self._spread(which, np.arange(len(which)), stored, totals)
        self.found.append(Trial(codec, limits, costs, encoded, place, stored, totals))
        return stored

    def _spread(
        self, which: Int64s, place: Int64s, stored: _Numbers, totals: _Numbers
    ) -> tuple[Int64s, _Numbers, _Numbers]:
        """Return what is known of some pages, by the numbers of all."""
        places = np.full(self._sample.count, -1)
        places[which] = place
        spread = np.full((2, self._sample.count), np.inf)
        spread[:, which] = stored, totals
        return places, spread[0], spread[1]


def _aim(codec: General) -> int:
    """Return the bytes that chunks are cut to before they are compressed."""
    if codec.searches:
        return COMPRESSED_AIM[codec.compression]
    return CODED_AIM if isinstance(codec.inner, Fsst) else WORDS_AIM


def best_of(trials: Sequence[Trial], options: EncodingOptions) -> Int64s:
    """Return the number of the cheapest trial of each page.

    Where a general compression is asked for, bytes are what counts, and it is used if it makes
    plain values smaller at all; else it has to save enough over the best there is without it.
    """
    stored = np.array([trial.bytes_per_value for trial in trials])
    totals = np.array([trial.totals for trial in trials])
    is_general = np.array([isinstance(trial.codec, General) for trial in trials])
    if options.compression in GENERAL:
        is_raw = [not isinstance(trial.codec, (General, *PACKED, Fsst)) for trial in trials]
        least = stored[is_raw].min(axis=0, initial=np.inf)
        asked = np.where(is_general[:, None] & (stored < least), stored, np.inf)
        plain = np.where(is_general[:, None], np.inf, totals)
        has_any = np.isfinite(asked).any(axis=0)
        chosen: Int64s = np.where(has_any, asked.argmin(axis=0), plain.argmin(axis=0))
        return chosen
    least = stored[~is_general].min(axis=0)
    for number, trial in enumerate(trials):
        if isinstance(trial.codec, General):
            is_worth = stored[number] < (1 - saving_min(trial.codec)) * least
            totals[number] = np.where(is_worth, totals[number], np.inf)
    found: Int64s = totals.argmin(axis=0)
    return found


def planes_entropy(values: Pages) -> _Numbers:
    """Return the bytes a value takes if each byte of it is coded by how frequent it is.

    Or by how frequent its difference from the byte before in the same place is, if that is less,
    so that what counts up is known to be regular.

    >>> planes_entropy(Pages.one(FixedWidth(8, np.array([7, 7, 9, 9, 7, 9, 7, 9], np.uint8), 8)))
    array([0.125])
    """
    assert isinstance(values.block, FixedWidth)
    width, rows = values.block.bits // 8, values.rows
    step = max(1, rows // _LOOKED_AT)
    sums = kernels.survey_bytes(values.block.data[: values.count * rows * width], width, rows, step)
    looked_at = (rows - 1) // step + 1
    entropy: _Numbers = (width * math.log2(looked_at) - sums.max(axis=1) / looked_at) / 8
    return entropy


def _has_planes(values: Pages) -> bool:
    block = values.block
    return (
        isinstance(block, FixedWidth) and block.count > 0 and block.bits > 0 and block.bits % 8 == 0
    )


def _values_repeat(values: Pages) -> _Flags:
    """Return in which pages some neighbouring values are equal to others of them."""
    block = values.block
    if not isinstance(block, FixedWidth) or block.bits not in WORDS:
        return np.ones(values.count, np.bool_)
    looked_at = min(values.rows, _LOOKED_AT)
    _, distinct = values.parts([(0, looked_at)]).repeats
    few: _Flags = distinct < _REPETITION * looked_at
    return few


def _proposed(sample: Pages, options: EncodingOptions) -> list[tuple[Codec, Int64s]]:
    """Return what the codecs propose and the options allow, and for which pages."""
    if options.compression is Compression.FSST and isinstance(sample.block, Variable):
        return [(Fsst(), np.array([page])) for page in range(sample.count)]
    unwanted: tuple[type[Codec], ...] = () if options.rle_threshold is None else (Rle,)
    if options.compression is Compression.NONE:
        unwanted = (*unwanted, *PACKED, Fsst)
    return [
        proposed
        for kind in _PROPOSING
        if not issubclass(kind, unwanted)
        for proposed in kind.propose(sample.block, sample.rows)
    ]


def _compressed(
    sample: Pages, proposed: Sequence[tuple[Codec, Int64s]], options: EncodingOptions
) -> Iterator[tuple[General, Int64s]]:
    """Yield compressions around what was proposed, the quickest first."""
    inner = list(proposed)
    if options.compression not in GENERAL:
        # Codes of strings are compressed rather than the strings: more of them fit into a chunk,
        # so the result is no larger, and the slow decompression has half of the bytes to make.
        is_coded = np.zeros(sample.count, np.bool_)
        for codec, which in proposed:
            is_coded[which] |= isinstance(codec, Fsst)
        inner = [
            (codec, which[~is_coded[which]] if isinstance(codec, VariableCodec) else which)
            for codec, which in proposed
            if not isinstance(codec, PACKED)
        ]
    if isinstance(sample.block, FixedWidth) and sample.block.bits in (32, 64):
        if options.bss is ByteStreamSplitMode.ON:
            inner = [(ByteStreamSplit(), sample.every)]
        elif options.bss is ByteStreamSplitMode.AUTO:
            inner = [*inner, (ByteStreamSplit(), sample.every)]
    for compression in _compressions(options):
        for codec, which in inner:
            for general in _around(codec, compression, sample, options):
                yield general, which


def _around(
    codec: Codec, compression: Compression, sample: Pages, options: EncodingOptions
) -> Iterator[General]:
    """Yield the ways to compress what a codec makes."""
    if options.compression is not None:
        yield General(codec, compression, options.compression_level)
        return
    is_zstd = compression is Compression.ZSTD
    if isinstance(codec, Fsst):
        # What LZ4 would find in codes is the order of their offsets.
        if is_zstd:
            yield General(codec, compression, searches=False)
            yield General(codec, compression, _CODES_LEVEL)
        return
    if isinstance(codec, Flat) and is_zstd and _may_be_coded(sample):
        yield General(codec, compression, searches=False)
    is_fixed = isinstance(sample.block, FixedWidth)
    level = _NUMBERS_LEVEL if is_fixed else _STRINGS_LEVEL
    yield General(codec, compression, level if is_zstd else None)


def _may_be_coded(sample: Pages) -> bool:
    """Say whether values are bytes, or words whose high bytes may be those of the value before."""
    return isinstance(sample.block, FixedWidth) and sample.block.bits in _CODED_BITS


def _compressions(options: EncodingOptions) -> tuple[Compression, ...]:
    match options.compression:
        case None:
            return GENERAL
        case Compression.LZ4 | Compression.ZSTD as wanted:
            return (wanted,)
        case _:
            return ()


def _wants_runs(sample: Pages, options: EncodingOptions) -> _Flags:
    """Return where the options ask for runs, and the sample has as few as they say."""
    block = sample.block
    is_asked_for = options.rle_threshold and isinstance(block, FixedWidth) and block.bits in WORDS
    if not is_asked_for:
        return np.zeros(sample.count, np.bool_)
    assert options.rle_threshold is not None
    wants: _Flags = sample.repeats[0] < options.rle_threshold * sample.rows
    return wants
