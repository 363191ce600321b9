"""Which encoding a page gets: try what may help on a sample, and take what costs least to read.

    float64 with two decimals, a million values
      flat(64)                                  8.02 B,  0.6 ns
      general(zstd){flat(64)}                   3.22 B,  9.5 ns
      dictionary of 34 294, indices packed      2.16 B,  1.6 ns     chosen
    the others are refused; `encoding_report()` shows their numbers

Codecs propose what is worth a trial, so nothing here knows how a codec works; `cost` weighs the
bytes that a trial yields against the time to decode them. A sample is a few runs of neighbouring
values, as repetition and order would not show in single ones. A dictionary is tried on the whole
page, for its size is not seen in a sample, but only if values repeat within the sample.

What the field's metadata ask for comes first: then only the choices that obey are tried. Whatever
is chosen, the reference implementation reads it in the file version that is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.encodings import registry
from lancelet.encodings.base import Block, Fields, FileVersion, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    EncodedBlock,
    EncodedValues,
)
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.constant import Constant
from lancelet.encodings.codecs.delta import Delta
from lancelet.encodings.codecs.dictionary import split
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.range import Range, is_range
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.encodings.codecs.words import WORDS, from_words
from lancelet.encodings.cost import LOOK_UP_NS, SAVING_MIN, Cost, raw_bytes, try_codec, try_values
from lancelet.encodings.options import (
    DICT_TOO_SMALL,
    ByteStreamSplitMode,
    Compression,
    EncodingOptions,
)
from lancelet.encodings.sample import sample_of

COMPRESSED_AIM: Final = {Compression.LZ4: 32 * 1024, Compression.ZSTD: 16_000}
"""Chunks that are decompressed as a whole are cut to this, so that one row costs some 10 us.

Zstandard also compresses inputs of up to 16 KiB with more care: strings take 5 % less than in
chunks of 24 KiB.
"""

COMPRESS_FROM_BYTES: Final = 4096
"""Fewer bytes than this are not worth a general compression."""

SMALL_CHUNK_VALUES_BYTES: Final = 16000
"""The most bytes of values in a chunk of 2.1, which leaves half of the chunk to levels."""

LARGE_CHUNK_VALUES_BYTES: Final = 1 << 30
"""The same since 2.2."""

REPEATED_MIN: Final = 0.2
"""A dictionary is tried if this share of a sample repeats other values of the sample."""

_GENERAL: Final = (Compression.LZ4, Compression.ZSTD)

_PACKED: Final = (InlineBitpacking, Rle)
"""Choices that a general compression around them hardly shrinks further."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlock:
    """The values of a mini-block page, and how they came to be encoded so.

    With a `dictionary`, the values are indices into its `num_dictionary_items` items.
    `refused` gives, for every choice that was tried, what it would have cost.
    """

    values: ChunkedValues
    description: str
    refused: Mapping[str, str]
    dictionary: EncodedBlock | None = None
    num_dictionary_items: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """A choice that was tried on a sample."""

    codec: Codec
    limits: ChunkLimits
    description: str
    cost: Cost
    encoded: ChunkedValues = field(repr=False)


def encode_mini_block(block: Block, *, version: FileVersion, options: EncodingOptions) -> MiniBlock:
    """Encode the values of a page with what is cheapest to read."""
    limits = _limits(version, options)
    sample = sample_of(block)
    trials = _try_all(sample, page_bytes=raw_bytes(block), options=options, limits=limits)
    best = _best(trials, options)
    refused = {trial.description: str(trial.cost) for trial in trials if trial is not best}
    found = _try_dictionary(block, sample, options, limits)
    if found is not None:
        page, cost = found
        if cost.total < best.cost.total:
            return replace(page, refused=refused | {best.description: str(best.cost)})
        refused[page.description] = str(cost)
    encoded = best.encoded if sample is block else best.codec.encode_chunks(block, best.limits)
    return MiniBlock(encoded, best.description, refused)


def encode_dictionary_mini_block(
    indices: FixedWidth, items: Block, *, version: FileVersion, options: EncodingOptions
) -> MiniBlock:
    """Encode values that have a dictionary already: the indices as is cheapest to read."""
    limits = _limits(version, options)
    sample = sample_of(indices)
    trials = _try_all(sample, page_bytes=raw_bytes(indices), options=options, limits=limits)
    best = _best(trials, options)
    encoded = best.encoded if sample is indices else best.codec.encode_chunks(indices, best.limits)
    dictionary = encode_items(items, options)
    return MiniBlock(
        encoded,
        _describe_dictionary(best.description, dictionary, items.count),
        {trial.description: str(trial.cost) for trial in trials if trial is not best},
        dictionary,
        items.count,
    )


def encode_items(items: Block, options: EncodingOptions) -> EncodedBlock:
    """Encode the items of a dictionary as the smallest block that the options allow."""
    plain: Codec = VariableCodec() if isinstance(items, Variable) else Flat()
    choices: list[Codec] = [plain]
    if isinstance(items, FixedWidth) and items.bits in WORDS:
        choices.append(OutOfLineBitpacking())
    level = options.dict_values_compression_level
    match options.dict_values_compression:
        case Compression.LZ4 | Compression.ZSTD as wanted:
            choices = [General(plain, wanted, level)]
        case None if raw_bytes(items) >= COMPRESS_FROM_BYTES:
            choices.append(General(plain, Compression.ZSTD, level))
        case _:
            pass
    return min((codec.encode_block(items) for codec in choices), key=lambda item: len(item.data))


def encode_sequence(words: npt.NDArray[np.uint64]) -> EncodedBlock:
    """Encode positions or counts of version 2.3 as the smallest block there is for them.

    >>> registry.describe(encode_sequence(np.array([3, 5, 7], np.uint64)).encoding)
    'range(3, 2)'
    """
    if not len(words):
        return Constant().encode_block(from_words(words))
    if is_range(words):
        return Range().encode_block(from_words(words))
    packed = OutOfLineBitpacking()
    choices: tuple[Codec, ...] = (Flat(), packed, Delta(packed))
    blocks = [codec.encode_block(from_words(words)) for codec in choices]
    return min(blocks, key=lambda block: len(block.data))


def encode_full_zip(block: Block, *, options: EncodingOptions) -> EncodedValues:
    """Encode values one by one, each to be read alone, with what is cheapest to read."""
    if isinstance(block, Fields):
        return VariablePackedStruct().encode_values(block)
    if not isinstance(block, Variable):
        codec = Flat() if isinstance(block, FixedWidth) else FixedSizeListCodec()
        return codec.encode_values(block)
    sample = sample_of(block)
    best = min(_string_choices(options), key=lambda codec: try_values(codec, sample).total)
    return best.encode_values(block)


def _limits(version: FileVersion, options: EncodingOptions) -> ChunkLimits:
    is_large = version >= FileVersion.V2_2
    bytes_max = LARGE_CHUNK_VALUES_BYTES if is_large else SMALL_CHUNK_VALUES_BYTES
    limits = ChunkLimits(bytes_max=bytes_max)
    aim = options.minichunk_size or limits.bytes_aim
    return replace(limits, bytes_aim=min(aim, bytes_max))


def _try_all(
    sample: Block, *, page_bytes: int, options: EncodingOptions, limits: ChunkLimits
) -> list[_Trial]:
    trials = []
    for codec in _choices(sample, page_bytes, options):
        fitting = limits
        if isinstance(codec, General) and options.minichunk_size is None:
            aim = COMPRESSED_AIM[codec.compression]
            fitting = replace(limits, bytes_aim=min(aim, limits.bytes_max))
        encoded, cost = try_codec(codec, sample, fitting)
        description = registry.describe(encoded.encoding)
        trials.append(_Trial(codec, fitting, description, cost, encoded))
    return trials


def _choices(sample: Block, page_bytes: int, options: EncodingOptions) -> Iterator[Codec]:
    """Yield what the codecs propose and the options allow, then compressions around them."""
    proposed = [codec for kind in registry.CODECS for codec in kind.propose(sample)]
    if _wants_runs(sample, options):
        yield Rle()
        return
    if options.rle_threshold is not None:
        proposed = [codec for codec in proposed if not isinstance(codec, Rle)]
    if options.compression is Compression.NONE:
        proposed = [codec for codec in proposed if not isinstance(codec, (*_PACKED, Fsst))]
    if options.compression is Compression.FSST and isinstance(sample, Variable):
        proposed = [Fsst()]
    yield from proposed
    inner = proposed
    if options.compression not in _GENERAL:
        # Codes of strings are compressed rather than the strings: more of them fit into a chunk,
        # so the result is no larger, and the slow decompression has half of the bytes to make.
        has_codes = any(isinstance(codec, Fsst) for codec in proposed)
        slow = (*_PACKED, VariableCodec) if has_codes else _PACKED
        inner = [codec for codec in proposed if not isinstance(codec, slow)]
    can_split = isinstance(sample, FixedWidth) and sample.bits in (32, 64)
    if can_split and options.bss is ByteStreamSplitMode.ON:
        inner = [ByteStreamSplit()]
    elif can_split and options.bss is ByteStreamSplitMode.AUTO:
        inner = [*inner, ByteStreamSplit()]
    for compression in _compressions(page_bytes, options):
        for codec in inner:
            yield General(codec, compression, options.compression_level)


def _compressions(page_bytes: int, options: EncodingOptions) -> tuple[Compression, ...]:
    match options.compression:
        case None if page_bytes >= COMPRESS_FROM_BYTES:
            return (Compression.LZ4, Compression.ZSTD)
        case Compression.LZ4 | Compression.ZSTD as wanted:
            return (wanted,)
        case _:
            return ()


def _wants_runs(sample: Block, options: EncodingOptions) -> bool:
    """Return whether the options ask for runs, and the sample has as few as they say."""
    if not options.rle_threshold or not isinstance(sample, FixedWidth) or sample.bits not in WORDS:
        return False
    runs = kernels.count_runs(sample.data, sample.bits // 8)
    return runs < options.rle_threshold * sample.count


def _best(trials: Sequence[_Trial], options: EncodingOptions) -> _Trial:
    """Return the cheapest trial.

    Where a general compression is asked for, bytes are what counts, and it is used if it makes
    plain values smaller at all; else it has to save enough over the best there is without it.
    """
    plain = [trial for trial in trials if not isinstance(trial.codec, General)]
    if options.compression in _GENERAL:
        raw = [trial for trial in plain if not isinstance(trial.codec, (*_PACKED, Fsst))]
        asked = _compressed_below(_least_bytes(raw), trials)
        return min(asked, key=lambda trial: trial.cost.bytes_per_value, default=_cheapest(plain))
    least = _least_bytes(plain)
    worth = [
        trial
        for compression, saving in SAVING_MIN.items()
        for trial in _compressed_below((1 - saving) * least, trials, compression)
    ]
    return _cheapest(plain + worth)


def _compressed_below(
    bytes_per_value: float, trials: Sequence[_Trial], *only: Compression
) -> list[_Trial]:
    return [
        trial
        for trial in trials
        if isinstance(trial.codec, General)
        and trial.codec.compression in (only or _GENERAL)
        and trial.cost.bytes_per_value < bytes_per_value
    ]


def _least_bytes(trials: Sequence[_Trial]) -> float:
    return min((trial.cost.bytes_per_value for trial in trials), default=math.inf)


def _cheapest(trials: Sequence[_Trial]) -> _Trial:
    return min(trials, key=lambda trial: trial.cost.total)


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


# --- dictionaries -----------------------------------------------------------------------------


def _try_dictionary(
    block: Block, sample: Block, options: EncodingOptions, limits: ChunkLimits
) -> tuple[MiniBlock, Cost] | None:
    """Return the page with a dictionary, and what it costs, if that is worth a thought."""
    items_max = min(block.count // options.dict_divisor, options.dict_max_size)
    if (
        options.compression in (Compression.NONE, Compression.FSST)
        or block.count < DICT_TOO_SMALL
        or not (isinstance(block, Variable) or (isinstance(block, FixedWidth) and block.bits > 8))
    ):
        return None
    _, distinct = split(sample)
    if distinct.count > min((1 - REPEATED_MIN) * sample.count, items_max):
        return None
    indices, items = split(block)
    if items.count > items_max:
        return None
    words = indices.astype(WORDS[_index_bits(items.count)])
    index_options = replace(options, compression=None, bss=ByteStreamSplitMode.OFF)
    values = from_words(words)
    index_sample = sample_of(values)
    trials = _try_all(
        index_sample, page_bytes=values.data.nbytes, options=index_options, limits=limits
    )
    best = _best(trials, index_options)
    dictionary = encode_items(items, options)
    cost = best.cost.plus(len(dictionary.data) / block.count, LOOK_UP_NS)
    if cost.bytes_per_value * block.count > options.dict_size_ratio * raw_bytes(block):
        return None
    encoded = best.encoded
    if index_sample is not values:
        encoded = best.codec.encode_chunks(values, best.limits)
    description = _describe_dictionary(best.description, dictionary, items.count)
    return MiniBlock(encoded, description, {}, dictionary, items.count), cost


def _index_bits(items: int) -> int:
    """Return the width of the smallest word that can index so many items.

    >>> [_index_bits(256), _index_bits(257), _index_bits(100_000)]
    [8, 16, 32]
    """
    return next(bits for bits in WORDS if items <= 1 << bits)


def _describe_dictionary(indices: str, dictionary: EncodedBlock, items: int) -> str:
    return f"dictionary({items}, {registry.describe(dictionary.encoding)}){{{indices}}}"
