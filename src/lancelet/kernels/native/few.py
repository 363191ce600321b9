"""Pages of a few values by `native/src/few.cpp`; `reference/few.py` defines it."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Slices
from lancelet.kernels import _native
from lancelet.kernels.arguments import check_few
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.offsets import Offsets

_NOTHING: Final = np.empty(0, np.uint8)


def frame_few(
    values: Bytes | tuple[Offsets, Bytes],
    levels: npt.NDArray[np.uint16] | None,
    *,
    bits: int,
    rows: int,
    count: int,
    size_bytes: int,
    most: int,
) -> tuple[Slices, Bytes]:
    """Return the chunks of pages of `rows` values, all behind one another, and the kind of each."""
    check_few(values, levels, bits=bits, rows=rows, count=count)
    offsets, room = _NOTHING, (rows * bits + 7) // 8
    if isinstance(values, tuple):
        offsets, values = values[0].view(np.uint8), values[1]
        room = (rows + 2) * (bits // 8) + most
    # Head, levels, which are runs if these take less than the levels, and values, each padded.
    room += 16 + (0 if levels is None else 2 * rows + 8)
    out = empty_bytes(count * room)
    position, size = np.empty((2, count), np.int64)
    kind = np.empty(count, np.uint8)
    own = _NOTHING if levels is None else levels.view(np.uint8)
    status = _native.frame_few(
        values, offsets, own, bits, rows, size_bytes, most, out, position, size, kind
    )
    return Slices(out[: checked(status, kernel="frame_few")], position, size), kind
