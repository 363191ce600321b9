"""FSST codec: byte strings as one-byte codes, with the table of symbols in the encoding.

    table, 2312 bytes   u64 head: "FSST" | switched on | ... | n symbols
                        n symbols of 8 bytes, then n lengths of a byte, then filling

Every string is coded alone and has offsets of its own, so whatever stores variable values stores
the codes, and any one is decoded without the others. A table that is switched off means that the
strings are stored as they are.

Writers choose symbols page by page. Pages that differ in nothing else are read as one all the
same: their encoding has no table then, and a further part of every chunk is the table of its page.

    parts[0]   codes of chunks 0 1 2      parts[1]   table a a b
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedValues,
    Encoding,
    Picks,
)
from lancelet.encodings.codecs.expect import expect_variable, expect_variable_rows
from lancelet.encodings.codecs.variable import VariableCodec, plain_offset_bits, with_offsets
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21

TABLE_BYTES: Final = 2312

PROPOSED_FROM_BYTES: Final = 32 * 1024
"""Of fewer bytes the table, and making it, take most of what codes save."""
_MAGIC: Final = 0x46535354
_HEAD_BYTES: Final = 8
_SYMBOL_BYTES: Final = 8
_CODES: Final = 256
_WHOLE_BYTES: Final = _CODES * (_SYMBOL_BYTES + 1)


class SymbolTable(NamedTuple):
    """The symbols of codes 0, 1, ..., least significant byte first, and their lengths."""

    symbols: npt.NDArray[np.uint64]
    lengths: Bytes


class _Tables(NamedTuple):
    """One table for all chunks, or whole tables behind each other, of which each chunk has one."""

    table: SymbolTable
    which: Int64s | None


class Fsst(Codec):
    """Strings as codes; `inner` stores the codes."""

    wire_name: ClassVar[str] = "fsst"

    def __init__(self, inner: Codec | None = None, table: SymbolTable | None = None) -> None:
        """Choose how codes are stored, as variable values by default, and by which symbols.

        Without a `table`, the symbols are chosen for the strings that are encoded.
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
        """Return what the codes need."""
        return codecs.num_buffers(message.values)

    @classmethod
    def propose(cls, block: Block, rows: int) -> Iterator[tuple[Codec, Int64s]]:
        """Propose codes for strings of a few bytes and more, if a page has many of them.

        Each page has a table of its own.
        """
        if not isinstance(block, Variable) or not rows:
            return
        ends = block.offsets[::rows].astype(np.int64)
        is_long = ends[1:] - ends[:-1] >= max(PROPOSED_FROM_BYTES, 4 * rows)
        for page in is_long.nonzero()[0].tolist():
            offsets = block.offsets[page * rows : (page + 1) * rows + 1]
            table = SymbolTable(*kernels.fsst_train(offsets, block.data))
            yield cls(table=table), np.array([page])

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Encode all strings with one table and cut the codes into chunks."""
        table, codes = self._encode(expect_variable(block, self.wire_name))
        inner = self.inner.encode_pages(codes, rows, limits)
        return ChunkedValues(_encoding(table, inner.encoding), inner.parts, inner.counts)

    def encode_values(self, block: Block) -> EncodedValues:
        """Encode all strings with one table; the codes are the values."""
        table, codes = self._encode(expect_variable(block, self.wire_name))
        inner = self.inner.encode_values(codes)
        return EncodedValues(_encoding(table, inner.encoding), inner.rows)

    def _encode(self, values: Variable) -> tuple[SymbolTable, Variable]:
        """Code strings, or return their codes again.

        A sample is encoded once for every compression that is tried around the codes.
        """
        if self._last is None or self._last[0] is not values:
            table = self._table or SymbolTable(*kernels.fsst_train(values.offsets, values.data))
            codes = Variable(*kernels.fsst_encode(values.offsets, values.data, *table))
            self._last = (values, table, codes)
        return self._last[1:]

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decode the codes, in the same pass that joins plain chunks."""
        tables = _tables(message, parts)
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
            which=tables.which,
        )
        return with_offsets(decode, stored)

    @classmethod
    def pick_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, picks: Picks, codecs: Codecs
    ) -> Block | None:
        """Decode single strings."""
        tables = _tables(message, parts)
        if tables is None or not _is_plain(message.values):
            codes = codecs.pick_chunks(message.values, parts, counts, picks)
            return _decode(codes, parse_table(message.symbol_table))
        stored = plain_offset_bits(message.values.variable.offsets)
        decode = partial(
            kernels.pick_fsst,
            picks.of(parts[0]),
            counts[picks.chunk],
            picks.index,
            stored // 8,
            *tables.table,
            which=None if tables.which is None else tables.which[picks.chunk],
        )
        return with_offsets(decode, stored)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Decode the codes of each row."""
        codes = codecs.decode_values(message.values, rows)
        return _decode(codes, parse_table(message.symbol_table))


def parse_table(stored: bytes) -> SymbolTable | None:
    """Return the symbols of a stored table, or `None` if it is switched off.

    >>> parse_table((0x46535354 << 32).to_bytes(8, "little") + bytes(2304)) is None
    True
    """
    head = int.from_bytes(stored[:_HEAD_BYTES], "little")
    count = head & 0xFF
    stop = _HEAD_BYTES + count * _SYMBOL_BYTES
    if head >> 32 != _MAGIC or len(stored) < stop + count:
        raise CorruptDataError(
            "a table of symbols is not one", bytes=len(stored), head=stored[:_HEAD_BYTES].hex()
        )
    if not head >> 24 & 1:
        return None
    return SymbolTable(
        np.frombuffer(stored, "<u8", count, _HEAD_BYTES),
        np.frombuffer(stored, np.uint8, count, stop),
    )


def message_with_table(encoding: Encoding) -> Any | None:
    """Return the message whose table may differ between pages that are read as one, or `None`.

    Its codes are plain, and nothing but a general compression is around it.
    """
    while encoding.WhichOneof("compression") == "general":
        encoding = encoding.general.values
    if encoding.WhichOneof("compression") != "fsst" or not _is_plain(encoding.fsst.values):
        return None
    return encoding.fsst if parse_table(encoding.fsst.symbol_table) is not None else None


def join_tables(stored: Sequence[bytes]) -> Bytes:
    """Return the bytes that `table_parts` are parts of: whole tables, symbols before lengths.

    >>> one = stored_table(SymbolTable(np.array([0x6261], np.uint64), np.array([2], np.uint8)))
    >>> joined = join_tables([one, one])
    >>> len(joined), joined[2048:2050].tolist(), joined[-256:-254].tolist()
    (4608, [97, 98], [2, 0])
    """
    symbols = np.zeros((len(stored), _CODES), np.uint64)
    lengths = np.zeros((len(stored), _CODES), np.uint8)
    for place, each in enumerate(stored):
        table = parse_table(each)
        assert table is not None
        symbols[place, : len(table.symbols)] = table.symbols
        lengths[place, : len(table.lengths)] = table.lengths
    return np.concatenate([symbols.view(np.uint8).reshape(-1), lengths.reshape(-1)])


def split_tables(joined: Bytes) -> tuple[npt.NDArray[np.uint64], Bytes]:
    """Return the symbols and the lengths of joined tables, 256 of each for every table."""
    stop = joined.nbytes // _WHOLE_BYTES * _CODES * _SYMBOL_BYTES
    return joined[:stop].view(np.uint64), joined[stop:]


def table_parts(joined: Bytes, pages: Int64s) -> Slices:
    """Return the part of chunks that is the table of their page, by its number."""
    return Slices(joined, pages * _WHOLE_BYTES, np.full(len(pages), _WHOLE_BYTES, np.int64))


def _tables(message: Any, parts: Sequence[Slices]) -> _Tables | None:
    """Return the tables of chunks, or `None` if their strings are stored as they are."""
    if len(parts) == 1:
        table = parse_table(message.symbol_table)
        return None if table is None else _Tables(table, None)
    table = SymbolTable(*split_tables(parts[-1].source))
    return _Tables(table, parts[-1].position // _WHOLE_BYTES)


def stored_table(table: SymbolTable) -> bytes:
    """Return the form of a table that is stored."""
    count = len(table.symbols)
    head = _MAGIC << 32 | 1 << 24 | count
    whole = head.to_bytes(_HEAD_BYTES, "little") + table.symbols.tobytes() + table.lengths.tobytes()
    return whole.ljust(TABLE_BYTES, b"\0")


def _encoding(table: SymbolTable, inner: pb21.CompressiveEncoding) -> pb21.CompressiveEncoding:
    fsst = pb21.Fsst(symbol_table=stored_table(table), values=inner)
    return pb21.CompressiveEncoding(fsst=fsst)


def _is_plain(encoding: Any) -> bool:
    return bool(
        encoding.WhichOneof("compression") == "variable"
        and encoding.variable.offsets.WhichOneof("compression") == "flat"
    )


def _decode(codes: Block, table: SymbolTable | None) -> Variable:
    strings = expect_variable_rows(codes, Fsst.wire_name)
    if table is None:
        return strings
    decode = partial(kernels.fsst_decode, strings.offsets, strings.data, *table)
    return with_offsets(decode, strings.offsets.itemsize * 8)
