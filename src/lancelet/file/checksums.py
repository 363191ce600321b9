"""Checksums of a data file, kept in the file where other readers do not look.

The file is seen as blocks of a fixed size, and an extra global buffer, the last one, holds a
CRC-32C per block. Reading a few rows verifies the few blocks they are in, each block once for all
readers that share what is known of the file (`file.v2.known`):

    file      |block 0|block 1|block 2|block 3|bl..     5 blocks, the last one short
    buffer     header  crc0 crc1 crc2 crc3 crc4
    a read        ^^^            ^                       verifies blocks 0 and 2

Every byte is covered, page, metadata and footer alike. Only the buffer itself cannot hold its own
checksum, so in the blocks it lies in, its bytes count as zeros, and its header has a checksum for
it instead:

    u8[8] magic   u32 block bytes   u32 checksum of the table
    u64 position of the buffer      u64 bytes of the file
    u32 checksum of the header up to here, then zeros up to 64 bytes, then the table

A file without the buffer (another writer made it, or rewrote it) is unverified, which is no error.
So damage must not make a file pass for one of those: the descriptor of the schema, which lies
elsewhere, ends with a field that other readers skip and that says that there are checksums.
"""

from __future__ import annotations

import struct
from dataclasses import field
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import NO_RANGES, Bytes, Fetch, Int64s, Ranges, Slices
from lancelet.errors import CorruptDataError
from lancelet.kernels import MappedFile, crc32c, crc32c_blocks, crc32c_slices, crc32c_verify
from lancelet.values import cached_property, dataclass

CHECKSUM_BLOCK_BYTES: Final = 16 * 1024
"""The size of a block, by measurement: `benchmarks/bench_verify.py`."""

_MAGIC: Final = b"LLETCRC1"
CHECKSUMS_MARK: Final = b"\x8a\xb5\x18" + bytes([len(_MAGIC)]) + _MAGIC
"""Field 50001 of the descriptor: the magic, in a message that ignores fields it does not know."""

_HEADER: Final = struct.Struct("<8sIIQQ")
_HEADER_BYTES: Final = 64
_CRC_BYTES: Final = 4
_BLOCK_BYTES_KNOWN: Final = frozenset(1 << bits for bits in range(12, 21))
_SAMPLED_ONE_IN: Final = 64

Crcs: TypeAlias = npt.NDArray[np.uint32]


class Verify(Enum):
    """How much of what is read is compared with its checksum."""

    OFF = "off"
    SAMPLE = "sample"
    FULL = "full"


@dataclass(frozen=True, slots=True, eq=False)
class Checksums:
    """The checksums of a file's blocks, and where they are kept in it."""

    block_bytes: int
    position: int
    file_bytes: int
    crcs: Crcs
    verified: Bytes = field(init=False)
    """Which blocks were verified already, by whoever read them first; filled as they are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "verified", np.zeros(len(self.crcs), np.uint8))

    @property
    def size(self) -> int:
        """The bytes of the buffer that holds these checksums."""
        return _HEADER_BYTES + self.crcs.nbytes

    def to_bytes(self) -> bytes:
        """Return the buffer as it is stored."""
        table = self.crcs.astype("<u4").tobytes()
        head = _HEADER.pack(_MAGIC, self.block_bytes, _crc(table), self.position, self.file_bytes)
        return (head + struct.pack("<I", _crc(head))).ljust(_HEADER_BYTES, b"\0") + table

    @staticmethod
    def parse(data: Bytes, *, position: int, file_bytes: int) -> Checksums | None:
        """Return the checksums in a global buffer, or None if it is somebody else's buffer."""
        if data.nbytes < _HEADER_BYTES:
            return None
        head = data[: _HEADER.size].tobytes()
        magic, block_bytes, table_crc, own_position, own_file_bytes = _HEADER.unpack(head)
        table = data[_HEADER_BYTES:]
        (head_crc,) = struct.unpack_from("<I", data[:_HEADER_BYTES].tobytes(), _HEADER.size)
        # A damaged magic must not make the buffer pass for somebody else's.
        if magic != _MAGIC and head_crc != _crc(_MAGIC + head[len(_MAGIC) :]):
            return None
        sound = (
            magic == _MAGIC
            and head_crc == _crc(head)
            and not data[_HEADER.size + _CRC_BYTES : _HEADER_BYTES].any()
            and table_crc == _crc(table.tobytes())
            and (own_position, own_file_bytes) == (position, file_bytes)
            and block_bytes in _BLOCK_BYTES_KNOWN
            and data.nbytes == checksum_size(file_bytes, block_bytes)
        )
        if not sound:
            raise CorruptDataError(
                "the checksums of the file are damaged; restore the object",
                position=position,
                size=data.nbytes,
                file_bytes=file_bytes,
            )
        crcs = np.frombuffer(table, "<u4").astype(np.uint32)
        return Checksums(block_bytes, position, file_bytes, crcs)

    def wrong_blocks(self, blocks: Int64s, source: Bytes, place: Int64s) -> Int64s:
        """Return those of `blocks` whose bytes, which begin at `place`, are not what they were."""
        found = self._crcs_of(blocks, source, place)
        size, stop = self.block_bytes, self.position + self.size
        own = (blocks * size < stop) & ((blocks + 1) * size > self.position)
        for index in np.flatnonzero(own).tolist():
            zeroed = self._block(int(blocks[index]), source, int(place[index])).copy()
            start = self.position - int(blocks[index]) * size
            zeroed[max(0, start) : max(0, start + self.size)] = 0
            found[index] = crc32c(zeroed)
        wrong: Int64s = blocks[found != self.crcs[blocks]]
        return wrong

    def _crcs_of(self, blocks: Int64s, source: Bytes, place: Int64s) -> Crcs:
        sizes = np.minimum(self.block_bytes, self.file_bytes - blocks * self.block_bytes)
        return crc32c_slices(Slices(source, place, sizes))

    def _block(self, block: int, source: Bytes, place: int) -> Bytes:
        length = min(self.block_bytes, self.file_bytes - block * self.block_bytes)
        return source[place : place + length]


def check_no_checksums(data: Bytes, descriptor: bytes, *, position: int, file_bytes: int) -> None:
    """Raise if the file has checksums after all; `data` are its bytes from `position` on.

    For files whose tables name none: in a damaged one the descriptor says that there are some, or
    they are still there.
    """
    text = data.tobytes()
    found = text.find(_MAGIC)
    has_some = descriptor.endswith(CHECKSUMS_MARK)
    while 0 <= found <= len(text) - _HEADER.size and not has_some:
        *_, own_position, own_file_bytes = _HEADER.unpack_from(text, found)
        has_some = (own_position, own_file_bytes) == (position + found, file_bytes)
        found = text.find(_MAGIC, found + 1)
    if has_some:
        raise CorruptDataError(
            "the file has checksums, but does not name them; restore the object",
            file_bytes=file_bytes,
        )


def are_intact(source: Bytes, start: Int64s, stop: Int64s, *, last_buffer: Int64s) -> bool:
    """Return whether files, which lie from `start` to `stop` each, have their checksums.

    Either all must have some, in blocks of the usual size, or none. `last_buffer` has position
    and size of the last global buffer of each file. The checksums themselves are lost: their
    bytes are set to zero.
    """
    sizes = stop - start
    blocks = -(-sizes // CHECKSUM_BLOCK_BYTES)
    own_sizes = _HEADER_BYTES + _CRC_BYTES * blocks
    has_some = last_buffer[:, 1] == own_sizes
    if not has_some.all():
        # What has none is unverified, if it does not look as if it had lost them.
        known = any(map(is_checksum_size, last_buffer[:, 1].tolist(), sizes.tolist()))
        return not known and _MAGIC not in source.tobytes()
    own = start + last_buffer[:, 0]
    heads = source[own[:, None] + np.arange(_HEADER_BYTES)]
    tables = [
        source[position + _HEADER_BYTES : position + size]
        for position, size in zip(own.tolist(), own_sizes.tolist(), strict=True)
    ]
    expected = [
        _HEADER.pack(_MAGIC, CHECKSUM_BLOCK_BYTES, table_crc, position, file_bytes)
        for table_crc, position, file_bytes in zip(
            crc32c_slices(Slices(source, own + _HEADER_BYTES, own_sizes - _HEADER_BYTES)).tolist(),
            last_buffer[:, 0].tolist(),
            sizes.tolist(),
            strict=True,
        )
    ]
    sums = np.concatenate(tables).view("<u4").astype(np.uint32)
    head_crcs = crc32c_slices(Slices(source, own, np.full(len(own), _HEADER.size, np.int64)))
    is_sound = (
        heads[:, : _HEADER.size].tobytes() == b"".join(expected)
        and heads[:, _HEADER.size : _HEADER.size + _CRC_BYTES].tobytes()
        == head_crcs.astype("<u4").tobytes()
        and not heads[:, _HEADER.size + _CRC_BYTES :].any()
    )
    if not is_sound:
        return False
    for position, size in zip(own.tolist(), own_sizes.tolist(), strict=True):
        source[position : position + size] = 0
    file = np.repeat(np.arange(len(blocks)), blocks)
    first = np.arange(len(file)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
    position = start[file] + first * CHECKSUM_BLOCK_BYTES
    size = np.minimum(CHECKSUM_BLOCK_BYTES, stop[file] - position)
    return bool((crc32c_slices(Slices(source, position, size)) == sums).all())


class ChecksumBuilder:
    """Computes checksums of a file while it is written, front to back."""

    def __init__(self, block_bytes: int = CHECKSUM_BLOCK_BYTES) -> None:
        """Start at the beginning of a file."""
        self._block_bytes = block_bytes
        self._begun = 0
        self._begun_crc = 0
        self._crcs: list[Crcs] = []

    def update(self, data: Bytes) -> None:
        """Take the next bytes of the file."""
        if self._begun:
            wanted = self._block_bytes - self._begun
            self._go_on(data[:wanted])
            data = data[wanted:]
        whole = data.nbytes // self._block_bytes * self._block_bytes
        if whole:
            self._crcs.append(crc32c_blocks(data[:whole], self._block_bytes))
        if data.nbytes > whole:
            self._go_on(data[whole:])

    def finish(self) -> Crcs:
        """Return the checksum of each block; the last block may be short."""
        if self._begun:
            self._close_block()
        return np.concatenate([np.empty(0, np.uint32), *self._crcs])

    def _go_on(self, data: Bytes) -> None:
        self._begun_crc = crc32c(data, self._begun_crc)
        self._begun += data.nbytes
        if self._begun == self._block_bytes:
            self._close_block()

    def _close_block(self) -> None:
        self._crcs.append(np.array([self._begun_crc], np.uint32))
        self._begun = self._begun_crc = 0


class VerifiedBytes:
    """Reads ranges of a file and verifies the blocks they are in, each block once.

    Several threads may verify the same block at the same time; both find the same.

    Where reading costs nothing (the file is mapped), blocks are verified in place. Elsewhere the
    ranges are widened to blocks that were not verified yet, so there is no further request.
    """

    def __init__(self, fetch: Fetch, checksums: Checksums, verify: Verify) -> None:
        """Verify what `fetch` returns; the file is the one that `checksums` is of."""
        self._fetch = fetch
        self._checksums = checksums
        self._verified = checksums.verified
        if verify is Verify.SAMPLE:
            first = np.random.default_rng().integers(_SAMPLED_ONE_IN)
            self._verified = np.ones(len(checksums.crcs), np.uint8)
            self._verified[first::_SAMPLED_ONE_IN] = 0

    @cached_property
    def _is_mapped(self) -> bool:
        """Whether reading costs nothing; takes by plans of columns need not know."""
        return self._fetch(NO_RANGES).source.nbytes == self._checksums.file_bytes

    def read_ranges(self, ranges: Ranges) -> Slices:
        """Return the bytes of ranges; a damaged block is a `CorruptDataError`."""
        if self._is_mapped:
            slices = self._fetch(ranges)
            if slices.source.nbytes == self._checksums.file_bytes:
                self._verify_in_place(slices)
                return slices
        owner, blocks = self._blocks_of(ranges)
        doubted = np.flatnonzero(self._verified[blocks] == 0)
        if not len(doubted):
            return self._fetch(ranges)
        return self._read_whole_blocks(ranges, owner[doubted], blocks[doubted])

    def watch(self, source: Bytes, known: Bytes) -> MappedFile:
        """Return a map of the file for who verifies the blocks that it reads by itself."""
        checksums = self._checksums
        blocks = np.array([checksums.block_bytes, checksums.position, checksums.size], np.int64)
        return MappedFile(source, known, blocks, checksums.crcs, self._verified)

    def _verify_in_place(self, slices: Slices) -> None:
        checksums = self._checksums
        own = (checksums.position, checksums.size)
        wrong = crc32c_verify(slices, checksums.block_bytes, own, checksums.crcs, self._verified)
        if wrong is not None:
            raise self._damaged(wrong)

    def verify_tail(self, tail: Bytes) -> None:
        """Verify the last bytes of the file, which were read before the checksums were known."""
        start = self._checksums.file_bytes - tail.nbytes
        first = -(-start // self._checksums.block_bytes)
        blocks = np.arange(first, len(self._verified), dtype=np.int64)
        self._check(blocks[self._verified[blocks] == 0], tail, -start)
        if start < first * self._checksums.block_bytes:
            self.read_ranges(Ranges.of((start, 1)))

    def _read_whole_blocks(self, ranges: Ranges, owner: Int64s, blocks: Int64s) -> Slices:
        size = self._checksums.block_bytes
        start = ranges.position.copy()
        stop = ranges.position + ranges.size
        start[owner] = start[owner] // size * size
        stop[owner] = np.minimum(-(-stop[owner] // size) * size, self._checksums.file_bytes)
        wide = self._fetch(Ranges(start, stop - start))
        once, first = np.unique(blocks, return_index=True)
        owner = owner[first]
        self._check(once, wide.source, wide.position[owner] - start[owner])
        return Slices(wide.source, wide.position + (ranges.position - start), ranges.size)

    def _blocks_of(self, ranges: Ranges) -> tuple[Int64s, Int64s]:
        """Return every block that every range touches, and which range that is."""
        size, file_bytes = self._checksums.block_bytes, self._checksums.file_bytes
        # Ranges come from stored bytes; those outside of the file are for `fetch` to refuse.
        start = np.clip(ranges.position, 0, file_bytes)
        stop = start + np.clip(ranges.size, 0, file_bytes - start)
        first = start // size
        count = np.where(stop > start, -(-stop // size) - first, 0)
        owner = np.repeat(np.arange(len(ranges)), count)
        begin = np.cumsum(count) - count
        return owner, np.arange(len(owner)) - begin[owner] + first[owner]

    def _check(self, blocks: Int64s, source: Bytes, shift: Int64s | int) -> None:
        """Verify blocks, each of which is in `source` at its place in the file plus `shift`."""
        if not len(blocks):
            return
        size = self._checksums.block_bytes
        wrong = self._checksums.wrong_blocks(blocks, source, blocks * size + shift)
        if len(wrong):
            raise self._damaged(int(wrong[0]))
        self._verified[blocks] = 1

    def _damaged(self, block: int) -> CorruptDataError:
        size, file_bytes = self._checksums.block_bytes, self._checksums.file_bytes
        return CorruptDataError(
            "bytes of the file do not have their checksum; restore the object from a copy",
            position=block * size,
            size=min(size, file_bytes - block * size),
            file_bytes=file_bytes,
        )


def checksum_size(file_bytes: int, block_bytes: int = CHECKSUM_BLOCK_BYTES) -> int:
    """Return the bytes of the buffer that holds the checksums of a file.

    >>> checksum_size(16 * 1024 + 1)
    72
    """
    return _HEADER_BYTES + _CRC_BYTES * -(-file_bytes // block_bytes)


def is_checksum_size(size: int, file_bytes: int) -> bool:
    """Say whether a global buffer of this size can be the checksums, before it is read."""
    return any(size == checksum_size(file_bytes, known) for known in _BLOCK_BYTES_KNOWN)


def _crc(data: bytes) -> int:
    return crc32c(np.frombuffer(data, np.uint8))
