"""Pages of columns that are alike, put together at once: a wide table is written by its types.

A table of a thousand columns has a page of each, and choosing an encoding, packing and framing
are some hundred calls that do next to nothing for a thousand numbers. So the values of columns of
one type are put behind one another, looked at once, and encoded as if they were one page:

    a, b, c: int64, 1000 values each    3000 values, looked at in groups of 1000
    a and c are small numbers           one call packs 2 x 1000 values, one call frames them
    b is of large ones                  the same, as they are

The pages come out as if each column had been encoded alone. What takes a closer look is left to
that: pages that a general compression or a dictionary may make smaller, values that are large or
of many parts, and fields that ask for an encoding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.encodings import registry
from lancelet.encodings.arrow import block_from_arrow, validity_bits
from lancelet.encodings.base import EncodedPage, FileVersion, FixedWidth, Variable
from lancelet.encodings.choose import limits_of
from lancelet.encodings.choose_many import Chosen, Pages, choose_pages, survey
from lancelet.encodings.codecs.base import SMALL_CHUNK_BYTES_MAX, ChunkedValues, EncodedBlocks
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.encode_leaf import LONG_BYTES_BEFORE_2_2, WIDE_BYTES
from lancelet.encodings.layout import ConstantLayout, MiniBlockLayout
from lancelet.encodings.levels import LayerKind, Layers
from lancelet.encodings.miniblock.frame import ChunkParts, build_words, join_chunks
from lancelet.encodings.miniblock.write import bytes_of_runs
from lancelet.encodings.options import EncodingOptions
from lancelet.encodings.spans import expand
from lancelet.encodings.v2_1.messages import message_of, sealed
from lancelet.encodings.v2_1.plain_page import (
    ALL_VALID,
    Page,
    encoded_page,
    page_of_one_number,
    page_of_one_text,
)
from lancelet.format.field import Field

_SLAB_BYTES: Final = 1 << 20
"""About so many bytes of values are looked at at once, so that they stay in the cache."""

_SLAB_MAX: Final = 4096
"""The most columns that are."""

_NULLABLE: Final = Layers.of([LayerKind.NULLABLE_ITEM])
_NOTHING: Final[Mapping[str, str]] = {}

_Flags: TypeAlias = npt.NDArray[np.bool_]


_TYPES: Final = frozenset(
    data_type.id
    for data_type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(1), pa.bool_()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("s"), pa.duration("s")),
        *(pa.string(), pa.binary(), pa.large_string(), pa.large_binary()),
    )
)


def is_plain(data_type: pa.DataType) -> bool:
    """Say whether values of a type are numbers, or strings, and nothing else."""
    return data_type.id in _TYPES


def encode_alike(
    arrays: Sequence[pa.Array], fields: Sequence[Field], version: FileVersion
) -> list[EncodedPage | None]:
    """Return the one page of each of some fields of one type and one number of rows.

    Those that have to be encoded alone are None.
    """
    size = max(1, arrays[0].nbytes)
    step = max(1, min(_SLAB_MAX, _SLAB_BYTES // size))
    found: list[EncodedPage | None] = []
    for start in range(0, len(arrays), step):
        stop = start + step
        found += _Slab(arrays[start:stop], fields[start:stop], version).encode()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Chunks:
    """Encoded values of pages, and which chunks belong to each: `first[i]` up to `stop[i]`."""

    values: ChunkedValues
    columns: Int64s
    refused: Sequence[Mapping[str, str]]
    first: Int64s
    stop: Int64s

    @staticmethod
    def of(values: ChunkedValues, rows: int, chosen: Chosen) -> _Chunks:
        """Tell apart the chunks of pages of `rows` values."""
        ends = np.cumsum(values.counts).searchsorted(np.arange(len(chosen.which) + 1) * rows)
        edges = ends + (np.arange(len(ends)) > 0)
        return _Chunks(values, chosen.which, chosen.refused, edges[:-1], edges[1:])

    def take(self, places: Int64s) -> _Chunks:
        """Return some of the pages, by their places among these, without the chunks of others."""
        if len(places) == len(self.columns):
            return self
        first, count = self.first[places], (self.stop - self.first)[places]
        which = expand(first, count)
        values = ChunkedValues(
            self.values.encoding,
            tuple(_some(part, which) for part in self.values.parts),
            self.values.counts[which],
        )
        stop = np.cumsum(count)
        refused = [self.refused[place] for place in places.tolist()]
        return _Chunks(values, self.columns[places], refused, stop - count, stop)


class _Slab:
    """Columns whose values lie behind one another, and the pages that are made of them."""

    def __init__(
        self, arrays: Sequence[pa.Array], fields: Sequence[Field], version: FileVersion
    ) -> None:
        self._arrays, self._fields = arrays, fields
        self._rows = len(arrays[0])
        self._has_2_2 = version >= FileVersion.V2_2
        self._limits = limits_of(version, EncodingOptions())
        joined = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        block = block_from_arrow(joined)
        assert isinstance(block, FixedWidth | Variable)
        self._values = Pages(block, self._rows, len(arrays))
        self._missing = self._nulls_of(joined)
        self._pages: list[EncodedPage | None] = [None] * len(arrays)

    def encode(self) -> list[EncodedPage | None]:
        """Return a page for each column, None where it has to be encoded alone."""
        which = self._short()
        has_nulls: _Flags = np.zeros(len(self._arrays), np.bool_)
        if self._missing is not None:
            is_null = np.logical_and.reduce(self._missing, axis=1)
            has_nulls |= self._missing.any(axis=1)
            self._add_nulls(np.flatnonzero(is_null))
            which = which[~is_null[which]]
        if self._has_2_2:
            is_one = (survey(self._values)[0] == 1) & ~has_nulls
            self._add_constants(which[is_one[which]])
            which = which[~is_one[which]]
        for chosen in choose_pages(self._values, which, self._limits):
            block = self._values.take(chosen.which).block
            values = chosen.codec.encode_pages(block, self._rows, self._limits)
            chunks = _Chunks.of(values, self._rows, chosen)
            nullable = has_nulls[chosen.which]
            self._add_chunks(chunks.take(np.flatnonzero(~nullable)), None)
            self._add_nullable(chunks.take(np.flatnonzero(nullable)))
        return self._pages

    def _nulls_of(self, joined: pa.Array) -> _Flags | None:
        bits = validity_bits(joined)
        if bits is None:
            return None
        valid = np.unpackbits(bits, bitorder="little", count=len(joined)).view(np.bool_)
        return ~valid.reshape(-1, self._rows)

    def _short(self) -> Int64s:
        """Return the columns whose values are not too long for chunks."""
        block, every = self._values.block, np.arange(self._values.count)
        if isinstance(block, FixedWidth):
            return every
        lengths = np.diff(block.offsets).reshape(-1, self._rows)
        is_short = lengths.sum(axis=1) < WIDE_BYTES * self._rows
        is_short &= lengths.max(axis=1) <= LONG_BYTES_BEFORE_2_2
        short: Int64s = every[is_short]
        return short

    # --- making pages -------------------------------------------------------------------------

    def _add_nulls(self, columns: Int64s) -> None:
        """Make pages without a single value."""
        message = sealed(message_of(ConstantLayout(_NULLABLE, inline_value=None)))
        for column in columns.tolist():
            self._add(column, Page((), message, "constant", "null"))

    def _add_constants(self, columns: Int64s) -> None:
        """Make pages of one value all over."""
        block, rows = self._values.block, self._rows
        for column in columns.tolist():
            first = column * rows
            if isinstance(block, Variable):
                page = page_of_one_text(Variable(block.offsets[first : first + 2], block.data))
            elif block.bits == 1:
                bit = int(block.data[first // 8]) >> first % 8 & 1
                page = page_of_one_number(bytes([bit]))
            else:
                size = block.bits // 8
                page = page_of_one_number(block.data[first * size :][:size].tobytes())
            self._add(column, page)

    def _add_nullable(self, chunks: _Chunks) -> None:
        """Make pages with some nulls, by the smaller of the two ways to keep levels."""
        if not len(chunks.columns):
            return
        assert self._missing is not None
        missing = self._missing[chunks.columns]
        counts = chunks.values.counts
        packed = OutOfLineBitpacking().encode_blocks(_levels(missing), counts)
        if not self._has_2_2:
            self._add_chunks(chunks, packed)
            return
        packed_bytes = np.add.reduceat(packed.slices.size, chunks.first)
        changes = np.count_nonzero(missing[:, 1:] != missing[:, :-1], axis=1)
        run_bytes = bytes_of_runs(changes, self._rows, chunks.stop - chunks.first)
        has_runs = run_bytes <= packed_bytes
        own = np.flatnonzero(~has_runs)
        which = expand(chunks.first[own], (chunks.stop - chunks.first)[own])
        levels = EncodedBlocks(packed.encoding, _some(packed.slices, which))
        self._add_chunks(chunks.take(own), levels)
        own = np.flatnonzero(has_runs)
        if len(own):
            part = chunks.take(own)
            self._add_chunks(part, Rle().encode_blocks(_levels(missing[own]), part.values.counts))

    def _add_chunks(self, chunks: _Chunks, levels: EncodedBlocks | None) -> None:
        """Make pages of chunks, all with levels or all without."""
        if not len(chunks.columns):
            return
        values = chunks.values
        parts = ChunkParts(
            np.zeros_like(values.counts) if levels is None else values.counts,
            None,
            None if levels is None else levels.slices,
            values.parts,
        )
        data, sizes = join_chunks(parts, has_large_chunks=self._has_2_2)
        if not self._has_2_2 and int(sizes.max()) > SMALL_CHUNK_BYTES_MAX:
            return
        words = build_words(
            sizes, values.counts, has_large_chunks=self._has_2_2, last=chunks.stop - 1
        )
        layout = MiniBlockLayout(
            layers=ALL_VALID if levels is None else _NULLABLE,
            values=values.encoding,
            num_values=self._rows,
            num_buffers=len(values.parts),
            has_large_chunks=self._has_2_2,
            definition=None if levels is None else levels.encoding,
        )
        message, description = sealed(message_of(layout)), registry.describe(values.encoding)
        word = words.nbytes // len(sizes)
        ends = np.cumsum(sizes)
        for column, refused, first, stop, start, end in zip(
            chunks.columns.tolist(),
            chunks.refused,
            (chunks.first * word).tolist(),
            (chunks.stop * word).tolist(),
            (ends - sizes)[chunks.first].tolist(),
            ends[chunks.stop - 1].tolist(),
            strict=True,
        ):
            buffers = (words[first:stop], data[start:end])
            self._add(column, Page(buffers, message, "mini-block", description), refused)

    def _add(self, column: int, page: Page, refused: Mapping[str, str] = _NOTHING) -> None:
        self._pages[column] = encoded_page(
            self._arrays[column], self._fields[column], page, refused
        )


def _some(slices: Slices, which: Int64s) -> Slices:
    return Slices(slices.source, slices.position[which], slices.size[which])


def _levels(missing: _Flags) -> FixedWidth:
    """Return levels of pages, 1 where a value is missing."""
    levels = missing.astype(np.uint16).reshape(-1)
    return FixedWidth(16, levels.view(np.uint8), len(levels))
