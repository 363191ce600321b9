"""Encoding of pages of numbers and strings, of all types, widths and sizes, in one kernel call.

    int64, float32, bool, string, ...  ->  the cheapest encoding of each  ->  groups of pages

Selecting the encoding of a small page in Python takes ten times as long as encoding. A kernel makes
the same decisions as `choose`, unless a page may need a symbol table or a compression of the
Zstandard library. It skips such pages. The library compresses the samples of all of them in one
call, and the trials of the kernel are not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.arrow import NUMBER_BITS, value_bytes
from lancelet.encodings.base import FileVersion, FixedWidth, Variable
from lancelet.encodings.choice import choose, cost, sample, trials
from lancelet.encodings.choice.cost import Cost
from lancelet.encodings.choice.options import PLAIN_OPTIONS, Compression
from lancelet.encodings.choice.trials import Trial
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import ChunkLimits, Encoding
from lancelet.encodings.codecs.byte_stream_split import split_encoding
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.general import LZ4, ZSTD, general_encoding
from lancelet.encodings.codecs.inline_bitpacking import inline_encoding
from lancelet.encodings.codecs.out_of_line_bitpacking import packed_encoding
from lancelet.encodings.codecs.rle import run_encoding
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.constant.write import INLINE_BYTES_MAX, build_constant_value
from lancelet.encodings.levels import Layers, Levels
from lancelet.encodings.pages.layout import Body, MiniBlockLayout
from lancelet.kernels import ENCODINGS, Found, PageRules, PageValues
from lancelet.values import dataclass

_LEVEL_RUNS: Final = 17
_CONSTANT, _CHUNKS, _MEASURED = 1, 2, 3
_NOT_PACKED: Final = -1
_RUNS, _CODED = 2, 5

_OFFSET_BITS: Final = {
    **{data_type.id: 32 for data_type in (pa.string(), pa.binary())},
    **{data_type.id: 64 for data_type in (pa.large_string(), pa.large_binary())},
}
_NO_BYTES: Final = np.empty(0, np.uint8)
_LIMITS: Final = ChunkLimits()

RULES: Final = PageRules(
    few_rows=choose.FEW_ROWS,
    few_numbers_bytes=choose.FEW_NUMBERS_BYTES,
    few_texts_bytes=choose.FEW_TEXTS_BYTES,
    tiny_bytes=choose.TINY_BYTES,
    wide_bytes=choose.WIDE_BYTES,
    long_bytes=choose.LONG_BYTES,
    long_bytes_before_2_2=choose.LONG_BYTES_BEFORE_2_2,
    inline_bytes_max=INLINE_BYTES_MAX,
    chunk_values_max=_LIMITS.values_max,
    chunk_bytes_aim=_LIMITS.bytes_aim,
    small_chunk_bytes=choose.SMALL_CHUNK_VALUES_BYTES,
    large_chunk_bytes=choose.LARGE_CHUNK_VALUES_BYTES,
    lz4_bytes_aim=trials.COMPRESSED_AIM[Compression.LZ4],
    coded_bytes_aim=trials.NUMBERS_AIM,
    chunk_frame_bytes=cost.CHUNK_BYTES,
    part_frame_bytes=cost.PART_BYTES,
    dictionary_rows_min=PLAIN_OPTIONS.dict_too_small,
    dictionary_items_max=PLAIN_OPTIONS.dict_max_size,
    compress_items_from_bytes=choose.COMPRESS_ITEMS_FROM_BYTES,
    compress_from_bytes=trials.COMPRESS_FROM_BYTES,
    sample_runs=sample.NUM_RUNS,
    entropy_values=trials.ENTROPY_VALUES,
    sample_bytes=float(sample.BYTES_AIM),
    sample_bytes_max=float(sample.BYTES_MAX),
    sample_values_few=float(sample.VALUES_FEW),
    sample_values_max=float(sample.VALUES_MAX),
    sample_values_min=float(sample.VALUES_MIN),
    byte_ns=cost.BYTE_NS,
    lookup_ns=cost.LOOKUP_NS,
    plain_decode_ns=cost.PLAIN_DECODE_NS,
    run_decode_ns=cost.RUN_DECODE_NS,
    lz4_byte_ns=cost.LZ4_BYTE_NS,
    lz4_saved_ns=cost.LZ4_SAVED_NS,
    lz4_split_ns=cost.LZ4_SPLIT_NS,
    coded_byte_ns=cost.CODED_BYTE_NS,
    coded_saved_ns=cost.CODED_SAVED_NS,
    coded_table_ns=cost.CODED_TABLE_NS,
    zstd_byte_ns=cost.ZSTD_NS[0],
    zstd_stored_ns=cost.ZSTD_NS[1],
    zstd_split_byte_ns=cost.ZSTD_SPLIT_NS[0],
    zstd_split_stored_ns=cost.ZSTD_SPLIT_NS[1],
    repeated_min=choose.REPEATED_MIN,
    indices_max=choose.INDICES_MAX,
    obvious=choose.OBVIOUS,
    dictionary_ratio_max=PLAIN_OPTIONS.dict_size_ratio,
    repetition=trials.REPETITION,
    lz4_saving_min=cost.LZ4_SAVING_MIN,
    coded_saving_min=cost.CODED_SAVING_MIN,
    library_saving_min=cost.ZSTD_SAVING_MIN,
    lz4_copy_bytes=trials.LZ4_COPY_BYTES,
    zstd_per_lz4_min=trials.ZSTD_PER_LZ4_MIN,
)
"""The constants of the chooser, which the kernel uses too."""

_Key: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PageInput:
    """The values and layers of a page."""

    page: PageValues
    layers: Layers
    num_bytes: int
    """Bytes for encoding reports, including offsets and validity bits."""

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


def page_input(array: pa.Array, layers: Layers, levels: Levels | None = None) -> PageInput | None:
    """Return the values of an array as a page, or None unless they are numbers or strings.

    Nulls are given by `levels`, by default by the array.
    """
    rows, start, kind = len(array), array.offset, array.type.id
    bits = NUMBER_BITS.get(kind)
    is_number = bits is not None
    if bits is None:
        bits = _OFFSET_BITS.get(kind)
    if bits is None or not rows:
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
        page = PageValues(bits, values, bit, None, levels, nulls, valid_offset)
        return PageInput(page, layers, value_bytes(array))
    width = bits // 8
    offsets = np.frombuffer(data, np.uint8)[start * width : (start + rows + 1) * width]
    ends = offsets.view(f"<i{width}")
    first, stop = int(ends[0]), int(ends[-1])
    values = _NO_BYTES if rest[0] is None else np.frombuffer(rest[0], np.uint8)[first:stop]
    page = PageValues(bits, values, 0, offsets, levels, nulls, valid_offset)
    return PageInput(page, layers, value_bytes(array))


def encode_pages(
    pages: Sequence[PageInput], rows: int, version: FileVersion
) -> tuple[list[Body], Mapping[int, Sequence[Trial]]]:
    """Encode pages of `rows` values each, grouped by encoding or constant value.

    Pages with levels have the same layers. The kernel skips some pages. Also returned are trials
    for some of these.
    """
    has_large_chunks = version >= FileVersion.V2_2
    constant_mode = 0 if not has_large_chunks else 2 if version < FileVersion.V2_3 else 1
    encoded = kernels.encode_pages(
        [page.page for page in pages],
        rows,
        RULES,
        has_large_chunks=has_large_chunks,
        constants=constant_mode,
    )
    bodies: list[Body] = []
    measured: dict[int, tuple[FixedWidth, Sequence[Cost]]] = {}
    if encoded is None:
        return bodies, {}
    by_key: dict[_Key, list[int]] = {}
    by_value: dict[bytes, tuple[FixedWidth | Variable, list[int]]] = {}
    for index, result in enumerate(encoded.found.tolist()):
        if result[Found.KIND] == _CHUNKS:
            by_key.setdefault(_key(pages[index].page, result), []).append(index)
        elif result[Found.KIND] == _CONSTANT:
            value = pages[index].value
            by_value.setdefault(build_value(value).tobytes(), (value, []))[1].append(index)
        elif result[Found.KIND] == _MEASURED:
            costs = [Cost(*each) for each in encoded.costs[index, :ENCODINGS].tolist()]
            values = pages[index].page
            measured[index] = FixedWidth(values.bits, values.values, rows), costs
    for value, page_indices in by_value.values():
        bodies.append(build_constant_value(pages[page_indices[0]].layers, value, page_indices))
    for key, page_indices in by_key.items():
        layout, description = _layout(key, pages[page_indices[0]].layers, rows, has_large_chunks)
        result = encoded.found[page_indices].T.copy()
        position, *sizes = result[Found.POSITION : Found.ITEM_BYTES + 1]
        buffers: list[ByteSlices] = []
        for size in sizes if layout.dictionary is not None else sizes[:2]:
            buffers.append(ByteSlices(encoded.data, position, size))
            position = position + size
        refused = _RejectedCosts(
            [pages[index].page for index in page_indices], result.T, encoded.costs[page_indices]
        )
        descriptions = [description] * len(page_indices)
        bodies.append(Body(page_indices, layout, tuple(buffers), descriptions, refused))
    limits = choose.limits_of(version, PLAIN_OPTIONS)
    tried = trials.try_library([*measured.values()], limits)
    return bodies, dict(zip(measured, tried, strict=True))


def _key(page: PageValues, result: Sequence[int]) -> _Key:
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
        description = _describe_dictionary(items, num_items, _describe(index_bits, encoding))
    else:
        values = _encodings(bits, is_text=bool(is_text))[encoding]
        description = _describe(bits, encoding, is_text=bool(is_text))
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


def _encodings(bits: int, *, is_text: bool = False) -> tuple[Encoding, ...]:
    """Return the encodings of values by their numbers; strings are plain."""
    if is_text:
        return (variable_encoding(bits),)
    flat = flat_encoding(bits)
    return (
        flat,
        inline_encoding(bits),
        run_encoding(bits),
        general_encoding(LZ4, flat),
        general_encoding(LZ4, split_encoding(bits)),
        general_encoding(ZSTD, flat),
    )


def _describe(bits: int, encoding: int, *, is_text: bool = False) -> str:
    description = registry.describe(_encodings(bits, is_text=is_text)[encoding])
    return f"{description} without a search" if encoding == _CODED else description


def _item_encoding(bits: int, width: int, *, is_text: bool) -> Encoding:
    if is_text:
        return variable_encoding(bits)
    return flat_encoding(bits) if width == _NOT_PACKED else packed_encoding(bits, width)


def _describe_dictionary(items: Encoding, num_items: int, indices: str) -> str:
    return f"dictionary({num_items}, {registry.describe(items)}){{{indices}}}"


@dataclass(frozen=True, slots=True, eq=False)
class _RejectedCosts(Sequence[Mapping[str, str]]):
    """Costs of the rejected encodings of pages, formatted on access."""

    pages: Sequence[PageValues]
    results: Int64s
    costs: npt.NDArray[np.float64]

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
        bits, is_text = self.pages[index].bits, self.pages[index].offsets is not None
        result = self.results[index].tolist()
        chosen = ENCODINGS if result[Found.HAS_DICTIONARY] else result[Found.ENCODING]
        refused = {}
        for number, (bytes_per_value, decode_ns) in enumerate(self.costs[index].tolist()):
            if bytes_per_value < 0 or number == chosen:
                continue
            if number < ENCODINGS:
                description = _describe(bits, number, is_text=is_text)
            else:
                num_items, width, index_bits, index_encoding = result[Found.ITEMS : Found.POSITION]
                items = _item_encoding(bits, width, is_text=is_text)
                indices = _describe(index_bits, index_encoding)
                description = _describe_dictionary(items, num_items, indices)
            refused[description] = str(Cost(bytes_per_value, decode_ns))
        return refused
