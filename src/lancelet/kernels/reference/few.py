"""Pages of a few values, one mini-block chunk each, which is put together without being tried.

    int32 5 6 7     00 00 | 0c 00 00 00 | fe fe             no levels; 12 bytes of values
                    05 00 00 00 06 00 00 00 07 00 00 00 | fe fe fe fe

Levels are runs here, as those of a few rows mostly are when they are encoded as is shortest.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Slices
from lancelet.kernels.arguments import check_few
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets

_HEAD: Final = 8
_PAD: Final = 0xFE
_TEXT_PAD: Final = 72

VALUES, ONE_VALUE, MORE = range(3)
"""What a page turns out to be: values, one value all over, or not to be put together here."""


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
    """Return the chunks of pages of `rows` values, all behind one another, and the kind of each.

    Values have `bits` each, or are strings. A page of more than `most` bytes of strings has no
    chunk, and neither has one whose levels are shorter as bits than as runs.
    """
    check_few(values, levels, bits=bits, rows=rows, count=count)
    chunks: list[bytes] = []
    kinds: list[int] = []
    for page in range(count):
        own = slice(page * rows, (page + 1) * rows)
        if isinstance(values, tuple):
            stored, texts = _strings(values[0][own.start : own.stop + 1], values[1], place=page)
            is_more = sum(map(len, texts)) > most
            is_one = len(set(texts)) == 1
        else:
            stored, is_one = _numbers(values, own, bits)
            is_more = False
        runs = b"" if levels is None else _runs(levels[own])
        is_more |= runs is None
        kinds.append(MORE if is_more else ONE_VALUE if is_one and levels is None else VALUES)
        if is_more or runs is None:
            chunks.append(b"")
            continue
        if size_bytes == 2 and len(stored) >= 1 << 16:
            raise corrupt(Fault.TOO_LARGE, kernel="frame_few", place=page)
        head = (0 if levels is None else rows).to_bytes(2, "little")
        head += b"" if levels is None else len(runs).to_bytes(2, "little")
        head += len(stored).to_bytes(size_bytes, "little")
        chunks.append(b"".join(map(_padded, (head, runs, stored))))
    ends = np.cumsum([0, *map(len, chunks)])
    source = np.frombuffer(b"".join(chunks), np.uint8)
    return Slices(source, ends[:-1], np.diff(ends)), np.array(kinds, np.uint8)


def _numbers(values: Bytes, own: slice, bits: int) -> tuple[bytes, bool]:
    if bits == 1:
        plain = np.unpackbits(values, bitorder="little")[own]
        return np.packbits(plain, bitorder="little").tobytes(), len(set(plain.tolist())) == 1
    width = bits // 8
    part = values[own.start * width : own.stop * width].reshape(-1, width)
    return part.tobytes(), bool((part == part[0]).all())


def _strings(offsets: Offsets, data: Bytes, *, place: int) -> tuple[bytes, list[bytes]]:
    ends = offsets.tolist()
    if ends[0] < 0 or ends[-1] > data.nbytes or any(b < a for a, b in pairwise(ends)):
        raise corrupt(Fault.BAD_OFFSETS, kernel="frame_few", place=place)
    own = (offsets - offsets[0] + offsets.nbytes).astype(offsets.dtype)
    bytes_of_all = data[ends[0] : ends[-1]].tobytes()
    pad = bytes([_TEXT_PAD]) * (-len(bytes_of_all) % offsets.itemsize)
    texts = [data[a:b].tobytes() for a, b in pairwise(ends)]
    return own.tobytes() + bytes_of_all + pad, texts


def _runs(levels: npt.NDArray[Any]) -> bytes | None:
    """Return levels as runs, or None if they are shorter as bits."""
    starts = np.flatnonzero(np.concatenate([[True], levels[1:] != levels[:-1]]))
    width, count = int(levels.max()).bit_length(), len(levels)
    packed = width * 128 if width * 1024 < 16 * count else 2 * count
    if 8 + 3 * len(starts) > packed:
        return None
    own = levels[starts].astype("<u2").tobytes()
    lengths = np.diff(np.append(starts, count)).astype(np.uint8).tobytes()
    return len(own).to_bytes(8, "little") + own + lengths


def _padded(part: bytes) -> bytes:
    return part + bytes([_PAD]) * (-len(part) % _HEAD)
