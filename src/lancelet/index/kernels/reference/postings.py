"""Posting lists: documents and frequencies of each token, in blocks; and streams of numbers.

    block    f32 best score, u32 first document, packed deltas, packed frequencies     128 documents
    tail     f32 best score, then each delta and each frequency as a varint            fewer
    packed   u8 width, then 32 values in each of 4 lanes, bit by bit

Blocks of 256 documents have 8 lanes and no score. Frequencies above their bit width are truncated,
and their high bits follow with their index. A stream is packed runs of 128, then varints.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels.postings import BLOCKS_PER_GROUP
from lancelet.kernels.arguments import check_counts, check_slices
from lancelet.kernels.faults import Fault, corrupt

UInt32s = npt.NDArray[np.uint32]
RUN: Final = 128
_PATCHED_LANES: Final = 8


def encode_postings(
    docs: UInt32s,
    freqs: UInt32s,
    counts: Int64s,
    block_scores: npt.NDArray[np.float32],
    *,
    block_docs: int = 128,
    is_varint: bool = True,
) -> tuple[Bytes, Int64s]:
    """Return the blocks of lists of `counts[i]` documents, and the end of each block."""
    out, start = bytearray(), 0
    end: list[int] = []
    for index, count in enumerate(counts.tolist()):
        if count < 0 or count > len(docs) - start:
            raise corrupt(Fault.BAD_COUNT, kernel="encode_postings", index=index)
        for first in range(start, start + count, block_docs):
            last = min(first + block_docs, start + count)
            own, block_freqs = docs[first:last], freqs[first:last]
            if block_docs == RUN:
                out += block_scores[len(end)].tobytes()
            if last - first < block_docs:
                out += _tail(own, block_freqs, is_varint=is_varint)
            else:
                lanes = block_docs // 32
                out += own[:1].tobytes() + _packed(np.diff(own, prepend=own[:1]), lanes)
                out += (
                    _patched(block_freqs)
                    if lanes == _PATCHED_LANES
                    else _packed(block_freqs, lanes)
                )
            end.append(len(out))
        start += count
    return np.frombuffer(bytes(out), np.uint8), np.array(end, np.int64)


def decode_postings(
    blocks: ByteSlices, counts: Int64s, *, block_docs: int = 128, is_varint: bool = True
) -> tuple[UInt32s, UInt32s]:
    """Return the documents and frequencies of blocks of `counts[i]` documents."""
    kernel = "decode_postings"
    check_counts(counts, max_count=block_docs, kernel=kernel)
    check_slices(blocks, counts, kernel=kernel)
    docs, freqs = [np.empty(0, np.uint32)], [np.empty(0, np.uint32)]
    for index, count in enumerate(counts.tolist()):
        reader = _Reader(blocks, index, kernel)
        if block_docs == RUN:
            reader.take(4, Fault.TOO_SHORT)
        if count < block_docs and not is_varint:
            docs.append(reader.uint32s(count))
            freqs.append(reader.uint32s(count))
        elif count < block_docs:
            docs.append(np.cumsum(reader.varints(count), dtype=np.uint32))
            freqs.append(reader.varints(count))
        else:
            lanes = block_docs // 32
            first = reader.uint32s(1)
            docs.append(first + np.cumsum(reader.packed(lanes), dtype=np.uint32))
            freqs.append(reader.patched() if lanes == _PATCHED_LANES else reader.packed(lanes))
    return np.concatenate(docs), np.concatenate(freqs)


def encode_impacts(
    docs: UInt32s, freqs: UInt32s, counts: Int64s, codes: Bytes, *, block_docs: int = 128
) -> tuple[Bytes, Int64s]:
    """Return the impacts of the blocks of lists, then of each 32 blocks, and the end of each."""
    out, start = bytearray(), 0
    end: list[int] = []
    for index, count in enumerate(counts.tolist()):
        if count < 0 or count > len(docs) - start:
            raise corrupt(Fault.BAD_COUNT, kernel="encode_impacts", index=index)
        for step in (block_docs, block_docs * BLOCKS_PER_GROUP):
            for first in range(start, start + count, step):
                own = slice(first, min(first + step, start + count))
                if int(docs[own].max()) >= len(codes):
                    raise corrupt(Fault.BAD_INDEX, kernel="encode_impacts", index=index)
                out += _impacts(docs[own], freqs[own], codes)
                end.append(len(out))
        start += count
    return np.frombuffer(bytes(out), np.uint8), np.array(end, np.int64)


def encode_streams(values: UInt32s, counts: Int64s) -> tuple[Bytes, Int64s]:
    """Return streams of `counts[i]` values, and the end of each."""
    out, start = bytearray(), 0
    end: list[int] = []
    for index, count in enumerate(counts.tolist()):
        if count < 0 or count > len(values) - start:
            raise corrupt(Fault.BAD_COUNT, kernel="encode_streams", index=index)
        whole = start + count // RUN * RUN
        for first in range(start, whole, RUN):
            out += _packed(values[first : first + RUN], 4)
        out += _varints(values[whole : start + count])
        end.append(len(out))
        start += count
    return np.frombuffer(bytes(out), np.uint8), np.array(end, np.int64)


def decode_streams(streams: ByteSlices, counts: Int64s) -> UInt32s:
    """Return the values of streams of `counts[i]` values."""
    kernel = "decode_streams"
    max_count = (int(streams.size.max()) if len(streams) else 0) * RUN
    check_counts(counts, max_count=max_count, kernel=kernel)
    check_slices(streams, counts, kernel=kernel)
    found = [np.empty(0, np.uint32)]
    for index, count in enumerate(counts.tolist()):
        reader = _Reader(streams, index, kernel)
        found += [reader.packed(4) for _ in range(count // RUN)]
        found.append(reader.varints(count % RUN))
    return np.concatenate(found)


def _impacts(docs: UInt32s, freqs: UInt32s, codes: Bytes) -> bytes:
    """Return the last document, and pairs of frequency and length code, both ascending.

    Omits pairs dominated by another pair, which is at least as frequent and not longer.
    """
    max_count: dict[int, int] = {}
    for code, freq in zip(codes[docs].tolist(), freqs.tolist(), strict=True):
        max_count[code] = max(max_count.get(code, 0), freq)
    pairs: list[tuple[int, int]] = []
    for code in sorted(max_count):
        if not pairs or max_count[code] > pairs[-1][0]:
            pairs.append((max_count[code], code))
    out = bytearray(_varints(np.array([docs[-1], len(pairs)], np.uint32)))
    freq_before = code_before = 0
    for freq, code in pairs:
        has_gap = code != code_before + 1
        step = (freq - freq_before - 1) << 1 | has_gap
        out += _varints(np.array([step & 0xFFFFFFFF], np.uint32))
        out += bytes([code - code_before]) if has_gap else b""
        freq_before, code_before = freq, code
    return bytes(out)


def _width(values: UInt32s) -> int:
    return int(np.bitwise_or.reduce(values)).bit_length()


def _bits(values: UInt32s, width: int, lanes: int) -> bytes:
    bits = values.reshape(32, lanes).T[:, :, None] >> np.arange(width, dtype=np.uint32) & 1
    packed = np.packbits(bits.astype(np.uint8).reshape(lanes, -1), axis=1, bitorder="little")
    # The result may be in column order, which cannot be viewed as words.
    machine_words = np.ascontiguousarray(packed).view("<u4")
    return np.ascontiguousarray(machine_words.T).tobytes()


def _packed(values: UInt32s, lanes: int) -> bytes:
    width = _width(values)
    return bytes((width,)) + _bits(values, width, lanes)


def _patched(values: UInt32s) -> bytes:
    needs = [int(value).bit_length() for value in values.tolist()]
    best, best_bytes = 32, 32 * 32
    for width in range(31, -1, -1):
        above = [need for need in needs if need > width]
        if len(above) > 255:
            break
        size = 32 * width + sum(1 + (need - width + 6) // 7 for need in above)
        if size < best_bytes:
            best, best_bytes = width, size
    above = [index for index, need in enumerate(needs) if need > best]
    low = values & np.uint32((1 << best) - 1)
    out = bytearray((best, len(above))) + _bits(low, best, _PATCHED_LANES)
    for index in above:
        out += bytes((index,)) + _varints(values[index : index + 1] >> np.uint32(best))
    return bytes(out)


def _varints(values: UInt32s) -> bytes:
    out = bytearray()
    for value in values.tolist():
        left = value
        while left >= 0x80:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
    return bytes(out)


def _tail(docs: UInt32s, freqs: UInt32s, *, is_varint: bool) -> bytes:
    if not is_varint:
        return docs.tobytes() + freqs.tobytes()
    return _varints(np.diff(docs, prepend=np.uint32(0))) + _varints(freqs)


class _Reader:
    """Sequential reader of a slice, with bounds checks."""

    def __init__(self, slices: ByteSlices, index: int, kernel: str) -> None:
        start = int(slices.position[index])
        self._data = slices.source[start : start + int(slices.size[index])].tobytes()
        self._at, self._index, self._kernel = 0, index, kernel

    def take(self, size: int, fault: Fault = Fault.BAD_STREAM) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise corrupt(fault, kernel=self._kernel, index=self._index)
        self._at += size
        return found

    def uint32s(self, count: int) -> UInt32s:
        return np.frombuffer(self.take(4 * count), np.uint32)

    def varints(self, count: int) -> UInt32s:
        return np.array([self._varint() for _ in range(count)], np.uint32)

    def packed(self, lanes: int) -> UInt32s:
        return self._bits(self.take(1)[0], lanes)

    def patched(self) -> UInt32s:
        width, exceptions = self.take(2)
        values = self._bits(width, _PATCHED_LANES)
        for _ in range(exceptions):
            index = self.take(1)[0]
            high = self._varint()
            if width == 32:
                raise corrupt(Fault.BAD_STREAM, kernel=self._kernel, index=self._index)
            values[index] |= np.uint32(high << width & 0xFFFFFFFF)
        return values

    def _bits(self, width: int, lanes: int) -> UInt32s:
        if width > 32:
            raise corrupt(Fault.BAD_STREAM, kernel=self._kernel, index=self._index)
        machine_words = np.frombuffer(self.take(width * lanes * 4), "<u4").reshape(width, lanes)
        bits = np.unpackbits(
            np.ascontiguousarray(machine_words.T).view(np.uint8).reshape(lanes, -1),
            axis=1,
            bitorder="little",
        ).reshape(lanes, 32, width)
        values = (bits.astype(np.uint64) << np.arange(width, dtype=np.uint64)).sum(axis=2)
        return np.ascontiguousarray(values.T).reshape(-1).astype(np.uint32)

    def _varint(self) -> int:
        found = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                if found >> 32:
                    break
                return found
        raise corrupt(Fault.BAD_STREAM, kernel=self._kernel, index=self._index)
