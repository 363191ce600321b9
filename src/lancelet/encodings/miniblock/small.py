"""Encoding of small pages of numbers and strings, of all types and widths, in one kernel call.

    int64, float32, bool, string, ...  ->  the cheapest encoding of each  ->  groups of pages

Files with a thousand rows have only pages of a few kilobytes, and selecting each encoding in Python
takes ten times as long as encoding. A kernel makes the same decisions as `choose` for pages without
sampling, general compression or symbol tables. Other pages are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, overload

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.arrow import NUMBER_BITS
from lancelet.encodings.base import FileVersion, FixedWidth, Variable
from lancelet.encodings.choice import choose, sample
from lancelet.encodings.choice.cost import (
    BYTE_NS,
    CHUNK_BYTES,
    LOOKUP_NS,
    PART_BYTES,
    PLAIN_DECODE_NS,
    RUN_DECODE_NS,
    Cost,
    decode_ns_of,
)
from lancelet.encodings.choice.options import EncodingOptions
from lancelet.encodings.choice.trials import COMPRESS_FROM_BYTES
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkLimits, Codec, Encoding
from lancelet.encodings.codecs.flat import Flat, flat_encoding
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking, inline_encoding
from lancelet.encodings.codecs.out_of_line_bitpacking import packed_encoding
from lancelet.encodings.codecs.rle import Rle, run_encoding
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.constant.write import INLINE_BYTES_MAX, build_constant_value
from lancelet.encodings.levels import Layers, Levels
from lancelet.encodings.pages.layout import Body, MiniBlockLayout
from lancelet.kernels import Found, PageRules, SmallPage
from lancelet.values import dataclass

_LEVEL_RUNS: Final = 17
_CONSTANT, _CHUNKS = 1, 2
_NOT_PACKED: Final = -1
_RUNS: Final = 2

_OFFSET_BITS: Final = {
    **{data_type.id: 32 for data_type in (pa.string(), pa.binary())},
    **{data_type.id: 64 for data_type in (pa.large_string(), pa.large_binary())},
}
_NO_BYTES: Final = np.empty(0, np.uint8)
_OPTIONS: Final = EncodingOptions()
_LIMITS: Final = ChunkLimits()

RULES: Final = PageRules(
    rows_max=sample.VALUES_MAX,
    raw_bytes_max=COMPRESS_FROM_BYTES,
    few_rows=choose.FEW_ROWS,
    few_numbers_bytes=choose.FEW_NUMBERS_BYTES,
    few_texts_bytes=choose.FEW_TEXTS_BYTES,
    tiny_bytes=choose.TINY_BYTES,
    wide_bytes=choose.WIDE_BYTES,
    long_bytes_before_2_2=choose.LONG_BYTES_BEFORE_2_2,
    inline_bytes_max=INLINE_BYTES_MAX,
    chunk_values_max=_LIMITS.values_max,
    chunk_bytes_aim=_LIMITS.bytes_aim,
    small_chunk_bytes=choose.SMALL_CHUNK_VALUES_BYTES,
    large_chunk_bytes=choose.LARGE_CHUNK_VALUES_BYTES,
    chunk_frame_bytes=CHUNK_BYTES,
    part_frame_bytes=PART_BYTES,
    dictionary_rows_min=_OPTIONS.dict_too_small,
    compress_items_from_bytes=choose.COMPRESS_ITEMS_FROM_BYTES,
    sample_bytes=float(sample.BYTES_AIM),
    sample_values_min=float(sample.VALUES_FEW),
    sample_values_max=float(sample.VALUES_MAX),
    byte_ns=BYTE_NS,
    lookup_ns=LOOKUP_NS,
    plain_decode_ns=PLAIN_DECODE_NS,
    run_decode_ns=RUN_DECODE_NS,
    repeated_min=choose.REPEATED_MIN,
    indices_max=choose.INDICES_MAX,
    obvious=choose.OBVIOUS,
    dictionary_ratio_max=_OPTIONS.dict_size_ratio,
)
"""The constants of the chooser, which the kernel uses too."""

_Key: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SmallPageInput:
    """A potentially small page: its values, layers, and bytes in memory."""

    page: SmallPage
    layers: Layers
    size: int
    report_bytes: int
    """Bytes for encoding reports, including offsets and validity bits."""

    @property
    def value_info(self) -> tuple[int, bool, int]:
        """The bit width of values, whether they are strings, and their bytes."""
        return self.page.bits, self.page.offsets is not None, self.size

    @property
    def value(self) -> FixedWidth | Variable:
        """The first value."""
        bits, values, first_bit, offsets, *_ = self.page
        if offsets is not None:
            ends = offsets[: bits // 4].view(f"<i{bits // 8}")
            return Variable(ends - ends[0], values[: int(ends[1] - ends[0])])
        if bits == 1:
            return FixedWidth(1, values[:1] >> np.uint8(first_bit) & np.uint8(1), 1)
        return FixedWidth(bits, values[: bits // 8], 1)


def small_page(
    array: pa.Array, layers: Layers, levels: Levels | None = None
) -> SmallPageInput | None:
    """Return the values of an array as a page, or None if it cannot be small.

    Nulls are given by `levels`, by default by the array.
    """
    rows, start, kind = len(array), array.offset, array.type.id
    if not 0 < rows <= RULES.rows_max:
        return None
    bits = NUMBER_BITS.get(kind)
    is_number = bits is not None
    if bits is None:
        bits = _OFFSET_BITS.get(kind)
        if bits is None:
            return None
    size = (rows * bits + 7) // 8
    if size >= COMPRESS_FROM_BYTES:
        return None
    validity, data, *rest = array.buffers()
    nulls = validity if levels is None and array.null_count else None
    valid_offset = 0
    if nulls is not None:
        first, valid_offset = divmod(start, 8)
        nulls = np.frombuffer(nulls, np.uint8)[first : (start + rows + 7) // 8]
    if is_number:
        first, bit = divmod(start * bits, 8)
        values = np.frombuffer(data, np.uint8)[first : first + (bit + rows * bits + 7) // 8]
        page = SmallPage(bits, values, bit, None, levels, nulls, valid_offset)
    else:
        width = bits // 8
        offsets = np.frombuffer(data, np.uint8)[start * width : (start + rows + 1) * width]
        ends = offsets.view(f"<i{width}")
        first, stop = int(ends[0]), int(ends[-1])
        size += stop - first
        if size >= COMPRESS_FROM_BYTES:
            return None
        values = _NO_BYTES if rest[0] is None else np.frombuffer(rest[0], np.uint8)[first:stop]
        page = SmallPage(bits, values, 0, offsets, levels, nulls, valid_offset)
    report_bytes = (
        size + (0 if is_number else bits // 8) + (-(-rows // 8) if array.null_count else 0)
    )
    return SmallPageInput(page, layers, size, report_bytes)


def encode_small(
    pages: Sequence[SmallPageInput], rows: int, version: FileVersion
) -> Iterator[tuple[list[int], Body]]:
    """Yield pages of `rows` values each, grouped by encoding or constant value.

    Pages with levels have the same layers. Pages that need sampling are omitted.
    """
    has_large_chunks = version >= FileVersion.V2_2
    constant_mode = 0 if not has_large_chunks else 2 if version < FileVersion.V2_3 else 1
    encoded = kernels.encode_small_pages(
        [page.page for page in pages],
        rows,
        RULES,
        has_large_chunks=has_large_chunks,
        constants=constant_mode,
    )
    if encoded is None:
        return
    by_key: dict[_Key, list[int]] = {}
    by_value: dict[bytes, tuple[FixedWidth | Variable, list[int]]] = {}
    for index, result in enumerate(encoded.found.tolist()):
        if result[Found.KIND] == _CHUNKS:
            by_key.setdefault(_key(pages[index].page, result), []).append(index)
        elif result[Found.KIND] == _CONSTANT:
            value = pages[index].value
            by_value.setdefault(build_value(value).tobytes(), (value, []))[1].append(index)
    for value, page_indices in by_value.values():
        yield page_indices, build_constant_value(pages[page_indices[0]].layers, value, page_indices)
    for key, page_indices in by_key.items():
        layout, description = _layout(key, pages[page_indices[0]].layers, rows, has_large_chunks)
        result = encoded.found[page_indices].T.copy()
        position, *sizes = result[Found.POSITION : Found.ITEM_BYTES + 1]
        buffers: list[ByteSlices] = []
        for size in sizes if layout.dictionary is not None else sizes[:2]:
            buffers.append(ByteSlices(encoded.data, position, size))
            position = position + size
        value_infos = [pages[index].value_info for index in page_indices]
        refused = _RejectedCosts(value_infos, result.T, rows)
        yield (
            page_indices,
            Body(page_indices, layout, tuple(buffers), [description] * len(page_indices), refused),
        )


def _key(page: SmallPage, result: Sequence[int]) -> _Key:
    """Return the grouping key of a page."""
    is_text = page.offsets is not None
    stop = Found.INDEX_BITS + 1 if result[Found.HAS_DICTIONARY] else Found.HAS_DICTIONARY
    return (is_text, page.bits, *result[Found.ENCODING : stop])


@lru_cache(1024)
def _layout(
    key: _Key, layers: Layers, rows: int, has_large_chunks: bool
) -> tuple[MiniBlockLayout, str]:
    """Return the layout of a group of pages, and its description."""
    is_text, bits, encoding, level_bits, *indexed = key
    definition = None
    if level_bits:
        has_runs = level_bits == _LEVEL_RUNS
        definition = run_encoding(16) if has_runs else packed_encoding(16, level_bits)
    items: Encoding | None = None
    num_items = 0
    if indexed:
        _, num_items, width, index_bits = indexed
        items = _item_encoding(bits, width, is_text=bool(is_text))
        values = _encodings(index_bits, is_text=False)[encoding]
        description = _describe_dictionary(items, num_items, values)
    else:
        values = _encodings(bits, is_text=bool(is_text))[encoding]
        description = registry.describe(values)
    layout = MiniBlockLayout(
        layers,
        values,
        rows,
        2 if encoding == _RUNS else 1,
        has_large_chunks,
        definition=definition,
        dictionary=items,
        num_dictionary_items=num_items,
    )
    return layout, description


def _encodings(bits: int, *, is_text: bool) -> tuple[Encoding, ...]:
    """Return the candidate encodings: plain, packed, runs; strings are plain."""
    if is_text:
        return (variable_encoding(bits),)
    return flat_encoding(bits), inline_encoding(bits), run_encoding(bits)


def _item_encoding(bits: int, width: int, *, is_text: bool) -> Encoding:
    if is_text:
        return variable_encoding(bits)
    return flat_encoding(bits) if width == _NOT_PACKED else packed_encoding(bits, width)


def _describe_dictionary(items: Encoding, num_items: int, indices: Encoding) -> str:
    descriptions = registry.describe(items), registry.describe(indices)
    return f"dictionary({num_items}, {descriptions[0]}){{{descriptions[1]}}}"


@dataclass(frozen=True, slots=True, eq=False)
class _RejectedCosts(Sequence[Mapping[str, str]]):
    """Costs of the rejected encodings of pages, formatted on access."""

    pages: Sequence[tuple[int, bool, int]]
    """The bit width, whether values are strings, and the bytes of each page."""
    results: Int64s
    rows: int

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self.pages)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, str]]: ...

    def __getitem__(self, index: int | slice) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        """Return the costs of the rejected encodings of a page."""
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        bits, is_text, raw_bytes = self.pages[index]
        result = self.results[index].tolist()
        has_dictionary = bool(result[Found.HAS_DICTIONARY])
        codecs: list[Codec] = [Flat(), InlineBitpacking(), Rle()]
        stored = result[Found.PLAIN_BYTES : Found.RUN_BYTES + 1]
        refused = {
            registry.describe(encoding): str(self._cost(size, codecs[number], raw_bytes))
            for number, encoding in enumerate(_encodings(bits, is_text=is_text))
            if (size := stored[number]) >= 0
            and (has_dictionary or number != result[Found.ENCODING])
        }
        if result[Found.INDEX_BYTES] >= 0 and not has_dictionary:
            _, _, _, _, num_items, width, index_bits, index_encoding = result[: Found.POSITION]
            items = _item_encoding(bits, width, is_text=is_text)
            indices = _encodings(index_bits, is_text=False)[index_encoding]
            index_bytes = self.rows * index_bits // 8
            cost = self._cost(result[Found.INDEX_BYTES], codecs[index_encoding], index_bytes)
            cost = cost.plus(result[Found.ITEM_BYTES] / self.rows, LOOKUP_NS)
            refused[_describe_dictionary(items, num_items, indices)] = str(cost)
        return refused

    def _cost(self, stored: int, codec: Codec, raw_bytes: int) -> Cost:
        return Cost(stored / self.rows, decode_ns_of(codec, raw_bytes / self.rows))
