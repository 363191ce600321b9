"""FSST: strings as one-byte codes for symbols of one to eight bytes.

    symbols   0 "http://"   1 "www."   2 ".com"
    string    http://www.ab.com
    codes     0 1 255 'a' 255 'b' 2            (255 escapes the next byte)

Strings are coded independently, so each can be decoded on its own. Encoding is greedy: it uses the
longest matching symbol.

Strings with different tables can be decoded in one call: tables of 256 symbols and lengths are
concatenated, and `table_indices` has the table of each chunk.

This implementation processes all strings in parallel: decoding distinguishes escapes from escaped
bytes by the parity of runs of 255, and encoding advances every string by one step per iteration.

Training encodes a sample repeatedly and retains the symbols with the largest gain:

    pass 1    no symbols: every byte is escaped. Frequent bytes and pairs become symbols.
    pass 2    encode with these symbols. Frequent symbols stay, frequent neighbors are joined
    ...       so a symbol of eight bytes takes three joins.
    pass 5    no joins; the best 255 used symbols are the table.

The gain of a symbol is its length times its frequency. Early passes use a part of the sample, which
is faster without loss of quality. All arithmetic is exact and in a fixed order, so both
implementations choose the same table.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import CODES, check_symbols, check_tables
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets, check_offsets, offsets_of
from lancelet.kernels.reference.copies import gather
from lancelet.kernels.reference.variable import picked_ranges, value_slices

Symbols: TypeAlias = npt.NDArray[np.uint64]

_ESCAPE: Final = 255

SAMPLE_BYTES: Final = 32 * 1024
SLICE_BYTES: Final = 512
PASS_SHARES: Final = (8, 38, 68, 98, 128)
"""Share of the sample used by each pass, in 128ths."""
SINGLE_BONUS: Final = 8
"""Weight of one-byte symbols, since an escaped byte costs two bytes."""


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
    check_tables(symbols, lengths, table_indices, chunks=len(slices), kernel=kernel)
    position, size = value_slices(slices, counts, offset_bytes, kernel=kernel)
    of_value = None if table_indices is None else np.repeat(table_indices, counts)
    return _decode(slices.source, position, size, symbols, lengths, of_value, out_bits, kernel)


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
    check_tables(symbols, lengths, table_indices, chunks=len(slices), kernel=kernel)
    position, size = picked_ranges(slices, counts, index, offset_bytes, kernel=kernel)
    return _decode(slices.source, position, size, symbols, lengths, table_indices, out_bits, kernel)


def fsst_decode(
    offsets: Offsets, data: Bytes, symbols: Symbols, lengths: Bytes, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Decode strings of codes with Arrow offsets."""
    kernel = "fsst_decode"
    check_symbols(symbols, lengths, kernel=kernel)
    check_offsets(offsets, data.nbytes, kernel=kernel)
    start = offsets[:-1].astype(np.int64)
    size = offsets[1:].astype(np.int64) - start
    return _decode(data, start, size, symbols, lengths, None, out_bits, kernel)


def fsst_encode(
    offsets: Offsets, data: Bytes, symbols: Symbols, lengths: Bytes
) -> tuple[Offsets, Bytes]:
    """Encode each string greedily by the longest matching symbols."""
    kernel = "fsst_encode"
    check_symbols(symbols, lengths, kernel=kernel)
    check_offsets(offsets, data.nbytes, kernel=kernel)
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    start, stop = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    used = np.zeros(len(start), np.int64)
    out = np.empty(2 * int(stop[-1] - start[0]) if len(start) else 0, np.uint8)
    base = 2 * (start - start[0]) if len(start) else start  # upper bound per string
    active = np.flatnonzero(start < stop)
    at = start[active]
    while len(active):
        next_bytes = padded[at[:, None] + np.arange(8)].view(np.uint64).reshape(-1)
        code, length = longest_match(next_bytes, stop[active] - at, symbols, lengths)
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
    next_bytes: npt.NDArray[np.uint64], left: Int64s, symbols: Symbols, lengths: Bytes
) -> tuple[Int64s, Int64s]:
    """Return the code and length of the longest symbol that starts each 8-byte value, or an escape.

    Ties are resolved in favor of the first symbol.
    """
    code = np.full(len(next_bytes), _ESCAPE, np.int64)
    length = np.ones(len(next_bytes), np.int64)
    for size in range(1, 9):
        codes = np.flatnonzero(lengths == size)
        if not len(codes):
            continue
        mask = np.uint64((1 << (8 * size)) - 1)
        symbol_set, first = np.unique(symbols[codes] & mask, return_index=True)
        head = next_bytes & mask
        rank = np.minimum(np.searchsorted(symbol_set, head), len(symbol_set) - 1)
        found = (symbol_set[rank] == head) & (left >= size)
        code[found] = codes[first[rank[found]]]
        length[found] = size
    return code, length


def _decode(
    source: Bytes,
    position: Int64s,
    size: Int64s,
    symbols: Symbols,
    lengths: Bytes,
    table_indices: Int64s | None,
    out_bits: int,
    kernel: str,
) -> tuple[Offsets, Bytes]:
    codes = gather(source, position, size)
    ends = np.cumsum(size)
    escape, literal = _escapes(codes, ends - size)
    last = ends[size > 0] - 1
    symbol_values = np.zeros(max(CODES, len(symbols)), np.uint64)
    symbol_values[: len(symbols)] = symbols
    bytes_of = np.zeros(len(symbol_values), np.int64)
    bytes_of[: len(lengths)] = lengths
    code = codes if table_indices is None else codes + CODES * np.repeat(table_indices, size)
    bad = ~escape & ~literal & (bytes_of[code] == 0)
    bad[last] |= escape[last]
    if bad.any():
        raise corrupt(Fault.BAD_CODE, kernel=kernel, index=int(bad.argmax()))
    value = np.where(literal, codes, symbol_values[code])
    length = np.where(literal, 1, np.where(escape, 0, bytes_of[code]))
    out = value.view(np.uint8).reshape(-1, 8)[np.arange(8) < length[:, None]]
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    return offsets_of(before[ends] - before[ends - size], out_bits=out_bits, kernel=kernel), out


def _escapes(codes: Bytes, starts: Int64s) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return the masks of escapes and of escaped bytes.

    A run of 255 within a string starts with an escape and alternates, so a run of odd length
    escapes the byte after it.
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


def fsst_train(offsets: Offsets, data: Bytes) -> tuple[Symbols, Bytes]:
    """Return at most 255 symbols trained on a sample of these strings."""
    check_offsets(offsets, data.nbytes, kernel="fsst_train")
    sample = sample_slices(offsets, data)
    table: list[bytes] = []
    for part in PASS_SHARES:
        single, pair = _count(sample, table, part)
        gains = _gains(single, pair, part)
        best = sorted(gains.items(), key=lambda item: (-item[1], -len(item[0]), item[0]))
        table = [symbol for symbol, _ in best[:255]]
    symbol_values = [int.from_bytes(symbol.ljust(8, b"\0"), "little") for symbol in table]
    return np.array(symbol_values, np.uint64), np.array([len(symbol) for symbol in table], np.uint8)


def sample_slices(offsets: Offsets, data: Bytes) -> list[bytes]:
    """Return slices of strings from pseudo-random positions, about 32 KiB in total."""
    total = int(offsets[-1]) - int(offsets[0])
    if total <= SAMPLE_BYTES:
        ranges = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return [data[start:stop].tobytes() for start, stop in ranges if stop > start]
    parts: list[bytes] = []
    sampled = 0
    while sampled < SAMPLE_BYTES:
        # Sample bytes, not rows, so that long strings are weighted by size.
        target = int(offsets[0]) + _scattered(len(parts)) % total
        row = int(np.searchsorted(offsets, target, side="right")) - 1
        stop = int(offsets[row + 1])
        start = max(int(offsets[row]), min(target, stop - SLICE_BYTES))
        parts.append(data[start : min(stop, start + SLICE_BYTES)].tobytes())
        sampled += len(parts[-1])
    return parts


def _scattered(number: int) -> int:
    """Return the splitmix64 hash of a number."""
    mask = (1 << 64) - 1
    z = (number + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def _count(
    sample: list[bytes], table: list[bytes], part: int
) -> tuple[Counter[bytes], Counter[tuple[bytes, bytes]]]:
    """Encode a part of the sample; count used codes, alone and as neighbors.

    A longer symbol also counts for its first byte, so that single bytes stay in the table while
    long symbols change.
    """
    symbol_set = frozenset(table)
    longest_first = sorted({len(symbol) for symbol in table} - {1}, reverse=True)
    single: Counter[bytes] = Counter()
    pair: Counter[tuple[bytes, bytes]] = Counter()
    for index, text in enumerate(sample):
        if index * 37 % 128 >= part:
            continue
        at = 0
        before = b""
        while at < len(text):
            used = text[at : at + 1]
            for size in longest_first:
                if at + size <= len(text) and text[at : at + size] in symbol_set:
                    used = text[at : at + size]
                    break
            single[used] += 1
            if before:
                pair[before, used] += 1
            if len(used) > 1:
                single[used[:1]] += 1
                if before:
                    pair[before, used[:1]] += 1
            before = used
            at += len(used)
    return single, pair


def _gains(single: Counter[bytes], pair: Counter[tuple[bytes, bytes]], part: int) -> Counter[bytes]:
    """Return the gain of each candidate: used symbols and joined neighbors."""
    least = 5 * part // PASS_SHARES[-1]
    gains: Counter[bytes] = Counter()
    for symbol, count in single.items():
        if count >= least:
            gains[symbol] += count * len(symbol) * (SINGLE_BONUS if len(symbol) == 1 else 1)
    if part < PASS_SHARES[-1]:
        for (first, second), count in pair.items():
            if count >= least and len(first) < 8:
                joined = (first + second)[:8]
                gains[joined] += count * len(joined)
    return gains
