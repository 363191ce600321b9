"""Strings and bytes: end offsets with nulls folded in, FSST, and values of one length.

    values            "ab"  null  "c"     null_adjustment = 4 (three bytes, and one)
    indices           2     6     3       6 = 2 + 4: null, and the value ends at 2
    bytes             abc

A value begins where the one before it ends, so a reader of row i fetches two offsets, and the
bytes only in a second round. Lists fold their nulls into offsets in the same way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Reading
from lancelet.encodings import registry
from lancelet.encodings.arrow import arrow_from_block, block_from_arrow, validity_bits
from lancelet.encodings.base import Variable
from lancelet.encodings.spans import Spans
from lancelet.encodings.v2_0.page import Decoder
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """Where the values of rows are among the data of a page; `valid` is per row."""

    start: Int64s
    stop: Int64s
    valid: npt.NDArray[np.bool_]
    runs: Spans
    """The data of all rows, ascending, as few ranges as possible."""

    def offsets(self) -> Int64s:
        """Return the offsets of the values once their data are laid end to end."""
        offsets = np.zeros(len(self.start) + 1, np.int64)
        np.cumsum(self.stop - self.start, out=offsets[1:])
        return offsets

    def validity(self) -> Bytes | None:
        """Return a bitmap of the rows, or `None` if all are valid."""
        return None if self.valid.all() else np.packbits(self.valid, bitorder="little")


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """End offsets of values, into which nulls are folded by adding `null_adjustment`."""

    indices: Decoder
    null_adjustment: int
    limit: int
    """No value may end behind this."""

    def read(self, spans: Spans) -> Reading[Extents]:
        """Read where the values of rows begin and end."""
        if not spans.num_rows:
            nothing = np.empty(0, np.int64)
            return Extents(nothing, nothing, np.empty(0, np.bool_), Spans.merged(nothing, nothing))
        # The end of the row before each span is its start; row 0 starts at 0 without being told.
        has_previous = spans.start > 0
        asked = Spans(spans.start - has_previous, spans.count + has_previous)
        indices = yield from self.indices.read(asked)
        raw = np.frombuffer(indices.buffers()[1], np.int64, len(indices))
        is_null = raw >= self.null_adjustment
        ends = raw - self.null_adjustment * is_null if is_null.any() else raw
        asked_first = np.cumsum(asked.count) - asked.count
        is_row: slice | npt.NDArray[np.bool_] = slice(int(has_previous[0]), None)
        if len(spans) > 1:
            is_row = np.ones(len(raw), np.bool_)
            is_row[asked_first[has_previous]] = False
        stop = ends[is_row]
        start = np.empty_like(stop)
        start[1:] = stop[:-1]
        span_first = np.cumsum(spans.count) - spans.count
        start[span_first] = np.where(has_previous, ends[asked_first], 0)
        self._check(start, stop)
        span_last = span_first + spans.count - 1
        runs = Spans.merged(start[span_first], stop[span_last] - start[span_first])
        return Extents(start, stop, ~is_null[is_row], runs)

    def _check(self, start: Int64s, stop: Int64s) -> None:
        bad = (start < 0) | (start > stop) | (stop > self.limit)
        if bad.any():
            row = int(np.argmax(bad))
            raise CorruptDataError(
                "the offsets of a page do not ascend, or point past its data",
                row_of_request=row,
                start=int(start[row]),
                stop=int(stop[row]),
                data_size=self.limit,
            )


@dataclass(frozen=True, slots=True)
class Binary:
    """Values by their end offsets."""

    data_type: pa.DataType
    ends: EndOffsets
    data: Decoder

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read values: their offsets first, then their bytes."""
        extents = yield from self.ends.read(spans)
        data = np.empty(0, np.uint8)
        if len(extents.runs):
            data = _array_bytes((yield from self.data.read(extents.runs)))
        block = Variable(extents.offsets(), data)
        return arrow_from_block(block, self.data_type, extents.validity())


@dataclass(frozen=True, slots=True)
class Fsst:
    """Values whose bytes are codes of a symbol table."""

    data_type: pa.DataType
    codes: Decoder
    """Reads the codes as large binary."""
    symbol_table: bytes

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read codes and decode them."""
        codes = yield from self.codes.read(spans)
        encoding = pb21.CompressiveEncoding()
        encoding.fsst.symbol_table = self.symbol_table
        encoding.fsst.values.variable.offsets.flat.bits_per_value = 64
        rows = block_from_arrow(codes)
        assert isinstance(rows, Variable)
        values = registry.decode_values(encoding, rows)
        return arrow_from_block(values, self.data_type, validity_bits(codes))


@dataclass(frozen=True, slots=True)
class FixedSizeBinary:
    """Strings or bytes that are all of one length, without offsets."""

    data_type: pa.DataType
    data: Decoder
    byte_width: int

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read values."""
        data = _array_bytes((yield from self.data.read(spans.times(self.byte_width))))
        offsets = np.arange(spans.num_rows + 1, dtype=np.int64) * self.byte_width
        return arrow_from_block(Variable(offsets, data), self.data_type, None)


def _array_bytes(array: pa.Array) -> Bytes:
    """Return the values of a decoded array of bytes, which begins where its buffer does."""
    return np.frombuffer(array.buffers()[1], np.uint8, len(array))
