"""FSST codec: byte strings as one-byte codes, with the symbol table in the encoding.

    table, 2312 bytes   u64 head: "FSST" | enabled | ... | n symbols
                        n symbols of 8 bytes, then n lengths of a byte, then padding

Every string is encoded independently and has its own offsets, so any codec for variable-width
values can store the codes, and a single string can be decoded. A disabled table means that strings
are stored plain.

Writers choose symbols per page. Pages that differ only in the table are still read as one: their
encoding has no table, and an additional part of every chunk contains the table of its page.

    parts[0]   codes of chunks 0 1 2      parts[1]   table a a b
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedValues,
    Encoding,
    ValuePositions,
)
from lancelet.encodings.codecs.validate import require_variable, validate_variable_rows
from lancelet.encodings.codecs.variable import VariableCodec, plain_offset_bits, with_offsets
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21

TABLE_BYTES: Final = 2312

BYTES_MIN: Final = 32 * 1024
"""Minimum bytes of a page for FSST; for less, the table outweighs the savings."""
_MAGIC: Final = 0x46535354
_HEAD_BYTES: Final = 8
_SYMBOL_BYTES: Final = 8
_CODES: Final = 256
_JOINED_TABLE_BYTES: Final = _CODES * (_SYMBOL_BYTES + 1)


class SymbolTable(NamedTuple):
    """Symbols of codes 0, 1, ..., least significant byte first, and their lengths."""

    symbols: npt.NDArray[np.uint64]
    lengths: Bytes


class _Tables(NamedTuple):
    """One table for all chunks, or concatenated tables with the table index of each chunk."""

    table: SymbolTable
    indices: Int64s | None


class Fsst(Codec):
    """Strings as codes, which `inner` encodes."""

    wire_name: ClassVar[str] = "fsst"

    def __init__(self, inner: Codec | None = None, table: SymbolTable | None = None) -> None:
        """Use `inner` for the codes (default: variable values) and `table` for the symbols.

        Without a `table`, symbols are trained on the strings to encode.
        """
        self.inner = inner or VariableCodec()
        self._table = table
        self._last: tuple[Block, SymbolTable, Variable] | None = None

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `fsst{inner}`."""
        return f"fsst{{{codecs.describe(message.values)}}}"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return the number of buffers of the codes."""
        return codecs.num_buffers(message.values)

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose FSST for many bytes, with an average of at least four per string."""
        if isinstance(block, Variable) and block.count:
            num_bytes = int(block.offsets[-1]) - int(block.offsets[0])
            if num_bytes >= max(BYTES_MIN, 4 * block.count):
                yield cls(table=SymbolTable(*kernels.fsst_train(block.offsets, block.data)))

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Encode all strings with one table and split the codes into chunks."""
        table, codes = self._encode(require_variable(block, self.wire_name))
        inner = self.inner.encode_chunks(codes, limits)
        return ChunkedValues(_encoding(table, inner.encoding), inner.parts, inner.counts)

    def encode_values(self, block: Block) -> EncodedValues:
        """Encode all strings with one table."""
        table, codes = self._encode(require_variable(block, self.wire_name))
        inner = self.inner.encode_values(codes)
        return EncodedValues(_encoding(table, inner.encoding), inner.rows)

    def _encode(self, values: Variable) -> tuple[SymbolTable, Variable]:
        """Encode strings; caches the last result.

        Every compression trial of the codes encodes the same sample.
        """
        if self._last is None or self._last[0] is not values:
            table = self._table or SymbolTable(*kernels.fsst_train(values.offsets, values.data))
            codes = Variable(*kernels.fsst_encode(values.offsets, values.data, *table))
            self._last = (values, table, codes)
        return self._last[1:]

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decode the codes in the same pass that concatenates plain chunks."""
        tables = _parse_tables(message, parts)
        if tables is None or not _is_plain(message.values):
            codes = codecs.decode_chunks(message.values, parts, counts)
            return _decode(codes, parse_table(message.symbol_table))
        stored = plain_offset_bits(message.values.variable.offsets)
        decode = partial(
            kernels.fsst_decode_chunks,
            parts[0],
            counts,
            stored // 8,
            *tables.table,
            table_indices=tables.indices,
        )
        return with_offsets(decode, stored)

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Decode selected strings."""
        tables = _parse_tables(message, parts)
        if tables is None or not _is_plain(message.values):
            codes = codecs.take_chunks(message.values, parts, counts, positions)
            return _decode(codes, parse_table(message.symbol_table))
        stored = plain_offset_bits(message.values.variable.offsets)
        decode = partial(
            kernels.pick_fsst,
            positions.of(parts[0]),
            counts[positions.chunk],
            positions.index,
            stored // 8,
            *tables.table,
            table_indices=(None if tables.indices is None else tables.indices[positions.chunk]),
        )
        return with_offsets(decode, stored)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Decode the codes of each row."""
        codes = codecs.decode_values(message.values, rows)
        return _decode(codes, parse_table(message.symbol_table))


def parse_table(stored: bytes) -> SymbolTable | None:
    """Parse a stored symbol table; `None` if disabled.

    >>> parse_table((0x46535354 << 32).to_bytes(8, "little") + bytes(2304)) is None
    True
    """
    head = int.from_bytes(stored[:_HEAD_BYTES], "little")
    count = head & 0xFF
    stop = _HEAD_BYTES + count * _SYMBOL_BYTES
    if head >> 32 != _MAGIC or len(stored) < stop + count:
        raise CorruptDataError(
            "invalid FSST symbol table", bytes=len(stored), head=stored[:_HEAD_BYTES].hex()
        )
    if not head >> 24 & 1:
        return None
    return SymbolTable(
        np.frombuffer(stored, "<u8", count, _HEAD_BYTES),
        np.frombuffer(stored, np.uint8, count, stop),
    )


def message_with_table(encoding: Encoding) -> Any | None:
    """Return the FSST message whose table may differ between merged pages, or `None`.

    Its codes must be plain, and only general compression may wrap it.
    """
    while encoding.WhichOneof("compression") == "general":
        encoding = encoding.general.values
    if encoding.WhichOneof("compression") != "fsst" or not _is_plain(encoding.fsst.values):
        return None
    return encoding.fsst if parse_table(encoding.fsst.symbol_table) is not None else None


def join_tables(stored: Sequence[bytes]) -> Bytes:
    """Concatenate tables for `table_parts`: the symbols of all tables, then the lengths.

    >>> table = stored_table(SymbolTable(np.array([0x6261], np.uint64), np.array([2], np.uint8)))
    >>> joined = join_tables([table, table])
    >>> len(joined), joined[2048:2050].tolist(), joined[-256:-254].tolist()
    (4608, [97, 98], [2, 0])
    """
    symbols = np.zeros((len(stored), _CODES), np.uint64)
    lengths = np.zeros((len(stored), _CODES), np.uint8)
    for index, serialized in enumerate(stored):
        table = parse_table(serialized)
        assert table is not None
        symbols[index, : len(table.symbols)] = table.symbols
        lengths[index, : len(table.lengths)] = table.lengths
    return np.concatenate([symbols.view(np.uint8).reshape(-1), lengths.reshape(-1)])


def split_tables(joined: Bytes) -> tuple[npt.NDArray[np.uint64], Bytes]:
    """Return the symbols and lengths of joined tables, 256 per table."""
    stop = joined.nbytes // _JOINED_TABLE_BYTES * _CODES * _SYMBOL_BYTES
    return joined[:stop].view(np.uint64), joined[stop:]


def table_parts(joined: Bytes, pages: Int64s) -> ByteSlices:
    """Return the table part of chunks, from the page index of each chunk."""
    return ByteSlices(
        joined, pages * _JOINED_TABLE_BYTES, np.full(len(pages), _JOINED_TABLE_BYTES, np.int64)
    )


def _parse_tables(message: Any, parts: Sequence[ByteSlices]) -> _Tables | None:
    """Return the tables of chunks, or `None` if strings are stored plain."""
    if len(parts) == 1:
        table = parse_table(message.symbol_table)
        return None if table is None else _Tables(table, None)
    table = SymbolTable(*split_tables(parts[-1].source))
    return _Tables(table, parts[-1].position // _JOINED_TABLE_BYTES)


def stored_table(table: SymbolTable) -> bytes:
    """Serialize a symbol table."""
    count = len(table.symbols)
    head = _MAGIC << 32 | 1 << 24 | count
    serialized_table = (
        head.to_bytes(_HEAD_BYTES, "little") + table.symbols.tobytes() + table.lengths.tobytes()
    )
    return serialized_table.ljust(TABLE_BYTES, b"\0")


def _encoding(table: SymbolTable, inner: pb21.CompressiveEncoding) -> pb21.CompressiveEncoding:
    fsst = pb21.Fsst(symbol_table=stored_table(table), values=inner)
    return pb21.CompressiveEncoding(fsst=fsst)


def _is_plain(encoding: Any) -> bool:
    return bool(
        encoding.WhichOneof("compression") == "variable"
        and encoding.variable.offsets.WhichOneof("compression") == "flat"
    )


def _decode(codes: Block, table: SymbolTable | None) -> Variable:
    strings = validate_variable_rows(codes, Fsst.wire_name)
    if table is None:
        return strings
    decode = partial(kernels.fsst_decode, strings.offsets, strings.data, *table)
    return with_offsets(decode, strings.offsets.itemsize * 8)
