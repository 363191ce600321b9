"""FSST: strings as one-byte codes, each for a symbol of one to eight bytes.

    symbols   0 "http://"   1 "www."   2 ".com"
    string    http://www.ab.com
    codes     0 1 255 'a' 255 'b' 2            (255 = the next byte stands for itself)

Each string is coded alone, so any one can be decoded without the others. Encoding takes the
longest symbol that fits, again and again (`fsst_training.py` says where symbols come from).

Strings of several tables are decoded in one go: then there are 256 symbols and lengths of each,
one table behind the other, and `which` says by which of them a chunk is coded.

The definition works on all strings at once: decoding tells escapes from the bytes they escape
by the parity of runs of 255, and encoding takes one step in every string per round.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.kernels.arguments import CODES, check_symbols, check_tables
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets, check_offsets, offsets_of
from lancelet.kernels.reference.copies import gather
from lancelet.kernels.reference.variable import picked_slices, value_slices

Symbols: TypeAlias = npt.NDArray[np.uint64]

_ESCAPE: Final = 255


def fsst_decode_chunks(
    slices: Slices,
    counts: Int64s,
    offset_bytes: int,
    symbols: Symbols,
    lengths: Bytes,
    out_bits: int,
    which: Int64s | None = None,
) -> tuple[Offsets, Bytes]:
    """Decode variable chunks of codes into one pair of Arrow offsets and bytes."""
    kernel = "fsst_decode_chunks"
    check_tables(symbols, lengths, which, chunks=len(slices), kernel=kernel)
    position, size = value_slices(slices, counts, offset_bytes, kernel=kernel)
    of_value = None if which is None else np.repeat(which, counts)
    return _decode(slices.source, position, size, symbols, lengths, of_value, out_bits, kernel)


def pick_fsst(
    slices: Slices,
    counts: Int64s,
    index: Int64s,
    offset_bytes: int,
    symbols: Symbols,
    lengths: Bytes,
    out_bits: int,
    which: Int64s | None = None,
) -> tuple[Offsets, Bytes]:
    """Decode value `index[i]` of the variable chunk in slice i, which holds `counts[i]` values."""
    kernel = "pick_fsst"
    check_tables(symbols, lengths, which, chunks=len(slices), kernel=kernel)
    position, size = picked_slices(slices, counts, index, offset_bytes, kernel=kernel)
    return _decode(slices.source, position, size, symbols, lengths, which, out_bits, kernel)


def fsst_decode(
    offsets: Offsets, data: Bytes, symbols: Symbols, lengths: Bytes, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Decode strings of codes that have Arrow offsets already."""
    kernel = "fsst_decode"
    check_symbols(symbols, lengths, kernel=kernel)
    check_offsets(offsets, data.nbytes, kernel=kernel)
    start = offsets[:-1].astype(np.int64)
    size = offsets[1:].astype(np.int64) - start
    return _decode(data, start, size, symbols, lengths, None, out_bits, kernel)


def fsst_encode(
    offsets: Offsets, data: Bytes, symbols: Symbols, lengths: Bytes
) -> tuple[Offsets, Bytes]:
    """Encode strings, each alone, with the longest symbol that fits at every step."""
    kernel = "fsst_encode"
    check_symbols(symbols, lengths, kernel=kernel)
    check_offsets(offsets, data.nbytes, kernel=kernel)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    start, stop = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    used = np.zeros(len(start), np.int64)
    out = np.empty(2 * int(stop[-1] - start[0]) if len(start) else 0, np.uint8)
    base = 2 * (start - start[0]) if len(start) else start  # the most each string may need
    active = np.flatnonzero(start < stop)
    at = start[active]
    while len(active):
        words = padded[at[:, None] + np.arange(8)].view(np.uint64).reshape(-1)
        code, length = longest_match(words, stop[active] - at, symbols, lengths)
        escaped = code == _ESCAPE
        to = base[active] + used[active]
        out[to] = code
        out[to[escaped] + 1] = padded[at[escaped]]
        used[active] += 1 + escaped
        at = at + length
        going = at < stop[active]
        active, at = active[going], at[going]
    bits = offsets.dtype.itemsize * 8
    return offsets_of(used, out_bits=bits, kernel=kernel), gather(out, base, used)


def longest_match(
    words: npt.NDArray[np.uint64], left: Int64s, symbols: Symbols, lengths: Bytes
) -> tuple[Int64s, Int64s]:
    """Return the code and length of the longest symbol that starts each word, or an escape.

    Of equal symbols the first one is meant.
    """
    code = np.full(len(words), _ESCAPE, np.int64)
    length = np.ones(len(words), np.int64)
    for size in range(1, 9):
        codes = np.flatnonzero(lengths == size)
        if not len(codes):
            continue
        mask = np.uint64((1 << (8 * size)) - 1)
        known, first = np.unique(symbols[codes] & mask, return_index=True)
        head = words & mask
        place = np.minimum(np.searchsorted(known, head), len(known) - 1)
        found = (known[place] == head) & (left >= size)
        code[found] = codes[first[place[found]]]
        length[found] = size
    return code, length


def _decode(
    source: Bytes,
    position: Int64s,
    size: Int64s,
    symbols: Symbols,
    lengths: Bytes,
    which: Int64s | None,
    out_bits: int,
    kernel: str,
) -> tuple[Offsets, Bytes]:
    codes = gather(source, position, size)
    ends = np.cumsum(size)
    escape, literal = _escapes(codes, ends - size)
    last = ends[size > 0] - 1
    words = np.zeros(max(CODES, len(symbols)), np.uint64)
    words[: len(symbols)] = symbols
    bytes_of = np.zeros(len(words), np.int64)
    bytes_of[: len(lengths)] = lengths
    code = codes if which is None else codes + CODES * np.repeat(which, size)
    bad = ~escape & ~literal & (bytes_of[code] == 0)
    bad[last] |= escape[last]
    if bad.any():
        raise corrupt(Fault.BAD_CODE, kernel=kernel, place=int(bad.argmax()))
    word = np.where(literal, codes, words[code])
    length = np.where(literal, 1, np.where(escape, 0, bytes_of[code]))
    out = word.view(np.uint8).reshape(-1, 8)[np.arange(8) < length[:, None]]
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    return offsets_of(before[ends] - before[ends - size], out_bits=out_bits, kernel=kernel), out


def _escapes(codes: Bytes, starts: Int64s) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which bytes are escapes, and which are the bytes behind one.

    A run of 255 within a string starts with an escape and then alternates, so an odd number of
    them escapes the byte behind the run.
    """
    is_255 = codes == _ESCAPE
    breaks = np.ones(len(codes) + 1, np.bool_)
    breaks[1:-1] = is_255[1:] != is_255[:-1]
    starts_string = np.zeros(len(codes) + 1, np.bool_)
    starts_string[starts] = True
    run_start = np.flatnonzero(breaks | starts_string)
    nth = np.arange(len(codes)) - np.repeat(run_start[:-1], np.diff(run_start))
    escape = is_255 & (nth % 2 == 0)
    literal = is_255 & ~escape
    literal[1:] |= escape[:-1] & ~is_255[1:] & ~starts_string[1:-1]
    return escape, literal
