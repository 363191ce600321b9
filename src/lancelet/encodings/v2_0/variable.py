"""Strings and binary: end offsets with null flags, FSST, and values of equal length.

    values            "ab"  null  "c"     null_adjustment = 4 (three bytes, plus one)
    indices           2     6     3       6 = 2 + 4: null, and the value ends at 2
    bytes             abc

A value starts at the end of the previous one, so reading row i fetches two offsets, and the bytes
in a second round. Lists store nulls in offsets in the same way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, ReadCoroutine
from lancelet.encodings.arrow import arrow_from_block, block_from_arrow, validity_bits
from lancelet.encodings.base import Variable
from lancelet.encodings.codecs import registry
from lancelet.encodings.row_ranges import RowRanges
from lancelet.encodings.v2_0.page import Decoder
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """Data ranges of rows within a page; `valid` is per row."""

    start: Int64s
    stop: Int64s
    valid: npt.NDArray[np.bool_]
    runs: RowRanges
    """The data of all rows as merged, ascending ranges."""

    def offsets(self) -> Int64s:
        """Return the offsets of the values in the concatenated data."""
        offsets = np.zeros(len(self.start) + 1, np.int64)
        np.cumsum(self.stop - self.start, out=offsets[1:])
        return offsets

    def validity(self) -> Bytes | None:
        """Return a validity bitmap, or `None` without nulls."""
        return None if self.valid.all() else np.packbits(self.valid, bitorder="little")


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """End offsets of values; `null_adjustment` is added for nulls."""

    indices: Decoder
    null_adjustment: int
    limit: int
    """The maximum end offset."""

    def read(self, ranges: RowRanges) -> ReadCoroutine[Extents]:
        """Read the start and end of the values of rows."""
        if not ranges.num_rows:
            empty = np.empty(0, np.int64)
            return Extents(empty, empty, np.empty(0, np.bool_), RowRanges.merged(empty, empty))
        # The start of a range is the end of the previous row; row 0 implicitly starts at 0.
        has_previous = ranges.start > 0
        requested = RowRanges(ranges.start - has_previous, ranges.count + has_previous)
        indices = yield from self.indices.read(requested)
        raw = np.frombuffer(indices.buffers()[1], np.int64, len(indices))
        is_null = raw >= self.null_adjustment
        ends = raw - self.null_adjustment * is_null if is_null.any() else raw
        requested_first = np.cumsum(requested.count) - requested.count
        is_row: slice | npt.NDArray[np.bool_] = slice(int(has_previous[0]), None)
        if len(ranges) > 1:
            is_row = np.ones(len(raw), np.bool_)
            is_row[requested_first[has_previous]] = False
        stop = ends[is_row]
        start = np.empty_like(stop)
        start[1:] = stop[:-1]
        range_first = np.cumsum(ranges.count) - ranges.count
        start[range_first] = np.where(has_previous, ends[requested_first], 0)
        self._check(start, stop)
        range_last = range_first + ranges.count - 1
        runs = RowRanges.merged(start[range_first], stop[range_last] - start[range_first])
        return Extents(start, stop, ~is_null[is_row], runs)

    def _check(self, start: Int64s, stop: Int64s) -> None:
        is_invalid = (start < 0) | (start > stop) | (stop > self.limit)
        if is_invalid.any():
            row = int(np.argmax(is_invalid))
            raise CorruptDataError(
                "the offsets of a page do not ascend or exceed its data",
                row_of_request=row,
                start=int(start[row]),
                stop=int(stop[row]),
                data_size=self.limit,
            )


@dataclass(frozen=True, slots=True)
class Binary:
    """Values with end offsets."""

    data_type: pa.DataType
    ends: EndOffsets
    data: Decoder

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read offsets, then bytes."""
        extents = yield from self.ends.read(ranges)
        data = np.empty(0, np.uint8)
        if len(extents.runs):
            data = _array_bytes((yield from self.data.read(extents.runs)))
        block = Variable(extents.offsets(), data)
        return arrow_from_block(block, self.data_type, extents.validity())


@dataclass(frozen=True, slots=True)
class Fsst:
    """Values encoded with an FSST symbol table."""

    data_type: pa.DataType
    codes: Decoder
    """Reads the codes as large binary."""
    symbol_table: bytes

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read codes and decode them."""
        codes = yield from self.codes.read(ranges)
        encoding = pb21.CompressiveEncoding()
        encoding.fsst.symbol_table = self.symbol_table
        encoding.fsst.values.variable.offsets.flat.bits_per_value = 64
        rows = block_from_arrow(codes)
        assert isinstance(rows, Variable)
        values = registry.decode_values(encoding, rows)
        return arrow_from_block(values, self.data_type, validity_bits(codes))


@dataclass(frozen=True, slots=True)
class FixedSizeBinary:
    """Strings or binary of equal length, without offsets."""

    data_type: pa.DataType
    data: Decoder
    byte_width: int

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read values."""
        data = _array_bytes((yield from self.data.read(ranges.times(self.byte_width))))
        offsets = np.arange(ranges.num_rows + 1, dtype=np.int64) * self.byte_width
        return arrow_from_block(Variable(offsets, data), self.data_type, None)


def _array_bytes(array: pa.Array) -> Bytes:
    """Return the values of a decoded byte array with offset 0."""
    return np.frombuffer(array.buffers()[1], np.uint8, len(array))
