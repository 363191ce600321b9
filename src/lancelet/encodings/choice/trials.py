"""Trials of encodings on a sample, limited to the promising ones.

    int64 of 21 bits, a sample of 4096
      flat(64), inline_bitpacking(64)     8.02 B, 2.67 B       tried
      entropy of the byte planes          2.63 B               measured
      lz4                                 not below 3 B        skipped: no value repeats
      splitting, zstd                     not below 2.63 B     skipped: packing is as good

Selection must cost a fraction of encoding, and general compression is by far the most expensive
trial. Its savings result from repetition, which LZ4 detects fastest, or from unequal byte
frequencies, which a histogram shows (`planes_entropy`). Without either, it is not tried.

All pages of a batch are tried together, each codec on the promising pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Int64s
from lancelet.encodings.base import FixedWidth, Variable
from lancelet.encodings.choice.cost import Costs, costs_of, costs_of_compressed, saving_min
from lancelet.encodings.choice.options import ByteStreamSplitMode, Compression, EncodingOptions
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkLimits, Codec, MeasuredPages
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.unsigned import UNSIGNED_TYPES
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.pages.leaf_pages import ChunkedPages, Pages
from lancelet.values import dataclass, replace

COMPRESSED_AIM: Final = {Compression.LZ4: 32 * 1024, Compression.ZSTD: 16_000}
"""Target size of compressed chunks in bytes; reading one row costs about 10 us.

Zstandard also compresses inputs of up to 16 KiB more thoroughly: strings take 5 % less than in
chunks of 24 KiB.
"""

CODED_AIM: Final = 8192
"""Target size for strings that are entropy coded only; larger chunks save little."""

NUMBERS_AIM: Final = 16 * 1024
"""Target size for multi-byte numbers, which are ten times faster to read."""

COMPRESS_FROM_BYTES: Final = 32 * 1024
"""Minimum bytes of a page for general compression.

Appends and wide tables often write a thousand rows at a time, and compression trials would double
their encoding time. Compaction rewrites such small pages.
"""

_Numbers: TypeAlias = npt.NDArray[np.float64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

GENERAL: Final = (Compression.LZ4, Compression.ZSTD)

PACKED: Final = (InlineBitpacking, Rle)
"""Codecs whose output general compression hardly shrinks."""

_PROPOSING: Final = tuple(kind for kind in registry.CODECS if "propose" in vars(kind))
"""The codecs that may propose a trial."""

_CODED_BITS: Final = (1, 8, 64, 128, 256)
"""Bit widths suited to entropy coding; numbers below 64 bits are packed instead."""

_ENTROPY_VALUES: Final = 1024
"""Number of sampled values used to measure the entropy."""

_REPETITION: Final = 0.9
"""LZ4 has detected repetition if its output is at most this share of the input."""

_CODES_LEVEL: Final = 2
_NUMBERS_LEVEL: Final = 1
_STRINGS_LEVEL: Final = 3
"""Zstandard levels for string codes (1 % larger than level 3 in three quarters of the time), for
numbers and bits (no other level is smaller), and for other strings.
"""

_LZ4_COPY_BYTES: Final = 3.0
"""Bytes of an LZ4 copy; without repeated values, each value takes one."""

_ZSTD_PER_LZ4_MIN: Final = 0.5
"""The minimum size of Zstandard output relative to LZ4 output for repetitive data."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A codec tried on samples of pages; `sample_index[i]` is the sample of page i.

    For pages without a trial, it is -1, and bytes and totals are infinite.
    """

    codec: Codec
    limits: ChunkLimits
    costs: Costs
    encoded: ChunkedPages | MeasuredPages
    sample_index: Int64s
    bytes_per_value: _Numbers
    totals: _Numbers

    @property
    def description(self) -> str:
        """The description of the encoding."""
        encoded = self.encoded.values if isinstance(self.encoded, ChunkedPages) else self.encoded
        description = registry.describe(encoded.encoding)
        is_coded = isinstance(self.codec, General) and not self.codec.searches
        return f"{description} without a search" if is_coded else description

    def encode(self, pages: Pages, page_indices: Int64s, sample: Pages) -> ChunkedPages:
        """Encode a subset of the pages that `sample` represents."""
        if sample is pages and isinstance(self.encoded, ChunkedPages):
            return self.encoded.take(self.sample_index[page_indices])
        subset = pages.take(page_indices)
        return ChunkedPages.of(
            self.codec.encode_pages(subset.block, subset.rows, self.limits), subset
        )


def try_all(
    sample: Pages, *, page_bytes: Int64s, options: EncodingOptions, limits: ChunkLimits
) -> list[Trial]:
    """Try the proposed codecs permitted by the options, and general compression of them."""
    trials = _Trials(sample, page_bytes, options, limits)
    proposed = _proposed(sample, options)
    has_runs = _has_few_runs(sample, options)
    if has_runs.any():
        trials.add(Rle(), has_runs.nonzero()[0])
        proposed = [
            (codec, page_indices[~has_runs[page_indices]]) for codec, page_indices in proposed
        ]
    for codec, page_indices in proposed:
        trials.add(codec, page_indices)
    if not trials.may_compress:
        return trials.trials
    trials.measure_entropy()
    for general, page_indices in _compressed(sample, proposed, options):
        trials.add_compressed(general, page_indices)
    return trials.trials


class _Trials:
    """Trials on samples of pages, and statistics that limit further trials."""

    def __init__(
        self, sample: Pages, page_bytes: Int64s, options: EncodingOptions, limits: ChunkLimits
    ) -> None:
        self.trials: list[Trial] = []
        self._sample, self._options, self._limits = sample, options, limits
        self._is_requested = options.compression is not None
        self._is_large = page_bytes >= COMPRESS_FROM_BYTES
        self._bytes_min = np.full(sample.count, np.inf)
        """Bytes per value of the smallest trial without general compression, by page."""
        self._lz4_bytes_min = np.full(sample.count, np.inf)
        """Smallest LZ4 output in bytes per value; infinite without repetition."""
        self._entropy_bytes = np.zeros(sample.count)
        self._has_repeats: _Flags = np.ones(sample.count, np.bool_)
        self._subsets: dict[bytes, Pages] = {}

    @property
    def may_compress(self) -> bool:
        """Whether general compression is requested, or any page is large enough for it."""
        return self._is_requested or bool(self._is_large.any())

    def add(self, codec: Codec, page_indices: Int64s) -> None:
        """Try a codec on a subset of the pages."""
        if not len(page_indices):
            return
        subset = self._subset(page_indices)
        encoded: ChunkedPages | MeasuredPages | None
        encoded = codec.measure_pages(subset.block, subset.rows, self._limits)
        if encoded is None:
            values = codec.encode_pages(subset.block, subset.rows, self._limits)
            encoded = ChunkedPages.of(values, subset)
        self._bytes_min = np.minimum(
            self._bytes_min,
            self._record(
                codec, self._limits, encoded, costs_of(codec, encoded, subset), page_indices
            ),
        )

    def add_compressed(self, codec: General, page_indices: Int64s) -> None:
        """Try general compression on the pages where it is promising."""
        page_indices = page_indices[self._is_promising(codec)[page_indices]]
        if not len(page_indices):
            return
        limits = self._limits
        if self._options.minichunk_size is None:
            limits = replace(limits, bytes_aim=min(_aim(codec), limits.bytes_max))
        subset = self._subset(page_indices)
        inner = ChunkedPages.of(codec.inner.encode_pages(subset.block, subset.rows, limits), subset)
        encoded = ChunkedPages(codec.compress_chunks(inner.values), inner.edges)
        inner_costs = costs_of(codec.inner, inner, subset)
        costs = costs_of_compressed(codec, encoded, inner, inner_costs, subset)
        stored = self._record(codec, limits, encoded, costs, page_indices)
        if codec.compression is Compression.LZ4:
            plain = self._sample.raw_bytes / max(self._sample.rows, 1)
            is_less = stored < _REPETITION * plain
            self._lz4_bytes_min = np.where(
                is_less, np.minimum(self._lz4_bytes_min, stored), self._lz4_bytes_min
            )

    def measure_entropy(self) -> None:
        """Measure byte entropy and repetition of pages large enough to compress."""
        page_indices = self._is_large.nonzero()[0]
        if self._is_requested or not len(page_indices) or not _has_planes(self._sample):
            return
        subset = self._subset(page_indices)
        self._entropy_bytes[page_indices] = planes_entropy(subset)
        self._has_repeats[page_indices] = _values_repeat(subset)

    def _is_promising(self, codec: General) -> _Flags:
        """Return a mask of the pages where `codec` could save enough bytes to be chosen."""
        bytes_max = (1 - saving_min(codec)) * self._bytes_min
        promising: _Flags = self._entropy_bytes < bytes_max
        if isinstance(codec.inner, ByteStreamSplit):
            pass
        elif codec.compression is Compression.LZ4:
            promising |= (self._bytes_min > _LZ4_COPY_BYTES) | self._has_repeats
        else:
            promising |= _ZSTD_PER_LZ4_MIN * self._lz4_bytes_min < bytes_max
        return promising if self._is_requested else promising & self._is_large

    def _subset(self, page_indices: Int64s) -> Pages:
        """Return the samples of a subset of pages, cached by page indices."""
        if len(page_indices) == self._sample.count:
            return self._sample
        return self._subsets.setdefault(page_indices.tobytes(), self._sample.take(page_indices))

    def _record(
        self,
        codec: Codec,
        limits: ChunkLimits,
        encoded: ChunkedPages | MeasuredPages,
        costs: Costs,
        page_indices: Int64s,
    ) -> _Numbers:
        """Record a trial; return its bytes per value for all pages."""
        sample_index, stored, totals = page_indices, costs.bytes_per_value, costs.totals
        if len(page_indices) < self._sample.count:
            sample_index, stored, totals = self._expand(
                page_indices, np.arange(len(page_indices)), stored, totals
            )
        self.trials.append(Trial(codec, limits, costs, encoded, sample_index, stored, totals))
        return stored

    def _expand(
        self, page_indices: Int64s, subset_index: Int64s, stored: _Numbers, totals: _Numbers
    ) -> tuple[Int64s, _Numbers, _Numbers]:
        """Expand the results of a subset to all pages."""
        sample_indices = np.full(self._sample.count, -1)
        sample_indices[page_indices] = subset_index
        expanded = np.full((2, self._sample.count), np.inf)
        expanded[:, page_indices] = stored, totals
        return sample_indices, expanded[0], expanded[1]


def _aim(codec: General) -> int:
    """Return the target chunk size before compression."""
    if codec.searches:
        return COMPRESSED_AIM[codec.compression]
    return CODED_AIM if isinstance(codec.inner, Fsst) else NUMBERS_AIM


def best_trials(trials: Sequence[Trial], options: EncodingOptions) -> Int64s:
    """Return the index of the cheapest trial of each page.

    If general compression is requested, the smallest trial wins, and it is used if smaller than
    plain values. Otherwise it must save the minimum share over the best trial without it.
    """
    stored = np.array([trial.bytes_per_value for trial in trials])
    totals = np.array([trial.totals for trial in trials])
    is_general = np.array([isinstance(trial.codec, General) for trial in trials])
    if options.compression in GENERAL:
        is_raw = [not isinstance(trial.codec, (General, *PACKED, Fsst)) for trial in trials]
        bytes_min = stored[is_raw].min(axis=0, initial=np.inf)
        general_bytes = np.where(is_general[:, None] & (stored < bytes_min), stored, np.inf)
        plain = np.where(is_general[:, None], np.inf, totals)
        has_any = np.isfinite(general_bytes).any(axis=0)
        chosen: Int64s = np.where(has_any, general_bytes.argmin(axis=0), plain.argmin(axis=0))
        return chosen
    bytes_min = stored[~is_general].min(axis=0)
    for number, trial in enumerate(trials):
        if isinstance(trial.codec, General):
            is_smaller = stored[number] < (1 - saving_min(trial.codec)) * bytes_min
            totals[number] = np.where(is_smaller, totals[number], np.inf)
    best: Int64s = totals.argmin(axis=0)
    return best


def planes_entropy(values: Pages) -> _Numbers:
    """Return the bytes per value under order-0 entropy coding of each byte plane.

    Bytes are replaced by differences from the same byte of the previous value if that is smaller,
    so that sequences are recognized as regular.

    >>> planes_entropy(Pages.single(FixedWidth(8, np.array([7, 7, 9, 9, 7, 9, 7, 9], np.uint8), 8)))
    array([0.125])
    """
    assert isinstance(values.block, FixedWidth)
    width, rows = values.block.bits // 8, values.rows
    step = max(1, rows // _ENTROPY_VALUES)
    sums = kernels.byte_entropy_sums(
        values.block.data[: values.count * rows * width], width, rows, step
    )
    num_values = (rows - 1) // step + 1
    entropy: _Numbers = (width * math.log2(num_values) - sums.max(axis=1) / num_values) / 8
    return entropy


def _has_planes(values: Pages) -> bool:
    block = values.block
    return (
        isinstance(block, FixedWidth) and block.count > 0 and block.bits > 0 and block.bits % 8 == 0
    )


def _values_repeat(values: Pages) -> _Flags:
    """Return a mask of the pages with repeated values at the start of the sample."""
    block = values.block
    if not isinstance(block, FixedWidth) or block.bits not in UNSIGNED_TYPES:
        return np.ones(values.count, np.bool_)
    num_values = min(values.rows, _ENTROPY_VALUES)
    _, distinct = values.slices([(0, num_values)]).runs_and_distinct
    repeats: _Flags = distinct < _REPETITION * num_values
    return repeats


def _proposed(sample: Pages, options: EncodingOptions) -> list[tuple[Codec, Int64s]]:
    """Return the proposed codecs permitted by the options, with their pages."""
    if options.compression is Compression.FSST and isinstance(sample.block, Variable):
        return [(Fsst(), np.array([page])) for page in range(sample.count)]
    excluded: tuple[type[Codec], ...] = () if options.rle_threshold is None else (Rle,)
    if options.compression is Compression.NONE:
        excluded = (*excluded, *PACKED, Fsst)
    return [
        proposed
        for kind in _PROPOSING
        if not issubclass(kind, excluded)
        for proposed in kind.propose(sample.block, sample.rows)
    ]


def _compressed(
    sample: Pages, proposed: Sequence[tuple[Codec, Int64s]], options: EncodingOptions
) -> Iterator[tuple[General, Int64s]]:
    """Yield general compressions of the proposed codecs, fastest first."""
    inner = list(proposed)
    if options.compression not in GENERAL:
        # Compress codes of strings instead of the strings: a chunk holds more of them, so the
        # result is no larger, and the slow decompression generates half of the bytes.
        is_coded = np.zeros(sample.count, np.bool_)
        for codec, page_indices in proposed:
            is_coded[page_indices] |= isinstance(codec, Fsst)
        inner = [
            (
                codec,
                page_indices[~is_coded[page_indices]]
                if isinstance(codec, VariableCodec)
                else page_indices,
            )
            for codec, page_indices in proposed
            if not isinstance(codec, PACKED)
        ]
    if isinstance(sample.block, FixedWidth) and sample.block.bits in (32, 64):
        if options.bss is ByteStreamSplitMode.ON:
            inner = [(ByteStreamSplit(), sample.indices)]
        elif options.bss is ByteStreamSplitMode.AUTO:
            inner = [*inner, (ByteStreamSplit(), sample.indices)]
    for compression in _compressions(options):
        for codec, page_indices in inner:
            for general in _general_codecs(codec, compression, sample, options):
                yield general, page_indices


def _general_codecs(
    codec: Codec, compression: Compression, sample: Pages, options: EncodingOptions
) -> Iterator[General]:
    """Yield the general compressions to try on the output of a codec."""
    if options.compression is not None:
        yield General(codec, compression, options.compression_level)
        return
    is_zstd = compression is Compression.ZSTD
    if isinstance(codec, Fsst):
        # In codes, LZ4 would only find the order of their offsets.
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
    """Return whether entropy coding may pay: bytes, or integers with repetitive high bytes."""
    return isinstance(sample.block, FixedWidth) and sample.block.bits in _CODED_BITS


def _compressions(options: EncodingOptions) -> tuple[Compression, ...]:
    match options.compression:
        case None:
            return GENERAL
        case Compression.LZ4 | Compression.ZSTD as compression:
            return (compression,)
        case _:
            return ()


def _has_few_runs(sample: Pages, options: EncodingOptions) -> _Flags:
    """Return a mask of the pages with few enough runs for the requested threshold."""
    block = sample.block
    is_requested = (
        options.rle_threshold and isinstance(block, FixedWidth) and block.bits in UNSIGNED_TYPES
    )
    if not is_requested:
        return np.zeros(sample.count, np.bool_)
    assert options.rle_threshold is not None
    has_runs: _Flags = sample.runs_and_distinct[0] < options.rle_threshold * sample.rows
    return has_runs
