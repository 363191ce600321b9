"""Checksums of a data file, stored in a global buffer that other readers ignore.

The file is divided into blocks of a fixed size, and the last global buffer contains a CRC-32C for
each block. A read verifies only the blocks it touches. Each block is verified once for all readers
that share the cached metadata of the file (`file.v2.metadata_cache`):

    file      |block 0|block 1|block 2|block 3|bl..     5 blocks, the last one short
    buffer     header  crc0 crc1 crc2 crc3 crc4
    a read        ^^^            ^                       verifies blocks 0 and 2

The checksums cover all bytes of the file, including metadata and footer. The buffer cannot contain
its own checksum: its bytes count as zeros in their blocks, and its header has a checksum of the
buffer instead:

    u8[8] magic   u32 block bytes   u32 checksum of the table
    u64 position of the buffer      u64 bytes of the file
    u32 checksum of the header up to here, then zeros up to 64 bytes, then the table

Files of other writers have no such buffer and are read without verification. To detect a damaged
buffer table, the descriptor of the schema ends with an extra field that declares the checksums;
other readers skip it.
"""

from __future__ import annotations

import struct
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet import surroundings
from lancelet.buffers import NO_RANGES, ByteRanges, Bytes, ByteSlices, Fetch, Int64s
from lancelet.errors import CorruptDataError
from lancelet.kernels import MappedFile, crc32c, crc32c_blocks, crc32c_slices, crc32c_verify
from lancelet.values import cached_property, dataclass

CHECKSUM_BLOCK_BYTES: Final = 16 * 1024
"""The block size, chosen by measurements (`benchmarks/bench_verify.py`)."""

_MAGIC: Final = b"LLETCRC1"
CHECKSUM_MARKER: Final = b"\x8a\xb5\x18" + bytes([len(_MAGIC)]) + _MAGIC
"""Field 50001 of the descriptor, with the magic as its value; other readers ignore it."""

_HEADER: Final = struct.Struct("<8sIIQQ")
_HEADER_BYTES: Final = 64
_CRC_BYTES: Final = 4
_BLOCK_SIZES: Final = frozenset(1 << bits for bits in range(12, 21))
_SAMPLED_ONE_IN: Final = 64

Crcs: TypeAlias = npt.NDArray[np.uint32]


class Verify(Enum):
    """The blocks to verify while reading."""

    OFF = "off"
    SAMPLE = "sample"
    FULL = "full"


@dataclass(frozen=True, slots=True, eq=False)
class Checksums:
    """The checksums of the blocks of a file, and their position in the file."""

    block_bytes: int
    position: int
    file_bytes: int
    crcs: Crcs
    verified: Bytes = field(init=False)
    """A flag per block, set after the block was verified."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "verified", np.zeros(len(self.crcs), np.uint8))

    @property
    def size(self) -> int:
        """The size of the stored checksums in bytes."""
        return _HEADER_BYTES + self.crcs.nbytes

    def to_bytes(self) -> bytes:
        """Return the content of the global buffer."""
        table = self.crcs.astype("<u4").tobytes()
        head = _HEADER.pack(_MAGIC, self.block_bytes, _crc(table), self.position, self.file_bytes)
        return (head + struct.pack("<I", _crc(head))).ljust(_HEADER_BYTES, b"\0") + table

    @staticmethod
    def parse(data: Bytes, *, position: int, file_bytes: int) -> Checksums | None:
        """Return the checksums in a global buffer, or None if the buffer is another one."""
        if data.nbytes < _HEADER_BYTES:
            return None
        head = data[: _HEADER.size].tobytes()
        magic, block_bytes, table_crc, own_position, own_file_bytes = _HEADER.unpack(head)
        table = data[_HEADER_BYTES:]
        (head_crc,) = struct.unpack_from("<I", data[:_HEADER_BYTES].tobytes(), _HEADER.size)
        # A buffer with a damaged magic still has a valid checksum of the header.
        if magic != _MAGIC and head_crc != _crc(_MAGIC + head[len(_MAGIC) :]):
            return None
        is_valid = (
            magic == _MAGIC
            and head_crc == _crc(head)
            and not data[_HEADER.size + _CRC_BYTES : _HEADER_BYTES].any()
            and table_crc == _crc(table.tobytes())
            and (own_position, own_file_bytes) == (position, file_bytes)
            and block_bytes in _BLOCK_SIZES
            and data.nbytes == checksum_size(file_bytes, block_bytes)
        )
        if not is_valid:
            raise CorruptDataError(
                "the checksums of the file are damaged; restore the object",
                position=position,
                size=data.nbytes,
                file_bytes=file_bytes,
            )
        crcs = np.frombuffer(table, "<u4").astype(np.uint32)
        return Checksums(block_bytes, position, file_bytes, crcs)

    def damaged_blocks(self, blocks: Int64s, source: Bytes, positions: Int64s) -> Int64s:
        """Return the blocks that do not match their checksums.

        Block `blocks[i]` starts at `positions[i]` of `source`.
        """
        crcs = self._crcs_of(blocks, source, positions)
        size, stop = self.block_bytes, self.position + self.size
        has_checksums = (blocks * size < stop) & ((blocks + 1) * size > self.position)
        for index in np.flatnonzero(has_checksums).tolist():
            zeroed = self._slice_block(int(blocks[index]), source, int(positions[index])).copy()
            start = self.position - int(blocks[index]) * size
            zeroed[max(0, start) : max(0, start + self.size)] = 0
            crcs[index] = crc32c(zeroed)
        wrong: Int64s = blocks[crcs != self.crcs[blocks]]
        return wrong

    def _crcs_of(self, blocks: Int64s, source: Bytes, position: Int64s) -> Crcs:
        sizes = np.minimum(self.block_bytes, self.file_bytes - blocks * self.block_bytes)
        return crc32c_slices(ByteSlices(source, position, sizes))

    def _slice_block(self, block: int, source: Bytes, position: int) -> Bytes:
        length = min(self.block_bytes, self.file_bytes - block * self.block_bytes)
        return source[position : position + length]


def check_no_checksums(data: Bytes, descriptor: bytes, *, position: int, file_bytes: int) -> None:
    """Raise if a file without a checksum buffer declares or contains checksums.

    `data` are the bytes of the file from `position` on. A damaged buffer table can hide the
    checksums, but not the marker in the descriptor or the checksums themselves.
    """
    text = data.tobytes()
    offset = text.find(_MAGIC)
    has_some = descriptor.endswith(CHECKSUM_MARKER)
    while 0 <= offset <= len(text) - _HEADER.size and not has_some:
        *_, own_position, own_file_bytes = _HEADER.unpack_from(text, offset)
        has_some = (own_position, own_file_bytes) == (position + offset, file_bytes)
        offset = text.find(_MAGIC, offset + 1)
    if has_some:
        raise CorruptDataError(
            "the buffer table does not list the checksums of the file; restore the object",
            file_bytes=file_bytes,
        )


def verify_small_files(source: Bytes, start: Int64s, stop: Int64s, *, last_buffer: Int64s) -> bool:
    """Return whether files, at `start` to `stop` of `source`, match their checksums.

    Either all files must have checksums with the default block size, or none. `last_buffer`
    contains the position and size of the last global buffer of each file. The stored checksums
    are overwritten with zeros.
    """
    sizes = stop - start
    blocks = -(-sizes // CHECKSUM_BLOCK_BYTES)
    own_sizes = _HEADER_BYTES + _CRC_BYTES * blocks
    has_some = last_buffer[:, 1] == own_sizes
    if not has_some.all():
        # Files without checksums are accepted unless a damaged table hides checksums.
        may_be_checksums = any(map(is_checksum_size, last_buffer[:, 1].tolist(), sizes.tolist()))
        return not may_be_checksums and _MAGIC not in source.tobytes()
    header_start = start + last_buffer[:, 0]
    heads = source[header_start[:, None] + np.arange(_HEADER_BYTES)]
    tables = [
        source[position + _HEADER_BYTES : position + size]
        for position, size in zip(header_start.tolist(), own_sizes.tolist(), strict=True)
    ]
    expected = [
        _HEADER.pack(_MAGIC, CHECKSUM_BLOCK_BYTES, table_crc, position, file_bytes)
        for table_crc, position, file_bytes in zip(
            crc32c_slices(
                ByteSlices(source, header_start + _HEADER_BYTES, own_sizes - _HEADER_BYTES)
            ).tolist(),
            last_buffer[:, 0].tolist(),
            sizes.tolist(),
            strict=True,
        )
    ]
    sums = np.concatenate(tables).view("<u4").astype(np.uint32)
    head_crcs = crc32c_slices(
        ByteSlices(source, header_start, np.full(len(header_start), _HEADER.size, np.int64))
    )
    headers_match = (
        heads[:, : _HEADER.size].tobytes() == b"".join(expected)
        and heads[:, _HEADER.size : _HEADER.size + _CRC_BYTES].tobytes()
        == head_crcs.astype("<u4").tobytes()
        and not heads[:, _HEADER.size + _CRC_BYTES :].any()
    )
    if not headers_match:
        return False
    for position, size in zip(header_start.tolist(), own_sizes.tolist(), strict=True):
        source[position : position + size] = 0
    file = np.repeat(np.arange(len(blocks)), blocks)
    first = np.arange(len(file)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    position = start[file] + first * CHECKSUM_BLOCK_BYTES
    size = np.minimum(CHECKSUM_BLOCK_BYTES, stop[file] - position)
    return bool((crc32c_slices(ByteSlices(source, position, size)) == sums).all())


class ChecksumBuilder:
    """Computes the checksums of a file while it is written sequentially."""

    def __init__(self, block_bytes: int = CHECKSUM_BLOCK_BYTES) -> None:
        """Start at the beginning of a file."""
        self._block_bytes = block_bytes
        self._partial_bytes = 0
        self._partial_crc = 0
        self._crcs: list[Crcs] = []

    def update(self, data: Bytes) -> None:
        """Add the next bytes of the file."""
        if self._partial_bytes:
            missing = self._block_bytes - self._partial_bytes
            self._extend_block(data[:missing])
            data = data[missing:]
        whole = data.nbytes // self._block_bytes * self._block_bytes
        if whole:
            self._crcs.append(crc32c_blocks(data[:whole], self._block_bytes))
        if data.nbytes > whole:
            self._extend_block(data[whole:])

    def finish(self) -> Crcs:
        """Return the checksum of each block; the last block may be short."""
        if self._partial_bytes:
            self._close_block()
        return np.concatenate([np.empty(0, np.uint32), *self._crcs])

    def _extend_block(self, data: Bytes) -> None:
        self._partial_crc = crc32c(data, self._partial_crc)
        self._partial_bytes += data.nbytes
        if self._partial_bytes == self._block_bytes:
            self._close_block()

    def _close_block(self) -> None:
        self._crcs.append(np.array([self._partial_crc], np.uint32))
        self._partial_bytes = self._partial_crc = 0


class VerifiedBytes:
    """Reads ranges of a file and verifies their blocks, each block once.

    Threads may verify the same block concurrently. Blocks of memory-mapped files are verified
    without copies. For other files, ranges are extended to whole blocks if these are not yet
    verified, so verification needs no additional requests.
    """

    def __init__(self, fetch: Fetch, checksums: Checksums, verify: Verify) -> None:
        """Verify the bytes returned by `fetch`."""
        self._fetch = fetch
        self._checksums = checksums
        self._verified = checksums.verified
        if verify is Verify.SAMPLE:
            first = surroundings.random_bits(64) % _SAMPLED_ONE_IN
            self._verified = np.ones(len(checksums.crcs), np.uint8)
            self._verified[first::_SAMPLED_ONE_IN] = 0

    @cached_property
    def _is_mapped(self) -> bool:
        """Whether the file is memory-mapped; computed lazily because most takes do not need it."""
        return self._fetch(NO_RANGES).source.nbytes == self._checksums.file_bytes

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        """Return the bytes of ranges, or raise `CorruptDataError` if a block is damaged."""
        if self._is_mapped:
            slices = self._fetch(ranges)
            if slices.source.nbytes == self._checksums.file_bytes:
                self._verify_mapped(slices)
                return slices
        owner, blocks = self._blocks_of(ranges)
        unverified = np.flatnonzero(self._verified[blocks] == 0)
        if not len(unverified):
            return self._fetch(ranges)
        return self._read_whole_blocks(ranges, owner[unverified], blocks[unverified])

    def map_file(self, source: Bytes, prefetched: Bytes) -> MappedFile:
        """Return the mapped file for kernels that read and verify blocks themselves."""
        checksums = self._checksums
        blocks = np.array([checksums.block_bytes, checksums.position, checksums.size], np.int64)
        return MappedFile(source, prefetched, blocks, checksums.crcs, self._verified)

    def _verify_mapped(self, slices: ByteSlices) -> None:
        checksums = self._checksums
        checksum_range = (checksums.position, checksums.size)
        wrong = crc32c_verify(
            slices, checksums.block_bytes, checksum_range, checksums.crcs, self._verified
        )
        if wrong is not None:
            raise self._corrupt_error(wrong)

    def verify_tail(self, tail: Bytes) -> None:
        """Verify the tail of the file, which was read before the checksums."""
        start = self._checksums.file_bytes - tail.nbytes
        first = -(-start // self._checksums.block_bytes)
        blocks = np.arange(first, len(self._verified), dtype=np.int64)
        self._check(blocks[self._verified[blocks] == 0], tail, -start)
        if start < first * self._checksums.block_bytes:
            self.read_ranges(ByteRanges.of((start, 1)))

    def _read_whole_blocks(self, ranges: ByteRanges, owner: Int64s, blocks: Int64s) -> ByteSlices:
        size = self._checksums.block_bytes
        start = ranges.position.copy()
        stop = ranges.position + ranges.size
        start[owner] = start[owner] // size * size
        stop[owner] = np.minimum(-(-stop[owner] // size) * size, self._checksums.file_bytes)
        wide = self._fetch(ByteRanges(start, stop - start))
        distinct, first = np.unique(blocks, return_index=True)
        owner = owner[first]
        self._check(distinct, wide.source, wide.position[owner] - start[owner])
        return ByteSlices(wide.source, wide.position + (ranges.position - start), ranges.size)

    def _blocks_of(self, ranges: ByteRanges) -> tuple[Int64s, Int64s]:
        """Return the blocks of each range, and the range index of each block."""
        size, file_bytes = self._checksums.block_bytes, self._checksums.file_bytes
        # Stored ranges may be corrupt; `fetch` raises for ranges outside of the file.
        start = np.clip(ranges.position, 0, file_bytes)
        stop = start + np.clip(ranges.size, 0, file_bytes - start)
        first = start // size
        count = np.where(stop > start, -(-stop // size) - first, 0)
        owner = np.repeat(np.arange(len(ranges)), count)
        begin = np.cumsum(count) - count
        return owner, np.arange(len(owner)) - begin[owner] + first[owner]

    def _check(self, blocks: Int64s, source: Bytes, shift: Int64s | int) -> None:
        """Verify blocks; `shift` is added to their file positions to index `source`."""
        if not len(blocks):
            return
        size = self._checksums.block_bytes
        wrong = self._checksums.damaged_blocks(blocks, source, blocks * size + shift)
        if len(wrong):
            raise self._corrupt_error(int(wrong[0]))
        self._verified[blocks] = 1

    def _corrupt_error(self, block: int) -> CorruptDataError:
        size, file_bytes = self._checksums.block_bytes, self._checksums.file_bytes
        return CorruptDataError(
            "checksum mismatch; restore the file from a copy",
            position=block * size,
            size=min(size, file_bytes - block * size),
            file_bytes=file_bytes,
        )


def checksum_size(file_bytes: int, block_bytes: int = CHECKSUM_BLOCK_BYTES) -> int:
    """Return the size of the checksum buffer of a file in bytes.

    >>> checksum_size(16 * 1024 + 1)
    72
    """
    return _HEADER_BYTES + _CRC_BYTES * -(-file_bytes // block_bytes)


def is_checksum_size(size: int, file_bytes: int) -> bool:
    """Return whether a global buffer of this size can contain the checksums."""
    return any(size == checksum_size(file_bytes, block_bytes) for block_bytes in _BLOCK_SIZES)


def _crc(data: bytes) -> int:
    return crc32c(np.frombuffer(data, np.uint8))
