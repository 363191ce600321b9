"""Choosing the symbols of FSST: encode a sample, count, keep what saved most, and again.

    round 1   no symbols: every byte is escaped. Frequent bytes and pairs become symbols.
    round 2   the sample in these symbols. Frequent symbols stay, frequent neighbours join
    ...       so a symbol of eight bytes takes three joins.
    round 5   nothing joins any more; the best 255 of what was in use are the table.

What a symbol saves is its length times how often it was used. Early rounds look at a part of
the sample, which is faster and no worse. Everything here is exact arithmetic in a fixed order,
so both implementations choose the same table.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels.offsets import Offsets, check_offsets
from lancelet.kernels.reference.fsst import Symbols

SAMPLE_BYTES: Final = 32 * 1024
PIECE_BYTES: Final = 512
ROUNDS: Final = (8, 38, 68, 98, 128)
"""How many 128ths of the sample each round looks at."""
SINGLE_BONUS: Final = 8
"""A symbol of one byte counts this often, since without it the byte costs two."""


def fsst_train(offsets: Offsets, data: Bytes) -> tuple[Symbols, Bytes]:
    """Choose at most 255 symbols for strings like these."""
    check_offsets(offsets, data.nbytes, kernel="fsst_train")
    sample = sample_pieces(offsets, data)
    table: list[bytes] = []
    for part in ROUNDS:
        single, pair = _count(sample, table, part)
        gains = _gains(single, pair, part)
        best = sorted(gains.items(), key=lambda item: (-item[1], -len(item[0]), item[0]))
        table = [symbol for symbol, _ in best[:255]]
    words = [int.from_bytes(symbol.ljust(8, b"\0"), "little") for symbol in table]
    return np.array(words, np.uint64), np.array([len(symbol) for symbol in table], np.uint8)


def sample_pieces(offsets: Offsets, data: Bytes) -> list[bytes]:
    """Return pieces of strings at even steps through the data, about 32 KiB in all."""
    total = int(offsets[-1]) - int(offsets[0])
    if total <= SAMPLE_BYTES:
        spans = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
        return [data[start:stop].tobytes() for start, stop in spans if stop > start]
    pieces: list[bytes] = []
    sampled = 0
    while sampled < SAMPLE_BYTES:
        # A scattered byte, not a scattered row, so that long strings are seen as they weigh.
        wanted = int(offsets[0]) + _scattered(len(pieces)) % total
        row = int(np.searchsorted(offsets, wanted, side="right")) - 1
        stop = int(offsets[row + 1])
        start = max(int(offsets[row]), min(wanted, stop - PIECE_BYTES))
        pieces.append(data[start : min(stop, start + PIECE_BYTES)].tobytes())
        sampled += len(pieces[-1])
    return pieces


def _scattered(number: int) -> int:
    """Return the splitmix64 of a number: scattered, and the same everywhere."""
    mask = (1 << 64) - 1
    z = (number + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def _count(
    sample: list[bytes], table: list[bytes], part: int
) -> tuple[Counter[bytes], Counter[tuple[bytes, bytes]]]:
    """Encode a part of the sample; count what was used, alone and as neighbours.

    A longer symbol also counts for its first byte, so that the single byte, the one thing that
    can follow anything, is not forgotten while long symbols are still changing.
    """
    known = frozenset(table)
    longest_first = sorted({len(symbol) for symbol in table} - {1}, reverse=True)
    single: Counter[bytes] = Counter()
    pair: Counter[tuple[bytes, bytes]] = Counter()
    for index, piece in enumerate(sample):
        if index * 37 % 128 >= part:
            continue
        at = 0
        before = b""
        while at < len(piece):
            used = piece[at : at + 1]
            for size in longest_first:
                if at + size <= len(piece) and piece[at : at + size] in known:
                    used = piece[at : at + size]
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
    """Return what each candidate would save: what was used, and neighbours joined."""
    least = 5 * part // ROUNDS[-1]
    gains: Counter[bytes] = Counter()
    for symbol, count in single.items():
        if count >= least:
            gains[symbol] += count * len(symbol) * (SINGLE_BONUS if len(symbol) == 1 else 1)
    if part < ROUNDS[-1]:
        for (first, second), count in pair.items():
            if count >= least and len(first) < 8:
                joined = (first + second)[:8]
                gains[joined] += count * len(joined)
    return gains
