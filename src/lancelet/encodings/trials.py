"""Trying encodings on a sample, no more of them than can matter.

    int64 of 21 bits, a sample of 4096
      flat(64), inline_bitpacking(64)     8.02 B, 2.67 B       tried
      entropy of the byte planes          2.63 B               a look at the bytes
      lz4                                 not below 3 B        skipped: no value repeats
      splitting, zstd                     not below 2.63 B     skipped: packing is as good

Choosing must cost a fraction of encoding, and general compressions are by far the dearest trials.
What they save comes from repetition, which the quickest of them shows, or from bytes that are not
equally frequent, which counting shows (`planes_entropy`). Without either they are not tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.encodings import registry
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.words import WORDS
from lancelet.encodings.cost import Cost, raw_bytes, saving_min, try_codec
from lancelet.encodings.options import ByteStreamSplitMode, Compression, EncodingOptions

COMPRESSED_AIM: Final = {Compression.LZ4: 32 * 1024, Compression.ZSTD: 16_000}
"""Chunks that are decompressed as a whole are cut to this, so that one row costs some 10 us.

Zstandard also compresses inputs of up to 16 KiB with more care: strings take 5 % less than in
chunks of 24 KiB.
"""

CODED_AIM: Final = 8192
"""The same for strings that are coded without a search, which larger chunks hardly shrink, ..."""

WORDS_AIM: Final = 16 * 1024
"""... and for words, which are read as fast as ten times fewer of the others."""

COMPRESS_FROM_BYTES: Final = 16 * 1024
"""Fewer bytes than this are not worth a general compression.

A table of a thousand columns is written a thousand rows at a time, and trying compressions would
take ten times as long as all else.
"""

GENERAL: Final = (Compression.LZ4, Compression.ZSTD)

PACKED: Final = (InlineBitpacking, Rle)
"""Choices that a general compression around them hardly shrinks further."""

_WORD_BITS: Final = (64, 128, 256)
"""Values of fewer bits are packed instead."""

_LOOKED_AT: Final = 1024
"""How many values of a sample the entropy is counted of."""

_REPETITION: Final = 0.9
"""LZ4 has found something if it leaves no more than this share."""

_COPY_BYTES: Final = 3.0
"""What LZ4 takes for a copy; where no value repeats, each value takes one."""

_ZSTD_OF_LZ4: Final = 0.5
"""The share of LZ4's bytes that zstd may take at best, where there is repetition."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A choice that was tried on a sample."""

    codec: Codec
    limits: ChunkLimits
    description: str
    cost: Cost
    encoded: ChunkedValues = field(repr=False)

    def encode(self, block: Block, sample: Block) -> ChunkedValues:
        """Encode the page of which `sample` was tried."""
        return self.encoded if sample is block else self.codec.encode_chunks(block, self.limits)


def try_all(
    sample: Block, *, page_bytes: int, options: EncodingOptions, limits: ChunkLimits
) -> list[Trial]:
    """Try on a sample what the codecs propose and the options allow, and compressions of it."""
    if _wants_runs(sample, options):
        return [_try(Rle(), sample, limits)]
    proposed = _proposed(sample, options)
    trials = [_try(codec, sample, limits) for codec in proposed]
    plain_bytes = raw_bytes(sample) / max(sample.count, 1)
    entropy, repeats = 0.0, True
    may_compress = options.compression is None and page_bytes >= COMPRESS_FROM_BYTES
    if may_compress and isinstance(sample, FixedWidth) and _has_planes(sample):
        entropy, repeats = planes_entropy(sample), _values_repeat(sample)
    for codec in _compressed(sample, proposed, page_bytes, options):
        if _may_pay(codec, trials, entropy, plain_bytes, repeats=repeats):
            fitting = limits
            if options.minichunk_size is None:
                fitting = replace(limits, bytes_aim=min(_aim(codec), limits.bytes_max))
            trials.append(_try(codec, sample, fitting))
    return trials


def _aim(codec: General) -> int:
    """Return the bytes that chunks are cut to before they are compressed."""
    if codec.searches:
        return COMPRESSED_AIM[codec.compression]
    return CODED_AIM if isinstance(codec.inner, Fsst) else WORDS_AIM


def best_of(trials: Sequence[Trial], options: EncodingOptions) -> Trial:
    """Return the cheapest trial.

    Where a general compression is asked for, bytes are what counts, and it is used if it makes
    plain values smaller at all; else it has to save enough over the best there is without it.
    """
    plain = [trial for trial in trials if not isinstance(trial.codec, General)]
    if options.compression in GENERAL:
        raw = [trial for trial in plain if not isinstance(trial.codec, (*PACKED, Fsst))]
        asked = _compressed_below(_least_bytes(raw), trials)
        return min(asked, key=lambda trial: trial.cost.bytes_per_value, default=_cheapest(plain))
    least = _least_bytes(plain)
    worth = [
        trial
        for trial in trials
        if isinstance(trial.codec, General)
        and trial.cost.bytes_per_value < (1 - saving_min(trial.codec)) * least
    ]
    return _cheapest(plain + worth)


def planes_entropy(values: FixedWidth) -> float:
    """Return the bytes a value takes if each byte of it is coded by how frequent it is.

    Or by how frequent its difference from the byte before in the same place is, if that is less,
    so that what counts up is known to be regular.

    >>> planes_entropy(FixedWidth(8, np.array([7, 7, 9, 9, 7, 9, 7, 9], np.uint8), 8))
    0.125
    """
    width = values.bits // 8
    rows = values.data[: values.count * width].reshape(-1, width)
    looked_at = rows[:: max(1, len(rows) // _LOOKED_AT)]
    return min(_entropy(looked_at), _entropy(np.diff(looked_at, axis=0, prepend=looked_at[:1])))


def _has_planes(values: FixedWidth) -> bool:
    return values.count > 0 and values.bits > 0 and values.bits % 8 == 0


def _values_repeat(values: FixedWidth) -> bool:
    """Return whether some neighbouring values are equal to others of them."""
    width = values.bits // 8
    if values.bits not in WORDS:
        return True
    looked_at = values.data[: min(values.count, _LOOKED_AT) * width].view(f"<u{width}")
    return len(np.unique(looked_at)) < _REPETITION * len(looked_at)


def _entropy(rows: npt.NDArray[np.uint8]) -> float:
    count, width = len(rows), int(rows.shape[1])
    found = np.bincount((rows + 256 * np.arange(width)).reshape(-1))
    found = found[found > 0]
    seen = float(found @ np.log2(found))
    return (width * math.log2(count) - seen / count) / 8


def _try(codec: Codec, sample: Block, limits: ChunkLimits) -> Trial:
    encoded, cost = try_codec(codec, sample, limits)
    description = registry.describe(encoded.encoding)
    if isinstance(codec, General) and not codec.searches:
        description += " without a search"
    return Trial(codec, limits, description, cost, encoded)


def _proposed(sample: Block, options: EncodingOptions) -> list[Codec]:
    """Return what the codecs propose and the options allow."""
    if options.compression is Compression.FSST and isinstance(sample, Variable):
        return [Fsst()]
    proposed = [codec for kind in registry.CODECS for codec in kind.propose(sample)]
    if options.rle_threshold is not None:
        proposed = [codec for codec in proposed if not isinstance(codec, Rle)]
    if options.compression is Compression.NONE:
        proposed = [codec for codec in proposed if not isinstance(codec, (*PACKED, Fsst))]
    return proposed


def _compressed(
    sample: Block, proposed: Sequence[Codec], page_bytes: int, options: EncodingOptions
) -> Iterator[General]:
    """Yield compressions around what was proposed, the quickest first."""
    inner = list(proposed)
    if options.compression not in GENERAL:
        # Codes of strings are compressed rather than the strings: more of them fit into a chunk,
        # so the result is no larger, and the slow decompression has half of the bytes to make.
        has_codes = any(isinstance(codec, Fsst) for codec in proposed)
        slow = (*PACKED, VariableCodec) if has_codes else PACKED
        inner = [codec for codec in proposed if not isinstance(codec, slow)]
    can_split = isinstance(sample, FixedWidth) and sample.bits in (32, 64)
    if can_split and options.bss is ByteStreamSplitMode.ON:
        inner = [ByteStreamSplit()]
    elif can_split and options.bss is ByteStreamSplitMode.AUTO:
        inner = [*inner, ByteStreamSplit()]
    for compression in _compressions(page_bytes, options):
        for codec in inner:
            if options.compression is not None:
                yield General(codec, compression, options.compression_level)
            elif isinstance(codec, Fsst):
                # What LZ4 would find in codes is the order of their offsets.
                yield from _compressed_codes(codec, compression)
            else:
                if isinstance(codec, Flat) and compression is Compression.ZSTD and _is_wide(sample):
                    yield General(codec, compression, searches=False)
                yield General(codec, compression)


def _is_wide(sample: Block) -> bool:
    """Say whether values are words whose high bytes may well be those of the value before."""
    return isinstance(sample, FixedWidth) and sample.bits in _WORD_BITS


def _compressed_codes(codec: Fsst, compression: Compression) -> Iterator[General]:
    if compression is Compression.ZSTD:
        yield General(codec, compression, searches=False)
        yield General(codec, compression)


def _compressions(page_bytes: int, options: EncodingOptions) -> tuple[Compression, ...]:
    match options.compression:
        case None if page_bytes >= COMPRESS_FROM_BYTES:
            return GENERAL
        case Compression.LZ4 | Compression.ZSTD as wanted:
            return (wanted,)
        case _:
            return ()


def _may_pay(
    codec: General,
    trials: Sequence[Trial],
    entropy: float,
    plain_bytes: float,
    *,
    repeats: bool,
) -> bool:
    """Return whether a compression may save what it must, by what is known of the sample."""
    least = _least_bytes([trial for trial in trials if not isinstance(trial.codec, General)])
    wanted = (1 - saving_min(codec)) * least
    if entropy < wanted:
        return True
    if isinstance(codec.inner, ByteStreamSplit):
        return False
    if codec.compression is Compression.LZ4:
        return least > _COPY_BYTES or repeats
    repeated = _least_bytes(_compressed_below(_REPETITION * plain_bytes, trials, Compression.LZ4))
    return _ZSTD_OF_LZ4 * repeated < wanted


def _wants_runs(sample: Block, options: EncodingOptions) -> bool:
    """Return whether the options ask for runs, and the sample has as few as they say."""
    if not options.rle_threshold or not isinstance(sample, FixedWidth) or sample.bits not in WORDS:
        return False
    runs = kernels.count_runs(sample.data, sample.bits // 8)
    return runs < options.rle_threshold * sample.count


def _compressed_below(
    bytes_per_value: float, trials: Sequence[Trial], *only: Compression
) -> list[Trial]:
    return [
        trial
        for trial in trials
        if isinstance(trial.codec, General)
        and trial.codec.compression in (only or GENERAL)
        and trial.cost.bytes_per_value < bytes_per_value
    ]


def _least_bytes(trials: Sequence[Trial]) -> float:
    return min((trial.cost.bytes_per_value for trial in trials), default=math.inf)


def _cheapest(trials: Sequence[Trial]) -> Trial:
    return min(trials, key=lambda trial: trial.cost.total)
