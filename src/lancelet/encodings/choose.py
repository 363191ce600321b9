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
that indices can be expected to take less than the best without a dictionary.

What the field's metadata ask for comes first: then only the choices that obey are tried. Whatever
is chosen, the reference implementation reads it in the file version that is written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from lancelet.encodings.codecs.constant import Constant
from lancelet.encodings.codecs.delta import Delta
from lancelet.encodings.codecs.dictionary import split
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.range import Range, is_range
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.encodings.codecs.words import WORDS, from_words
from lancelet.encodings.cost import LOOK_UP_NS, Cost, raw_bytes, try_values
from lancelet.encodings.options import ByteStreamSplitMode, Compression, EncodingOptions
from lancelet.encodings.sample import sample_of, sample_of_long
from lancelet.encodings.trials import best_of, try_all

SMALL_CHUNK_VALUES_BYTES: Final = 16000
"""The most bytes of values in a chunk of 2.1, which leaves half of the chunk to levels."""

LARGE_CHUNK_VALUES_BYTES: Final = 1 << 30
"""The same since 2.2."""

REPEATED_MIN: Final = 0.05
"""A dictionary is tried if this share of a sample repeats other values of the sample."""

_FEW_VALUES: Final = 512
_FAR_TOO_MANY: Final = 8
"""A part of a sample is looked at first; what it shows of the items may be so far off."""

TINY_BYTES: Final = 512
"""So few bytes are stored as they are: what describes them takes more than could be saved."""

COMPRESS_ITEMS_FROM_BYTES: Final = 4096
"""Fewer bytes of a dictionary's items are not worth a general compression."""

INDICES_MAX: Final = 0.95
"""Indices must be expected to take less than this share of the best without a dictionary."""


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


def encode_mini_block(block: Block, *, version: FileVersion, options: EncodingOptions) -> MiniBlock:
    """Encode the values of a page with what is cheapest to read."""
    limits = limits_of(version, options)
    if raw_bytes(block) <= TINY_BYTES and options == EncodingOptions():
        codec = _plain(block)
        if codec is not None:
            plain = codec.encode_chunks(block, limits)
            return MiniBlock(plain, registry.describe(plain.encoding), {})
    sample = sample_of(block)
    trials = try_all(sample, page_bytes=raw_bytes(block), options=options, limits=limits)
    best = best_of(trials, options)
    refused = {trial.description: str(trial.cost) for trial in trials if trial is not best}
    found = _try_dictionary(block, sample, options, limits, best.cost.bytes_per_value)
    if found is not None:
        page, cost = found
        if cost.total < best.cost.total:
            return replace(page, refused=refused | {best.description: str(best.cost)})
        refused[page.description] = str(cost)
    return MiniBlock(best.encode(block, sample), best.description, refused)


def encode_dictionary_mini_block(
    indices: FixedWidth, items: Block, *, version: FileVersion, options: EncodingOptions
) -> MiniBlock:
    """Encode values that have a dictionary already: the indices as is cheapest to read."""
    limits = limits_of(version, options)
    sample = sample_of(indices)
    trials = try_all(sample, page_bytes=raw_bytes(indices), options=options, limits=limits)
    best = best_of(trials, options)
    dictionary = encode_items(items, options)
    return MiniBlock(
        best.encode(indices, sample),
        _describe_dictionary(best.description, dictionary, items.count),
        {trial.description: str(trial.cost) for trial in trials if trial is not best},
        dictionary,
        items.count,
    )


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


# --- dictionaries -----------------------------------------------------------------------------


def _try_dictionary(
    block: Block,
    sample: Block,
    options: EncodingOptions,
    limits: ChunkLimits,
    bytes_to_beat: float,
) -> tuple[MiniBlock, Cost] | None:
    """Return the page with a dictionary, and what it costs, if that is worth a thought."""
    items_max = min(block.count // options.dict_divisor, options.dict_max_size)
    if (
        block.count < options.dict_too_small
        or not (isinstance(block, Variable) or (isinstance(block, FixedWidth) and block.bits > 8))
        or not _may_repeat(sample, items_max, bytes_to_beat)
    ):
        return None
    indices, items = split(block)
    if items.count > items_max:
        return None
    words = indices.astype(WORDS[_index_bits(items.count)])
    index_options = replace(options, bss=ByteStreamSplitMode.OFF)
    values = from_words(words)
    index_sample = sample_of(values)
    trials = try_all(
        index_sample, page_bytes=values.data.nbytes, options=index_options, limits=limits
    )
    best = best_of(trials, index_options)
    dictionary = encode_items(items, options)
    cost = best.cost.plus(len(dictionary.data) / block.count, LOOK_UP_NS)
    if cost.bytes_per_value * block.count > options.dict_size_ratio * raw_bytes(block):
        return None
    encoded = best.encode(values, index_sample)
    description = _describe_dictionary(best.description, dictionary, items.count)
    return MiniBlock(encoded, description, {}, dictionary, items.count), cost


def _may_repeat(sample: Block, items_max: int, bytes_to_beat: float) -> bool:
    """Return whether a page may have a small dictionary whose indices take fewer bytes."""
    if not _repeats_at_all(sample, items_max):
        return False
    indices, distinct = split(sample)
    items = items_expected(distinct.count, sample.count)
    if distinct.count > (1 - REPEATED_MIN) * sample.count or items > items_max:
        return False
    # In runs of equal values indices take less than their width.
    has_runs = kernels.count_runs(indices.view(np.uint8), indices.itemsize) * 2 <= sample.count
    return has_runs or math.log2(max(items, 1)) / 8 < INDICES_MAX * bytes_to_beat


def _repeats_at_all(sample: Block, items_max: int) -> bool:
    """Return whether a few values do not show already that there are far too many items."""
    if not isinstance(sample, FixedWidth) or sample.bits % 8:
        return True
    rows = sample.data.reshape(sample.count, -1)[:: max(1, sample.count // _FEW_VALUES)]
    _, distinct = split(FixedWidth(sample.bits, rows.reshape(-1), len(rows)))
    return items_expected(distinct.count, len(rows)) <= _FAR_TOO_MANY * items_max


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


def _describe_dictionary(indices: str, dictionary: EncodedBlock, items: int) -> str:
    return f"dictionary({items}, {registry.describe(dictionary.encoding)}){{{indices}}}"
