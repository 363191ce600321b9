"""A few rows of mapped columns by `native/src/few_rows.cpp`.

The kernel declines whatever is not as it should be, so that there is one place, the general way of
reading, where it is found out what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, assert_never

import numpy as np

from lancelet.buffers import Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s
from lancelet.kernels.faults import Fault
from lancelet.kernels.mapped import (
    ChunkRun,
    ConstantRun,
    FewColumns,
    FewRows,
    ItemRun,
    KnownColumn,
    KnownItems,
    KnownRun,
    KnownSymbols,
    MappedFile,
    ZippedRun,
)
from lancelet.kernels.native.allocate import empty_bytes

_PLACE_WORDS: Final = 5
_ROOM_MAX: Final = 1 << 24
_SPARE_BYTES: Final = 4096
"""So much memory may be held for nothing."""


def prepare_few(columns: Sequence[KnownColumn]) -> FewColumns:
    """Return columns as `take_few` takes them, which keep what they are made of.

    Arrays that are shorter than the numbers beside them say are a `ValueError`.
    """
    handles = [
        _native.Column(
            form=column.form,
            width=column.width,
            is_text=column.is_text,
            first_row=column.first_row,
            runs=[None if run is None else _run(run) for run in column.runs],
        )
        for column in columns
    ]
    return FewColumns(_native.Columns(handles), len(columns))


def take_few(file: MappedFile, rows: Int64s, columns: FewColumns, room: int) -> FewRows | None:
    """Return rows, in any order, of columns that were prepared.

    `None` stands for whatever is not known, not supported or not sound. `room` is a guess of how
    many bytes the result has.
    """
    result = np.zeros(2 + _PLACE_WORDS * columns.num_columns, np.int64)
    wanted = as_int64s(rows)
    while True:
        out = empty_bytes(room)
        used = _native.take_few(
            file.source,
            wanted,
            columns.handle,
            file.known,
            file.blocks,
            file.sums,
            file.verified,
            out,
            result,
        )
        if used >= 0:
            break
        if -used % 16 != Fault.OUTPUT_FULL or room > _ROOM_MAX:
            return None
        # What was read says how much plain values take; only what is compressed takes more.
        room = max(2 * room, min(room + int(result[1]), _ROOM_MAX))
    if room > 2 * used + _SPARE_BYTES:
        out = out[:used].copy()
    num_ranges, num_bytes, *places = result.tolist()
    each = zip(*[iter(places)] * _PLACE_WORDS, strict=True)
    return FewRows(out, tuple(each), num_ranges, num_bytes)


def _run(run: KnownRun) -> Any:
    match run:
        case ChunkRun():
            return _native.chunk_run(
                first_value=run.first_value,
                known=run.known,
                position=run.position,
                size=run.size,
                count=run.count,
                has_definition=run.has_definition,
                size_bytes=run.size_bytes,
                compression=run.compression,
                codec=run.codec,
                bits=run.bits,
                symbols=_symbols(run.symbols),
                items=_items(run.items),
            )
        case ItemRun():
            return _native.item_run(
                first_row=run.first_row,
                position=run.position,
                has_definition=run.has_definition,
                item_bytes=run.item_bytes,
            )
        case ZippedRun():
            return _native.zipped_run(
                rows=run.rows,
                index_position=run.index_position,
                index_width=run.index_width,
                position=run.position,
                size=run.size,
                has_definition=run.has_definition,
                length_bytes=run.length_bytes,
                codec=run.codec,
                symbols=_symbols(run.symbols),
            )
        case ConstantRun():
            return _native.constant_run(value=run.value)
    assert_never(run)


def _symbols(known: KnownSymbols | None) -> Any:
    if known is None:
        return None
    return _native.Symbols(known.symbols, known.lengths, known.first_chunk)


def _items(known: KnownItems | None) -> Any:
    if known is None:
        return None
    return _native.Items(known.count, known.width, known.values, known.data)
