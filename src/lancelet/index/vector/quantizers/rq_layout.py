"""Where the bits of RQ codes lie in a file, such that registers of a CPU take them at once.

Signs of 32 rows lie together, byte by byte of the rows: 16 bytes of low halves, 16 of high ones.

    byte p of 16    low half of row ORDER[p], and of row ORDER[p] + 16 above it

The further bits of 64 elements make a block, in which each of the widths 1 to 8 has an order of
its own; `_places` says where each bit of each element is. Widths 3, 5 and 7 are the width below,
and the highest bits behind it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_GROUP: Final = 32
_ORDER: Final = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
_BLOCK: Final = 64
_STEP_ROWS: Final = 4096
_NIBBLE: Final = 4
"""Halves of bytes, the usual width, are packed without taking their bits apart."""
_NIBBLE_RUN: Final = 8
_Bytes = npt.NDArray[np.uint8]


def pack_signs(rows: _Bytes) -> _Bytes:
    """Return bytes of sign bits, row by row, as a partition has them."""
    count, width = rows.shape
    whole = count // _GROUP * _GROUP
    groups = rows[:whole].reshape(-1, _GROUP, width).transpose(0, 2, 1)
    first, second = groups[:, :, _ORDER], groups[:, :, _ORDER + _GROUP // 2]
    low = (first & 15) | (second & 15) << 4
    high = first >> 4 | (second & 0xF0)
    packed = np.concatenate([low, high], axis=2).reshape(-1)
    return np.concatenate([packed, rows[whole:].T.reshape(-1)]).reshape(count, width)


def unpack_signs(stored: _Bytes) -> _Bytes:
    """Return bytes of sign bits row by row; undoes `pack_signs`."""
    count, width = stored.shape
    flat = stored.reshape(-1)
    whole = count // _GROUP * _GROUP
    packed = flat[: whole * width].reshape(-1, width, 2, _GROUP // 2)
    low, high = packed[:, :, 0], packed[:, :, 1]
    groups = np.empty((len(packed), width, _GROUP), np.uint8)
    groups[:, :, _ORDER] = (low & 15) | (high & 15) << 4
    groups[:, :, _ORDER + _GROUP // 2] = low >> 4 | (high & 0xF0)
    rest = flat[whole * width :].reshape(width, count - whole).T
    return np.concatenate([groups.transpose(0, 2, 1).reshape(whole, width), rest])


def pack_extra(codes: _Bytes, width: int) -> _Bytes:
    """Return codes of so many bits in blocks of 64."""
    count, dimension = codes.shape
    blocks = -(-dimension // _BLOCK)
    places = _places(width)
    out = np.empty((count, blocks * width * 8), np.uint8)
    for first in range(0, count, _STEP_ROWS):
        own = codes[first : first + _STEP_ROWS]
        padded = np.zeros((len(own), blocks * _BLOCK), np.uint8)
        padded[:, :dimension] = own
        if width == _NIBBLE:
            halves = padded.reshape(len(own), -1, 2, _NIBBLE_RUN)
            packed = halves[:, :, 0] | halves[:, :, 1] << _NIBBLE
            out[first : first + _STEP_ROWS] = packed.reshape(len(own), -1)
            continue
        elements = padded.reshape(len(own), blocks, _BLOCK, 1)
        bits = np.empty((len(own), blocks, _BLOCK * width), np.uint8)
        bits[:, :, places] = elements >> np.arange(width, dtype=np.uint8) & 1
        out[first : first + _STEP_ROWS] = np.packbits(
            bits.reshape(len(own), -1), axis=1, bitorder="little"
        )
    return out


def unpack_extra(stored: _Bytes, width: int, dimension: int) -> npt.NDArray[Any]:
    """Return codes of so many bits; undoes `pack_extra`."""
    places = _places(width)
    out = np.empty((len(stored), dimension), np.uint8)
    weights = np.left_shift(1, np.arange(width)).astype(np.uint8)
    for first in range(0, len(stored), _STEP_ROWS):
        own = stored[first : first + _STEP_ROWS]
        if width == _NIBBLE:
            runs = own.reshape(len(own), -1, 1, _NIBBLE_RUN)
            codes = np.concatenate([runs & 15, runs >> _NIBBLE], axis=2)
            out[first : first + _STEP_ROWS] = codes.reshape(len(own), -1)[:, :dimension]
            continue
        bits = np.unpackbits(own, axis=1, bitorder="little").reshape(len(own), -1, _BLOCK * width)
        codes = (bits[:, :, places] * weights).sum(axis=3, dtype=np.uint8)
        out[first : first + _STEP_ROWS] = codes.reshape(len(own), -1)[:, :dimension]
    return out


@cache
def _places(width: int) -> npt.NDArray[np.int64]:
    """Return which bit of a block each bit of each of its elements is, (elements, width)."""
    element = np.arange(_BLOCK)[:, None]
    run, within = element // 16, element % 16
    bit = np.arange(width)[None, :]
    match width:
        case 1:
            return element + bit
        case 2:
            return within * 8 + 2 * run + bit
        case 4:
            return (8 * run + within % 8) * 8 + 4 * (within // 8) + bit
        case 6:
            whole = element * 8 + bit
            split = (16 * (bit // 2) + within) * 8 + 6 + bit % 2
            return np.where(run < 3, whole, split)
        case 8:
            return element * 8 + bit
        case _:
            below = _nibbles(run, within) if width == 5 else _places(width - 1)
            top = (width - 1) * _BLOCK + 8 * (within % 8) + 2 * run + within // 8
            return np.concatenate([below, top], axis=1)


def _nibbles(run: npt.NDArray[np.int64], within: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of the low four bits of codes of five."""
    return (16 * (run // 2) + within) * 8 + 4 * (run % 2) + np.arange(4)[None, :]
