"""What the kernel for a few rows must know of a run of pages.

    ChunkRun    first_value [0 1024 ...]  position [...]  inline packing  64 bits  no items

It is known when the pages of a run were read once, of what was checked then. What the kernel does
not read is not made known to it, and is read in the general way.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.codecs.flat import flat_bits
from lancelet.encodings.codecs.fsst import join_tables, message_with_table, split_tables
from lancelet.encodings.codecs.words import WORDS
from lancelet.encodings.layout import ConstantLayout
from lancelet.encodings.levels import Layers
from lancelet.kernels import ConstantRun, KnownItems, KnownSymbols
from lancelet.values import dataclass

POSITION_MAX: Final = 1 << 61
"""Positions and sizes beyond it cannot be added; no file has them."""

FIXED, BITS, STRINGS_32, STRINGS_64 = range(4)
"""What a column becomes."""

_FLAT, _INLINE, _SPLIT, _RUNS, VARIABLE, FSST = range(6)

_SYMBOL_BYTES_MAX: Final = 8
_TABLE_CODES: Final = 256


@dataclass(frozen=True, slots=True)
class Form:
    """What the values of a type are in memory; `width` are the bytes of one, or of an offset."""

    kind: int
    width: int
    is_text: bool = False

    @property
    def is_strings(self) -> bool:
        """Whether values are bytes between offsets."""
        return self.kind in (STRINGS_32, STRINGS_64)


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """How the values of a chunk are encoded, of those ways that the kernel knows.

    `bits` are those of a value, or of an offset.
    """

    compression: int
    codec: int
    bits: int

    @property
    def num_buffers(self) -> int:
        """How many buffers a chunk has."""
        return 2 if self.codec == _RUNS else 1

    @property
    def is_strings(self) -> bool:
        """Whether values are bytes between offsets."""
        return self.codec in (VARIABLE, FSST)

    def fits(self, form: Form) -> bool:
        """Whether what is decoded are the bytes of the form."""
        if form.is_strings or self.is_strings:
            return form.is_strings and self.is_strings
        if form.kind == BITS:
            return self.codec == _FLAT and self.bits == 1
        return self.bits == 8 * form.width


def form_of(data_type: pa.DataType) -> Form | None:
    """Return what values of a type are in memory, or `None` if they are more than one buffer.

    >>> form_of(pa.list_(pa.float32(), 128))
    Form(kind=0, width=512, is_text=False)
    """
    types = pa.types
    if types.is_boolean(data_type):
        return Form(BITS, 0)
    if types.is_string(data_type) or types.is_binary(data_type):
        return Form(STRINGS_32, 4, types.is_string(data_type))
    if types.is_large_string(data_type) or types.is_large_binary(data_type):
        return Form(STRINGS_64, 8, types.is_large_string(data_type))
    if types.is_fixed_size_list(data_type):
        items = form_of(data_type.value_type)
        width = 0 if items is None or items.kind != FIXED else data_type.list_size * items.width
        return Form(FIXED, width) if width else None
    if types.is_primitive(data_type) or types.is_decimal(data_type):
        return Form(FIXED, data_type.bit_width // 8)
    if types.is_fixed_size_binary(data_type) and data_type.byte_width:
        return Form(FIXED, data_type.byte_width)
    return None


def value_codec(encoding: Encoding) -> ValueCodec | None:
    """Return how values are encoded, or `None` if the kernel does not know it."""
    compression = 0
    if encoding.WhichOneof("compression") == "general":
        compression = int(encoding.general.compression.scheme)
        encoding = encoding.general.values
        if compression not in (1, 2):
            return None
    found = _plain_codec(encoding)
    return None if found is None else ValueCodec(compression, *found)


def is_optional(layers: Layers, *, has_definition: bool) -> bool:
    """Whether entries are single values, of which some may be null."""
    is_single = len(layers.each) == 1 and not layers.rep_max
    return is_single and (layers.def_max == 1 or not has_definition)


def known_symbols(tables: Bytes, first_chunk: Int64s) -> KnownSymbols | None:
    """Return tables of symbols, each for the chunks of a page; `None` for those of other sizes."""
    symbols, lengths = split_tables(tables)
    if int(lengths.max()) > _SYMBOL_BYTES_MAX or len(first_chunk) <= len(lengths) // _TABLE_CODES:
        return None
    return KnownSymbols(symbols, lengths, first_chunk)


def own_table(encoding: Encoding) -> Bytes | None:
    """Return the whole table of symbols that an encoding has."""
    message = message_with_table(encoding)
    return None if message is None else join_tables([message.symbol_table])


def known_items(block: Block) -> KnownItems | None:
    """Return the items of a dictionary, or `None` if the kernel cannot read them."""
    match block:
        case FixedWidth(bits=bits, data=data, count=count) if bits % 8 == 0:
            return KnownItems(count, bits // 8, data)
        case Variable(offsets=offsets, data=data):
            return KnownItems(block.count, offsets.itemsize, offsets.view(np.uint8), data)
    return None


def constant_run(layout: ConstantLayout, form: Form, *, has_bytes: bool) -> ConstantRun | None:
    """Return what is known of a page that needs nothing but its message."""
    value = layout.inline_value
    if has_bytes or layout.has_value_buffer or layout.num_definition or layout.num_repetition:
        return None
    if not is_optional(layout.layers, has_definition=False):
        return None
    if value is None:
        return ConstantRun(None)
    if form.kind != FIXED or len(value) != form.width:
        return None
    return ConstantRun(np.frombuffer(value, np.uint8))


def _plain_codec(encoding: Encoding) -> tuple[int, int] | None:
    match encoding.WhichOneof("compression"):
        case "flat":
            return _FLAT, flat_bits(encoding.flat)
        case "inline_bitpacking":
            return _word(_INLINE, encoding.inline_bitpacking.uncompressed_bits_per_value)
        case "byte_stream_split":
            bits = _flat_bits(encoding.byte_stream_split.values)
            return (_SPLIT, bits) if bits in (32, 64) else None
        case "rle":
            bits = _flat_bits(encoding.rle.values)
            return _word(_RUNS, bits) if _flat_bits(encoding.rle.run_lengths) == 8 else None
        case "fixed_size_list":
            lists = encoding.fixed_size_list
            inner = None if lists.has_validity else _plain_codec(lists.values)
            if inner is None or inner[0] != _FLAT or inner[1] % 8:
                return None
            return _FLAT, inner[1] * int(lists.items_per_value)
        case "variable":
            bits = _flat_bits(encoding.variable.offsets)
            return (VARIABLE, bits) if bits in (32, 64) else None
        case "fsst" if message_with_table(encoding) is not None:
            bits = _flat_bits(encoding.fsst.values.variable.offsets)
            return (FSST, bits) if bits in (32, 64) else None
    return None


def _flat_bits(encoding: Encoding) -> int:
    return flat_bits(encoding.flat) if encoding.WhichOneof("compression") == "flat" else 0


def _word(codec: int, bits: int) -> tuple[int, int] | None:
    return (codec, int(bits)) if bits in WORDS else None
