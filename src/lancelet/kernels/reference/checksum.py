"""CRC-32C (Castagnoli) of a buffer, of fixed-size blocks, or of slices.

The checksum is linear: that of a concatenation follows from the checksums of both parts and the
size of the second, which shifts the first. The implementation starts with single bytes and joins
adjacent parts in parallel:

    a b c d   ->   ab cd   ->   abcd         (leading zero bytes change nothing)
"""

from __future__ import annotations

from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices
from lancelet.kernels.arguments import check_block_bytes, check_slices
from lancelet.kernels.faults import Fault, corrupt

_POLYNOMIAL: Final = 0x82F63B78

_Table: TypeAlias = npt.NDArray[np.uint32]


def crc32c(data: Bytes, seed: int = 0) -> int:
    """Return the checksum of `data`, continuing from the checksum `seed`.

    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)))
    '0xe3069283'
    """
    start = _shift(np.array([~seed & 0xFFFFFFFF], np.uint32), data.nbytes)
    return int(~(start ^ _linear(data[None, :]))[0] & 0xFFFFFFFF)


def crc32c_blocks(data: Bytes, block_bytes: int) -> npt.NDArray[np.uint32]:
    """Return the checksum of each `block_bytes` bytes; the last block may be shorter."""
    check_block_bytes(block_bytes)
    full = data.nbytes // block_bytes
    blocks = data[: full * block_bytes].reshape(full, block_bytes)
    start = _shift(np.full(1, 0xFFFFFFFF, np.uint32), block_bytes)
    sums = ~(start ^ _linear(blocks))
    tail = data[full * block_bytes :]
    if not tail.nbytes:
        return sums
    return np.append(sums, np.uint32(crc32c(tail)))


def crc32c_slices(slices: ByteSlices) -> npt.NDArray[np.uint32]:
    """Return the checksum of each slice."""
    check_slices(slices, kernel="crc32c_slices")
    sums = np.empty(len(slices), np.uint32)
    for size in np.unique(slices.size):
        same = np.flatnonzero(slices.size == size)
        rows = slices.source[slices.position[same, None] + np.arange(size)]
        start = _shift(np.full(1, 0xFFFFFFFF, np.uint32), int(size))
        sums[same] = ~(start ^ _linear(rows))
    return sums


def crc32c_verify(
    file_ranges: ByteSlices,
    block_bytes: int,
    own: tuple[int, int],
    sums: npt.NDArray[np.uint32],
    verified: Bytes,
) -> int | None:
    """Verify the blocks of a file that ranges touch; return the index of a wrong one, or None.

    Args:
        file_ranges: The ranges, in a source that is the whole file.
        block_bytes: The size of a block.
        own: Position and size of the checksums themselves, which are read as zeros.
        sums: The checksum of each block.
        verified: Flags of verified blocks, which are skipped; updated.
    """
    kernel = "crc32c_verify"
    check_block_bytes(block_bytes)
    data = file_ranges.source
    blocks = -(-data.nbytes // block_bytes)
    if len(sums) != blocks or len(verified) != blocks:
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=0)
    own_start, own_size = own
    check_slices(file_ranges, kernel=kernel)
    for start, size in zip(file_ranges.position.tolist(), file_ranges.size.tolist(), strict=True):
        touched = range(start // block_bytes, -(-(start + size) // block_bytes) if size else 0)
        for block in touched:
            if verified[block]:
                continue
            first = block * block_bytes
            content = data[first : first + block_bytes].copy()
            content[max(0, own_start - first) : max(0, own_start + own_size - first)] = 0
            if crc32c(content) != sums[block]:
                return block
            verified[block] = 1
    return None


def _linear(rows: npt.NDArray[np.uint8]) -> _Table:
    """Return the checksum of each row, without the initial and final inversion."""
    sums = _byte_table()[rows]
    span = 1
    while sums.shape[1] > 1:
        if sums.shape[1] % 2:
            sums = np.concatenate([np.zeros((len(sums), 1), np.uint32), sums], axis=1)
        sums = _shift(sums[:, 0::2], span) ^ sums[:, 1::2]
        span *= 2
    return sums[:, 0] if sums.shape[1] else np.zeros(len(rows), np.uint32)


def _shift(sums: _Table, num_bytes: int) -> _Table:
    """Return the checksums after appending `num_bytes` zero bytes."""
    bit = 0
    while num_bytes >> bit:
        if num_bytes >> bit & 1:
            tables = _shift_tables(bit)
            sums = (
                tables[0][sums & 255]
                ^ tables[1][sums >> 8 & 255]
                ^ tables[2][sums >> 16 & 255]
                ^ tables[3][sums >> 24]
            )
        bit += 1
    return sums


@cache
def _byte_table() -> _Table:
    sums = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        sums = np.where(sums & 1, sums >> 1 ^ np.uint32(_POLYNOMIAL), sums >> 1)
    return sums


@cache
def _shift_tables(bit: int) -> tuple[_Table, _Table, _Table, _Table]:
    """Return lookup tables, one per checksum byte, that append 2**bit zero bytes."""
    lanes = [np.arange(256, dtype=np.uint32) << np.uint32(8 * lane) for lane in range(4)]
    if bit == 0:
        shifted = [_byte_table()[lane & 255] ^ lane >> np.uint32(8) for lane in lanes]
    else:
        half = 1 << (bit - 1)
        shifted = [_shift(_shift(lane, half), half) for lane in lanes]
    return shifted[0], shifted[1], shifted[2], shifted[3]
