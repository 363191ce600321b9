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
than the best other encoding.

Options in the field metadata restrict the candidates. The reference implementation can read every
choice in the file version being written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from lancelet.encodings.base import Block, Fields, FileVersion, FixedWidth, Variable
from lancelet.encodings.choice.cost import BYTE_NS, LOOKUP_NS, Cost, try_values
from lancelet.encodings.choice.options import (
    PLAIN_OPTIONS,
    ByteStreamSplitMode,
    Compression,
    EncodingOptions,
)
from lancelet.encodings.choice.sample import sample_long_strings, sample_values
from lancelet.encodings.choice.trials import (
    RejectedCosts,
    Trial,
    best_trial,
    runs_and_distinct,
    try_all,
)
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    EncodedBlock,
    EncodedValues,
)
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
from lancelet.encodings.pages.leaf import raw_bytes
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
class MiniBlock:
    """The encoded values of a page; `refused` maps each rejected candidate to its cost."""

    values: ChunkedValues
    description: str
    refused: Mapping[str, str]
    dictionary: Dictionary | None = None


def encode_mini_block(
    block: Block,
    *,
    version: FileVersion,
    options: EncodingOptions,
    trials: Sequence[Trial] | None = None,
) -> MiniBlock:
    """Encode the values of a page with the cheapest encoding to read, given `trials` if made."""
    limits = limits_of(version, options)
    plain = _plain(block)
    if plain is not None and options == PLAIN_OPTIONS and _is_tiny(block):
        values = plain.encode_chunks(block, limits)
        return MiniBlock(values, registry.describe(values.encoding), NO_CANDIDATES)
    sample = sample_values(block)
    items_max = min(block.count // options.dict_divisor, options.dict_max_size)
    items, runs = math.inf, 0
    if items_max and block.count >= options.dict_too_small and _may_have_dictionary(block):
        runs, distinct = runs_and_distinct(sample)
        if distinct <= math.floor((1 - REPEATED_MIN) * sample.count):
            items = estimate_items(distinct, sample.count)
    if items > items_max:
        items = math.inf
    if _is_obvious(block, items, options):
        indexed = _build_dictionary(block, items_max, options, limits)
        if indexed is not None and indexed.is_small:
            return indexed.encode()
        items = math.inf
    if trials is None:
        trials = try_all(sample, page_bytes=raw_bytes(block), options=options, limits=limits)
    best = best_trial(trials, options)
    refused: Mapping[str, str] = RejectedCosts(trials, best)
    pays_max = _beneficial_items(items_max, best, is_run=runs * 2 <= sample.count)
    if items <= pays_max:
        indexed = _build_dictionary(block, int(pays_max), options, limits)
        if indexed is not None and indexed.is_small:
            if indexed.cost.total < best.cost.total:
                return indexed.encode({**refused, best.description: str(best.cost)})
            refused = {**refused, indexed.description: str(indexed.cost)}
    values = best.encode(block)
    return MiniBlock(values, best.describe(values), refused)


def encode_dictionary_mini_block(
    indices: FixedWidth, items: Block, *, version: FileVersion, options: EncodingOptions
) -> MiniBlock:
    """Encode dictionary values; the indices get the cheapest encoding to read."""
    dictionary = Dictionary(encode_items(items, options), items.count)
    limits = limits_of(version, options)
    trials = try_all(
        sample_values(indices), page_bytes=raw_bytes(indices), options=options, limits=limits
    )
    best = best_trial(trials, options)
    return MiniBlock(
        best.encode(indices),
        _describe_dictionary(best.description, dictionary),
        RejectedCosts(trials, best),
        dictionary,
    )


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


def _is_tiny(block: Block) -> bool:
    """Return whether a page is small enough to be stored plain."""
    num_bytes = raw_bytes(block)
    if block.count > FEW_ROWS:
        return num_bytes <= TINY_BYTES
    return num_bytes <= (FEW_TEXTS_BYTES if isinstance(block, Variable) else FEW_NUMBERS_BYTES)


@dataclass(frozen=True, slots=True, eq=False)
class _Indexed:
    """A page as a dictionary and indices."""

    indices: FixedWidth
    trial: Trial
    dictionary: Dictionary
    cost: Cost
    is_small: bool
    """Whether the dictionary is within the size limit of the options."""

    @property
    def description(self) -> str:
        """The description of the dictionary and its indices."""
        return _describe_dictionary(self.trial.description, self.dictionary)

    def encode(self, refused: Mapping[str, str] = NO_CANDIDATES) -> MiniBlock:
        """Encode the indices."""
        values = self.trial.encode(self.indices)
        return MiniBlock(values, self.description, refused, self.dictionary)


def _may_have_dictionary(block: Block) -> bool:
    return isinstance(block, Variable) or (isinstance(block, FixedWidth) and block.bits > 8)


def _is_obvious(block: Block, items: float, options: EncodingOptions) -> bool:
    """Return whether only a dictionary needs to be tried for a page of strings."""
    if not isinstance(block, Variable) or options.compression is not None or items == math.inf:
        return False
    plain = raw_bytes(block) / block.count
    indices = math.log2(max(items, 2)) / 8 + items * plain / block.count
    return BYTE_NS * indices + LOOKUP_NS < OBVIOUS * BYTE_NS * plain


def _beneficial_items(items_max: int, best: Trial, *, is_run: bool) -> float:
    """Return the maximum dictionary size that pays."""
    if is_run:
        return items_max  # runs of equal values compress indices below their bit width
    bits = 8 * INDICES_MAX * best.cost.bytes_per_value
    return float(min(2 ** min(bits, 62.0), items_max))


def _build_dictionary(
    block: Block, items_max: int, options: EncodingOptions, limits: ChunkLimits
) -> _Indexed | None:
    """Build a dictionary of at most `items_max` items, or return None."""
    parts = split(block, items_max)
    if parts is None:
        return None
    numbers, items = parts
    indices = from_unsigned(numbers.astype(UNSIGNED_TYPES[_index_bits(items.count)]))
    dictionary = Dictionary(encode_items(items, options), items.count)
    options = replace(options, bss=ByteStreamSplitMode.OFF)
    trials = try_all(
        sample_values(indices), page_bytes=raw_bytes(indices), options=options, limits=limits
    )
    best = best_trial(trials, options)
    cost = best.cost.plus(len(dictionary.block.data) / block.count, LOOKUP_NS)
    bytes_max = options.dict_size_ratio * (raw_bytes(block) / block.count)
    return _Indexed(indices, best, dictionary, cost, cost.bytes_per_value <= bytes_max)


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
