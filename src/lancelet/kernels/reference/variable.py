"""Variable-width chunks: offsets from the start of the chunk, then the bytes.

    values "ab", "", "c"     chunk, 4-byte offsets:  16 18 18 19 'a' 'b' 'c' (padding)

A chunk of n values has n + 1 offsets, so the first one is the start of the bytes. Many chunks are
joined into one pair of Arrow buffers.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import check_slices
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets, check_chunk_counts, offsets_of, split_sizes
from lancelet.kernels.reference.copies import gather


def concat_variable(
    slices: ByteSlices, counts: Int64s, offset_bytes: int, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Join variable-width chunks into Arrow offsets (of `out_bits`) and bytes."""
    position, size = value_slices(slices, counts, offset_bytes, kernel="concat_variable")
    offsets = offsets_of(size, out_bits=out_bits, kernel="concat_variable")
    return offsets, gather(slices.source, position, size)


def pick_variable(
    slices: ByteSlices, counts: Int64s, index: Int64s, offset_bytes: int, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Return value `index[i]` of the variable-width chunk in slice i with `counts[i]` values."""
    position, size = picked_ranges(slices, counts, index, offset_bytes, kernel="pick_variable")
    offsets = offsets_of(size, out_bits=out_bits, kernel="pick_variable")
    return offsets, gather(slices.source, position, size)


def split_variable(offsets: Offsets, data: Bytes, counts: Int64s, pad: int) -> ByteSlices:
    """Split strings into chunks of `counts` values, padded with `pad` to whole offsets."""
    sizes = split_sizes(offsets, data.nbytes, counts, kernel="split_variable")
    position = np.cumsum(sizes) - sizes
    out = np.full(int(sizes.sum()), pad, np.uint8)
    row = 0
    for at, count in zip(position.tolist(), counts.tolist(), strict=True):
        own = offsets[row : row + count + 1]
        first, last, head = int(own[0]), int(own[-1]), own.nbytes
        out[at : at + head] = (own - first + head).astype(own.dtype).view(np.uint8)
        out[at + head : at + head + last - first] = data[first:last]
        row += count
    return ByteSlices(out, position, sizes)


def value_slices(
    slices: ByteSlices, counts: Int64s, offset_bytes: int, *, kernel: str
) -> tuple[Int64s, Int64s]:
    """Return validated position and size of every value in the source."""
    check_slices(slices, counts, kernel=kernel)
    check_chunk_counts(slices, counts, offset_bytes, kernel=kernel)
    nonempty = np.flatnonzero(counts)
    entries = counts[nonempty] + 1
    chunk = np.repeat(nonempty, entries)
    ends = np.cumsum(entries)
    entry = np.arange(len(chunk)) - np.repeat(ends - entries, entries)
    at = slices.position[chunk] + entry * offset_bytes
    offsets = read_offsets(slices.source, at, offset_bytes)
    before = np.where(entry == 0, (counts[chunk] + 1) * offset_bytes, np.roll(offsets, 1))
    bad = (offsets < before) | (offsets > slices.size[chunk])
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(chunk[bad.argmax()]))
    first = np.flatnonzero(entry < counts[chunk])
    return slices.position[chunk[first]] + offsets[first], offsets[first + 1] - offsets[first]


def picked_ranges(
    slices: ByteSlices, counts: Int64s, index: Int64s, offset_bytes: int, *, kernel: str
) -> tuple[Int64s, Int64s]:
    """Return validated position and size of one value per chunk."""
    check_slices(slices, counts, kernel=kernel)
    check_slices(slices, index, kernel=kernel)
    check_chunk_counts(slices, counts, offset_bytes, kernel=kernel)
    outside = (index < 0) | (index >= counts)
    if outside.any():
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=int(outside.argmax()))
    at = slices.position + index * offset_bytes
    start = read_offsets(slices.source, at, offset_bytes)
    stop = read_offsets(slices.source, at + offset_bytes, offset_bytes)
    bad = (start < (counts + 1) * offset_bytes) | (stop < start) | (stop > slices.size)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))
    return slices.position + start, stop - start


def read_offsets(source: Bytes, at: Int64s, offset_bytes: int) -> Int64s:
    """Read unsigned offsets at validated positions; values above 63 bits become negative."""
    raw = source[at[:, None] + np.arange(offset_bytes)].view(f"<u{offset_bytes}")
    offsets: Int64s = raw.reshape(-1).astype(np.int64)
    return offsets
