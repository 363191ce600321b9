"""Trials of encodings on a sample, limited to the promising ones.

    int64 of 21 bits, a sample of 4096
      flat(64), inline_bitpacking(64)     8.02 B, 2.67 B       tried
      entropy of the byte planes          2.63 B               measured
      lz4                                 not below 3 B        skipped: no value repeats
      splitting, zstd                     not below 2.63 B     skipped: packing is as good

Selection must cost a fraction of encoding, and general compression is by far the most expensive
trial. Its savings result from repetition, which LZ4 detects fastest, or from unequal byte
frequencies, which a histogram shows (`planes_entropy`). Without either, it is not tried.

The kernel for pages of numbers and strings makes the same trials, except those that need a symbol
table or the Zstandard library. If one of these is promising, the others are not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from lancelet import kernels
from lancelet.buffers import ByteSlices
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.choice.cost import (
    Cost,
    cost_of,
    cost_of_compressed,
    least_cost_of_compressed,
    saving_min,
)
from lancelet.encodings.choice.options import (
    PLAIN_OPTIONS,
    ByteStreamSplitMode,
    Compression,
    EncodingOptions,
)
from lancelet.encodings.choice.sample import sample_values
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.unsigned import UNSIGNED_TYPES
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.pages.leaf import raw_bytes, slice_block
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

GENERAL: Final = (Compression.LZ4, Compression.ZSTD)

PACKED: Final = (InlineBitpacking, Rle)
"""Codecs whose output general compression hardly shrinks."""

_PROPOSING: Final = tuple(kind for kind in registry.CODECS if "propose" in vars(kind))
"""The codecs that may propose a trial."""

_CODED_BITS: Final = (1, 8, 64, 128, 256)
"""Bit widths suited to entropy coding; numbers below 64 bits are packed instead."""

ENTROPY_VALUES: Final = 1024
"""Number of sampled values used to measure the entropy."""

REPETITION: Final = 0.9
"""LZ4 has detected repetition if its output is at most this share of the input."""

_CODES_LEVEL: Final = 2
_NUMBERS_LEVEL: Final = 1
_STRINGS_LEVEL: Final = 3
"""Zstandard levels for string codes (1 % larger than level 3 in three quarters of the time), for
numbers and bits (no other level is smaller), and for other strings.
"""

LZ4_COPY_BYTES: Final = 3.0
"""Bytes of an LZ4 copy; without repeated values, each value takes one."""

ZSTD_PER_LZ4_MIN: Final = 0.5
"""The minimum size of Zstandard output relative to LZ4 output for repetitive data."""


MEASURED: Final = (
    (Flat, None, None),
    (InlineBitpacking, None, None),
    (Rle, None, None),
    (Flat, Compression.LZ4, True),
    (ByteStreamSplit, Compression.LZ4, True),
    (Flat, Compression.ZSTD, False),
)
"""The encodings of the kernel by number: codec, compression, whether it searches for matches."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A codec and its cost on a sample, which is not encoded if the cost was measured."""

    codec: Codec
    limits: ChunkLimits
    cost: Cost
    sample: Block
    encoded: ChunkedValues | None

    @property
    def description(self) -> str:
        """The description of the encoding."""
        return self.describe(self.encoded or self.codec.encode_chunks(self.sample, self.limits))

    def describe(self, encoded: ChunkedValues) -> str:
        """Return the description of encoded values."""
        description = registry.describe(encoded.encoding)
        is_coded = isinstance(self.codec, General) and not self.codec.searches
        return f"{description} without a search" if is_coded else description

    def encode(self, block: Block) -> ChunkedValues:
        """Encode the page that the sample represents."""
        if self.sample is block and self.encoded is not None:
            return self.encoded
        return self.codec.encode_chunks(block, self.limits)


@dataclass(frozen=True, slots=True, eq=False)
class RejectedCosts(Mapping[str, str]):
    """Costs of the rejected trials of a page by description, formatted on access."""

    trials: Sequence[Trial]
    chosen: Trial

    def __getitem__(self, description: str) -> str:
        """Return the formatted cost of a candidate."""
        return self._formatted()[description]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the descriptions of the rejected candidates."""
        return iter(self._formatted())

    def __len__(self) -> int:
        """Return the number of rejected candidates."""
        return len(self._formatted())

    def _formatted(self) -> dict[str, str]:
        rejected = (trial for trial in self.trials if trial is not self.chosen)
        return {trial.description: str(trial.cost) for trial in rejected}


def try_all(
    sample: Block, *, page_bytes: int, options: EncodingOptions, limits: ChunkLimits
) -> list[Trial]:
    """Try the proposed codecs permitted by the options, and general compression of them."""
    trials = _Trials(sample, page_bytes, options, limits)
    proposed = _proposed(sample, options)
    if _has_few_runs(sample, options):
        trials.add(Rle())
        proposed = []
    trials.add_all(proposed)
    for trial in trials.of_library:
        trials.finish(trial, trial.codec.compress_chunks(trial.inner))
    return trials.trials


def try_library(
    pages: Sequence[tuple[Block, Sequence[Cost]]], limits: ChunkLimits
) -> list[list[Trial]]:
    """Complete the trials of the kernel, given the costs of `MEASURED` of each page of numbers.

    The library compresses the samples of all pages in one call.
    """
    each: list[_Trials] = []
    for block, costs in pages:
        trials = _Trials(sample_values(block), raw_bytes(block), PLAIN_OPTIONS, limits, costs)
        trials.add_all(
            [
                codec()
                for (codec, compression, _), cost in zip(MEASURED, costs, strict=True)
                if compression is None and cost.bytes_per_value >= 0
            ]
        )
        each.append(trials)
    queued = [(trials, trial) for trials in each for trial in trials.of_library]
    if queued:
        slices = [trial.inner.parts[0] for _, trial in queued]
        packed = kernels.zstd_compress_chunks(_joined(slices), level=_NUMBERS_LEVEL, sized=True)
        first = 0
        for (trials, trial), part in zip(queued, slices, strict=True):
            chunks = slice(first, first := first + len(part))
            own = ByteSlices(packed.source, packed.position[chunks], packed.size[chunks])
            trials.finish(trial, trial.codec.wrap_chunks(trial.inner, own))
    return [trials.trials for trials in each]


def _joined(parts: Sequence[ByteSlices]) -> ByteSlices:
    starts = accumulate((part.source.nbytes for part in parts[:-1]), initial=0)
    return ByteSlices(
        np.concatenate([part.source for part in parts]),
        np.concatenate([part.position + at for part, at in zip(parts, starts, strict=True)]),
        np.concatenate([part.size for part in parts]),
    )


class _LibraryTrial(NamedTuple):
    """A promising compression by the Zstandard library, and its uncompressed chunks."""

    codec: General
    limits: ChunkLimits
    inner: ChunkedValues


class _Trials:
    """Trials on a sample, and statistics that limit further trials."""

    def __init__(
        self,
        sample: Block,
        page_bytes: int,
        options: EncodingOptions,
        limits: ChunkLimits,
        measured: Sequence[Cost] | None = None,
    ) -> None:
        self.trials: list[Trial] = []
        self._sample, self._options, self._limits = sample, options, limits
        self.of_library: list[_LibraryTrial] = []
        """Promising compressions by the library, which are compressed after all other trials."""
        self._measured = {} if measured is None else dict(zip(MEASURED, measured, strict=True))
        self._is_requested = options.compression is not None
        self._may_compress = self._is_requested or page_bytes >= COMPRESS_FROM_BYTES
        self._bytes_min = math.inf
        """Bytes per value of the smallest trial without general compression."""
        self._lz4_bytes_min = math.inf
        """LZ4 output in bytes per value; infinite without repetition."""
        self._total_min = math.inf
        """The cost of the cheapest trial that could be chosen, without those of the library."""
        self._entropy_bytes = 0.0
        self._has_repeats = True

    def add_all(self, proposed: Sequence[Codec]) -> None:
        """Try codecs, and general compression of them."""
        for codec in proposed:
            self.add(codec)
        if self._may_compress:
            self._measure_entropy()
            for general in _compressed(self._sample, proposed, self._options):
                self._add_compressed(general)

    def add(self, codec: Codec) -> None:
        """Try a codec."""
        cost = self._measured.get((type(codec), None, None))
        encoded = None
        if cost is None:
            encoded = codec.encode_chunks(self._sample, self._limits)
            cost = cost_of(codec, encoded, self._sample)
        self._bytes_min = min(self._bytes_min, cost.bytes_per_value)
        self._total_min = min(self._total_min, cost.total)
        self.trials.append(Trial(codec, self._limits, cost, self._sample, encoded))

    def finish(self, trial: _LibraryTrial, encoded: ChunkedValues) -> None:
        """Record the result of a trial."""
        cost = cost_of_compressed(trial.codec, encoded, trial.inner, self._sample)
        self.trials.append(Trial(trial.codec, trial.limits, cost, self._sample, encoded))

    def _add_compressed(self, codec: General) -> None:
        """Try general compression where it is promising."""
        cost = self._measured.get((type(codec.inner), codec.compression, codec.searches))
        if not (self._is_promising(codec) if cost is None else cost.bytes_per_value >= 0):
            return
        limits = self._limits
        if self._options.minichunk_size is None:
            limits = replace(limits, bytes_aim=min(_aim(codec), limits.bytes_max))
        encoded = None
        if cost is None:
            inner = codec.inner.encode_chunks(self._sample, limits)
            if codec.compression is Compression.ZSTD and codec.searches:
                self.of_library.append(_LibraryTrial(codec, limits, inner))
                return
            encoded = codec.compress_chunks(inner)
            cost = cost_of_compressed(codec, encoded, inner, self._sample)
        self.trials.append(Trial(codec, limits, cost, self._sample, encoded))
        if cost.bytes_per_value < (1 - saving_min(codec)) * self._bytes_min:
            self._total_min = min(self._total_min, cost.total)
        is_split = isinstance(codec.inner, ByteStreamSplit)
        if codec.compression is Compression.LZ4 and not is_split:
            plain = raw_bytes(self._sample) / max(self._sample.count, 1)
            if cost.bytes_per_value < REPETITION * plain:
                self._lz4_bytes_min = min(self._lz4_bytes_min, cost.bytes_per_value)

    def _measure_entropy(self) -> None:
        """Measure byte entropy and repetition."""
        sample = self._sample
        if self._is_requested or not isinstance(sample, FixedWidth):
            return
        if sample.count and sample.bits and not sample.bits % 8:
            self._entropy_bytes = planes_entropy(sample)
            self._has_repeats = _values_repeat(sample)

    def _is_promising(self, codec: General) -> bool:
        """Return whether `codec` could save enough bytes and time to be chosen."""
        bytes_max = (1 - saving_min(codec)) * self._bytes_min
        is_split = isinstance(codec.inner, ByteStreamSplit)
        if codec.compression is Compression.LZ4:
            may_copy = self._bytes_min > LZ4_COPY_BYTES or self._has_repeats
            return self._entropy_bytes < bytes_max or (may_copy and not is_split)
        bytes_least = self._entropy_bytes
        if not is_split:
            bytes_least = min(bytes_least, ZSTD_PER_LZ4_MIN * self._lz4_bytes_min)
        if self._is_requested:
            return True
        if not bytes_least < bytes_max or not isinstance(self._sample, FixedWidth):
            return bytes_least < bytes_max
        least = least_cost_of_compressed(codec, bytes_least, self._sample)
        return least.total < self._total_min


def _aim(codec: General) -> int:
    """Return the target chunk size before compression."""
    if codec.searches:
        return COMPRESSED_AIM[codec.compression]
    return CODED_AIM if isinstance(codec.inner, Fsst) else NUMBERS_AIM


def best_trial(trials: Sequence[Trial], options: EncodingOptions) -> Trial:
    """Return the cheapest trial.

    If general compression is requested, the smallest trial wins, and it is used if smaller than
    plain values. Otherwise it must save the minimum share over the best trial without it.
    """
    plain = [trial for trial in trials if not isinstance(trial.codec, General)]
    general = [trial for trial in trials if isinstance(trial.codec, General)]
    if options.compression in GENERAL:
        raw = [
            trial.cost.bytes_per_value
            for trial in plain
            if not isinstance(trial.codec, (*PACKED, Fsst))
        ]
        smallest = min(general, key=lambda trial: trial.cost.bytes_per_value, default=None)
        if smallest is not None and smallest.cost.bytes_per_value < min(raw, default=math.inf):
            return smallest
        return min(plain, key=lambda trial: trial.cost.total)
    bytes_min = min(trial.cost.bytes_per_value for trial in plain)
    saving = [
        trial
        for trial in general
        if isinstance(trial.codec, General)
        and trial.cost.bytes_per_value < (1 - saving_min(trial.codec)) * bytes_min
    ]
    return min((*plain, *saving), key=lambda trial: trial.cost.total)


def planes_entropy(values: FixedWidth) -> float:
    """Return the bytes per value under order-0 entropy coding of each byte plane.

    Bytes are replaced by differences from the same byte of the previous value if that is smaller,
    so that sequences are recognized as regular.

    >>> planes_entropy(FixedWidth(8, np.array([7, 7, 9, 9, 7, 9, 7, 9], np.uint8), 8))
    0.125
    """
    width, rows = values.bits // 8, values.count
    step = max(1, rows // ENTROPY_VALUES)
    sums = kernels.byte_entropy_sums(values.data[: rows * width], width, step)
    num_values = (rows - 1) // step + 1
    return (width * math.log2(num_values) - max(sums) / num_values) / 8


def _values_repeat(values: FixedWidth) -> bool:
    """Return whether values repeat at the start of the sample."""
    if values.bits not in UNSIGNED_TYPES:
        return True
    rows = min(values.count, ENTROPY_VALUES)
    start = slice_block(values, 0, rows)
    return runs_and_distinct(start)[1] < REPETITION * rows


def runs_and_distinct(block: Block) -> tuple[int, int]:
    """Return the number of runs of equal values and of distinct values."""
    if isinstance(block, Variable):
        return kernels.count_distinct_strings(block.offsets, block.data, block.count)
    assert isinstance(block, FixedWidth)
    data, width = block.data, block.bits // 8
    if block.bits == 1:
        data, width = np.unpackbits(data, bitorder="little", count=block.count), 1
    return kernels.count_distinct_fixed(data[: block.count * width], width, block.count)


def _proposed(sample: Block, options: EncodingOptions) -> list[Codec]:
    """Return the proposed codecs permitted by the options."""
    if options.compression is Compression.FSST and isinstance(sample, Variable):
        return [Fsst()]
    excluded: tuple[type[Codec], ...] = () if options.rle_threshold is None else (Rle,)
    if options.compression is Compression.NONE:
        excluded = (*excluded, *PACKED, Fsst)
    return [
        codec
        for kind in _PROPOSING
        if not issubclass(kind, excluded)
        for codec in kind.propose(sample)
    ]


def _compressed(
    sample: Block, proposed: Sequence[Codec], options: EncodingOptions
) -> Iterator[General]:
    """Yield general compressions of the proposed codecs, fastest first."""
    inner = list(proposed)
    if options.compression not in GENERAL:
        # Compress codes of strings instead of the strings: a chunk holds more of them, so the
        # result is no larger, and the slow decompression generates half of the bytes.
        is_coded = any(isinstance(codec, Fsst) for codec in proposed)
        excluded = (*PACKED, VariableCodec) if is_coded else PACKED
        inner = [codec for codec in proposed if not isinstance(codec, excluded)]
    if isinstance(sample, FixedWidth) and sample.bits in (32, 64):
        if options.bss is ByteStreamSplitMode.ON:
            inner = [ByteStreamSplit()]
        elif options.bss is ByteStreamSplitMode.AUTO:
            inner = [*inner, ByteStreamSplit()]
    for compression in _compressions(options):
        for codec in inner:
            yield from _general_codecs(codec, compression, sample, options)


def _general_codecs(
    codec: Codec, compression: Compression, sample: Block, options: EncodingOptions
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
    # Entropy coding may pay for bytes, and integers with repetitive high bytes.
    may_code = isinstance(sample, FixedWidth) and sample.bits in _CODED_BITS
    if isinstance(codec, Flat) and is_zstd and may_code:
        yield General(codec, compression, searches=False)
    level = _NUMBERS_LEVEL if isinstance(sample, FixedWidth) else _STRINGS_LEVEL
    yield General(codec, compression, level if is_zstd else None)


def _compressions(options: EncodingOptions) -> tuple[Compression, ...]:
    match options.compression:
        case None:
            return GENERAL
        case Compression.LZ4 | Compression.ZSTD as compression:
            return (compression,)
        case _:
            return ()


def _has_few_runs(sample: Block, options: EncodingOptions) -> bool:
    """Return whether there are few enough runs for the requested threshold."""
    if not options.rle_threshold or not isinstance(sample, FixedWidth):
        return False
    if sample.bits not in UNSIGNED_TYPES:
        return False
    return runs_and_distinct(sample)[0] < options.rle_threshold * sample.count
