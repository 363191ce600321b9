"""A few rows of mapped columns by `native/src/few_rows.cpp`.

The kernel declines whatever is not as it should be, so that there is one place, the general way of
reading, where it is found out what is wrong.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s
from lancelet.kernels.faults import Fault
from lancelet.kernels.mapped import FewRows, MappedFile
from lancelet.kernels.native.allocate import empty_bytes

_PLACE_WORDS: Final = 5
_GROWTH: Final = 8
_ROOM_MAX: Final = 1 << 24
_SPARE_BYTES: Final = 4096
"""So much memory may be held for nothing."""


def take_few(file: MappedFile, rows: Int64s, columns: Int64s, room: int) -> FewRows | None:
    """Return rows, in any order, of columns that are known by the addresses of their records.

    `None` stands for whatever is not known, not supported or not sound. `room` is a guess of how
    many bytes the result has.
    """
    result = np.empty(2 + _PLACE_WORDS * len(columns), np.int64)
    wanted = as_int64s(rows)
    while True:
        out = empty_bytes(room)
        used = _native.take_few(
            file.source,
            wanted,
            columns,
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
        room *= _GROWTH
    if room > 2 * used + _SPARE_BYTES:
        out = out[:used].copy()
    num_ranges, num_bytes, *places = result.tolist()
    each = zip(*[iter(places)] * _PLACE_WORDS, strict=True)
    return FewRows(out, tuple(each), num_ranges, num_bytes)
