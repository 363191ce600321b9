"""FSST by `native/src/fsst.cpp`; `reference/fsst.py` defines it.

The decoded size is not stored. Decoding starts with a small output, stops when it is full, and
continues with an output sized by the rows decoded so far.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    as_bytes,
    as_int64s,
    check_slices,
    check_symbols,
    check_tables,
    slice_arrays,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes
from lancelet.kernels.native.variable import picked_ranges
from lancelet.kernels.offsets import (
    Offsets,
    check_chunk_counts,
    check_has_offsets,
    check_offsets,
    offset_type,
)

Symbols: TypeAlias = npt.NDArray[np.uint64]

_ROOM_FIRST: Final = 256 * 1024
_GROWTH_MAX: Final = 8
_SLACK: Final = 8
_FIRST: Final = np.empty(0, np.int64)
"""Every chunk uses the first table."""


def fsst_decode_chunks(
    slices: ByteSlices,
    counts: Int64s,
    offset_bytes: int,
    symbols: Symbols,
    lengths: Bytes,
    out_bits: int,
    table_indices: Int64s | None = None,
) -> tuple[Offsets, Bytes]:
    """Decode variable-width chunks of codes into Arrow offsets and bytes."""
    kernel = "fsst_decode_chunks"
    arrays = (slice_arrays(slices, counts), as_int64s(counts), offset_bytes)
    check_slices(slices, counts, kernel=kernel)
    check_chunk_counts(slices, counts, offset_bytes, kernel=kernel)
    table = _tables(symbols, lengths, table_indices, len(slices), kernel)
    return _decode(
        lambda *rest: _native.fsst_decode_chunks(*arrays, table, *rest),
        rows=int(counts.sum()),
        code_bytes=int(slices.size.sum()),
        out_bits=out_bits,
        kernel=kernel,
    )


def pick_fsst(
    slices: ByteSlices,
    counts: Int64s,
    index: Int64s,
    offset_bytes: int,
    symbols: Symbols,
    lengths: Bytes,
    out_bits: int,
    table_indices: Int64s | None = None,
) -> tuple[Offsets, Bytes]:
    """Decode value `index[i]` of the variable chunk in slice i, which holds `counts[i]` values."""
    kernel = "pick_fsst"
    table = _tables(symbols, lengths, table_indices, len(slices), kernel)
    position, size, total = picked_ranges(slices, counts, index, offset_bytes, kernel=kernel)
    return _decode(
        lambda *rest: _native.fsst_decode_slices((slices.source, position, size), table, *rest),
        rows=len(slices),
        code_bytes=total,
        out_bits=out_bits,
        kernel=kernel,
    )


def fsst_decode(
    offsets: Offsets, data: Bytes, symbols: Symbols, lengths: Bytes, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Decode strings of codes with Arrow offsets."""
    kernel = "fsst_decode"
    table = _table(symbols, lengths, kernel)
    check_has_offsets(offsets, kernel=kernel)
    width = offsets.dtype.itemsize
    return _decode(
        lambda *rest: _native.fsst_decode_rows((as_bytes(offsets), width, data), *table, *rest),
        rows=len(offsets) - 1,
        code_bytes=data.nbytes,
        out_bits=out_bits,
        kernel=kernel,
    )


def fsst_encode(
    offsets: Offsets, data: Bytes, symbols: Symbols, lengths: Bytes
) -> tuple[Offsets, Bytes]:
    """Encode each string greedily by the longest matching symbols."""
    kernel = "fsst_encode"
    check_symbols(symbols, lengths, kernel=kernel)
    check_offsets(offsets, data.nbytes, kernel=kernel)
    out_offsets = np.empty(len(offsets), offsets.dtype)
    # Upper bound with every byte escaped; untouched memory is not committed.
    out = empty_bytes(2 * (int(offsets[-1]) - int(offsets[0])) + _SLACK)
    status = _native.fsst_encode(
        as_bytes(offsets),
        offsets.dtype.itemsize,
        data,
        np.require(symbols, np.uint64, ["C", "A"]),
        as_bytes(lengths),
        as_bytes(out_offsets),
        out,
    )
    return out_offsets, out[: checked(status, kernel=kernel)]


def _tables(
    symbols: Symbols, lengths: Bytes, table_indices: Int64s | None, chunks: int, kernel: str
) -> tuple[Symbols, Bytes, Int64s]:
    """Return one or more complete tables, and the table index of each chunk."""
    if table_indices is None:
        return (*_table(symbols, lengths, kernel), _FIRST)
    check_tables(symbols, lengths, table_indices, chunks=chunks, kernel=kernel)
    return symbols, lengths, as_int64s(table_indices)


def _table(symbols: Symbols, lengths: Bytes, kernel: str) -> tuple[Symbols, Bytes]:
    """Return symbols and lengths for all 256 codes; undefined codes have length 0."""
    return _checked_table(symbols.tobytes(), lengths.tobytes(), kernel)


@lru_cache(maxsize=256)
def _checked_table(own_symbols: bytes, own_lengths: bytes, kernel: str) -> tuple[Symbols, Bytes]:
    """Return a complete, validated table.

    Cached, because it costs more than decoding a few strings.
    """
    symbols, lengths = np.frombuffer(own_symbols, np.uint64), np.frombuffer(own_lengths, np.uint8)
    check_symbols(symbols, lengths, kernel=kernel)
    all_symbols = np.zeros(256, np.uint64)
    all_symbols[: len(symbols)] = symbols
    all_lengths = np.zeros(256, np.uint8)
    all_lengths[: len(lengths)] = lengths
    all_symbols.flags.writeable = all_lengths.flags.writeable = False
    return all_symbols, all_lengths


def _decode(
    decode: Callable[..., int], *, rows: int, code_bytes: int, out_bits: int, kernel: str
) -> tuple[Offsets, Bytes]:
    """Decode all rows, enlarging the output as needed; a code yields at most 8 bytes."""
    dtype = offset_type(out_bits)
    offsets = empty(rows + 1, dtype)
    offsets[0] = 0
    progress = np.zeros(4, np.int64)
    max_bytes = _GROWTH_MAX * code_bytes + _SLACK
    out = empty_bytes(min(max_bytes, _ROOM_FIRST))
    while True:
        status = decode(dtype.itemsize, as_bytes(offsets), out, progress)
        missing = checked(status, kernel=kernel)
        rows_done, written = int(progress[2]), int(progress[3])
        if not missing:
            return offsets, out[:written]
        estimate = written * rows // max(1, rows_done) * 9 // 8
        larger = empty_bytes(min(max_bytes, max(estimate, written + written // 2) + missing))
        larger[:written] = out[:written]
        out = larger


def fsst_train(offsets: Offsets, data: Bytes) -> tuple[Symbols, Bytes]:
    """Return at most 255 symbols trained on a sample of these strings."""
    kernel = "fsst_train"
    check_offsets(offsets, data.nbytes, kernel=kernel)
    symbols, lengths = np.empty(255, np.uint64), np.empty(255, np.uint8)
    width = offsets.dtype.itemsize
    status = _native.fsst_train(as_bytes(offsets), width, data, symbols, lengths)
    count = checked(status, kernel=kernel)
    return symbols[:count], lengths[:count]
