"""Zstandard compression by the zstandard library, many frames per call; the reference.

A stored frame may start with its uncompressed size as a u64. Some writers omit it, which the
frame's magic number reveals; then the frame itself must state its size.

    u64 16000 | 28 b5 2f fd ...     16000 bytes, validated against the maximum ratio
    28 b5 2f fd ...                 the size stated by the frame
"""

from __future__ import annotations

from typing import Final

import numpy as np
import zstandard

from lancelet.buffers import ByteSlices, Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels.arguments import check_slices, slices_of_sizes
from lancelet.kernels.faults import Fault, corrupt

_MAGIC: Final = np.frombuffer(b"\x28\xb5\x2f\xfd", np.uint8)
_BLOCK_BYTES_MAX: Final = 128 * 1024
_BLOCK_HEAD_BYTES: Final = 3
_REPEATED: Final = 1
_COMPRESSED: Final = 2
_SKIPPABLE: Final = 0x184D2A50
RATIO_MAX: Final = _BLOCK_BYTES_MAX // _BLOCK_HEAD_BYTES
"""Maximum compression ratio: a block has at most 128 KiB and a header of 3 bytes."""
_SIZE_MAX: Final = 1 << 31
"""Maximum size of a frame without a size prefix."""
_PART_BYTES: Final = 1 << 20
_LEVEL: Final = 3
PREFIX_WORD_BYTES: Final = (4, 8, 16, 32)
"""Supported word widths of `zstd_encode_prefixes`."""

_KERNEL: Final = "zstd_decompress_chunks"


def zstd_decompress_chunks(
    slices: ByteSlices, out_sizes: Int64s | None = None, *, max_sizes: Int64s | None = None
) -> ByteSlices:
    """Decompress each slice; without `out_sizes`, sizes are read from the slices.

    Raise `CorruptDataError` if a size exceeds `max_sizes` or the maximum ratio. Empty slices
    decompress to nothing.
    """
    frames, sizes = zstd_frames(slices, out_sizes, max_sizes)
    return decompress_frames(frames, sizes)


def zstd_frames(
    slices: ByteSlices, out_sizes: Int64s | None, max_sizes: Int64s | None
) -> tuple[ByteSlices, Int64s]:
    """Return the frames without size prefixes, and their validated uncompressed sizes."""
    check_slices(slices, out_sizes, kernel=_KERNEL)
    frames, sizes = (slices, out_sizes) if out_sizes is not None else _stored_sizes(slices)
    bad = (sizes < 0) | (sizes // RATIO_MAX > frames.size) | ((frames.size == 0) & (sizes > 0))
    if max_sizes is not None:
        bad |= sizes > max_sizes
    if bad.any():
        raise corrupt(Fault.BAD_COUNT, kernel=_KERNEL, index=int(bad.argmax()))
    check_large_frames(frames, sizes)
    return frames, sizes


def check_large_frames(frames: ByteSlices, sizes: Int64s) -> None:
    """Raise unless frames of more than one block have enough blocks for their size.

    The maximum ratio alone would accept far larger sizes.
    """
    for index in np.flatnonzero(sizes > _BLOCK_BYTES_MAX).tolist():
        size = int(sizes[index])
        if _blocks_bytes_max(frames.slice_bytes(index).data, size) < size:
            raise corrupt(Fault.BAD_COUNT, kernel=_KERNEL, index=index)


def _blocks_bytes_max(frame: memoryview, target: int) -> int:
    """Return the maximum total size of the blocks in consecutive frames, up to `target`."""
    total, end = 0, len(frame)
    start = 0
    while total < target and end - start >= 9:
        word = int.from_bytes(frame[start : start + 4], "little")
        if word & ~0xF == _SKIPPABLE:
            start += 8 + int.from_bytes(frame[start + 4 : start + 8], "little")
            continue
        try:
            at = start + zstandard.frame_header_size(frame[start:])
        except zstandard.ZstdError:
            break
        has_checksum = frame[start + 4] >> 2 & 1
        is_last = False
        while not is_last and total < target and end - at >= _BLOCK_HEAD_BYTES:
            head = int.from_bytes(frame[at : at + _BLOCK_HEAD_BYTES], "little")
            is_last, kind, size = bool(head & 1), head >> 1 & 3, head >> 3
            # A compressed block does not store its size.
            total += _BLOCK_BYTES_MAX if kind == _COMPRESSED else min(size, _BLOCK_BYTES_MAX)
            at += _BLOCK_HEAD_BYTES + (1 if kind == _REPEATED else size)
        start = at + 4 * has_checksum
    return total


def decompress_frames(frames: ByteSlices, sizes: Int64s) -> ByteSlices:
    """Decompress frames with validated sizes."""
    # The library treats size 0 as unknown, so empty results are checked one by one.
    for index in np.flatnonzero((frames.size > 0) & (sizes == 0)).tolist():
        if _plain_size(frames, index) != 0:
            raise corrupt(Fault.BAD_STREAM, kernel=_KERNEL, index=index)
    nonempty = np.flatnonzero(sizes > 0)
    if not len(nonempty):
        return slices_of_sizes(np.empty(0, np.uint8), sizes)
    try:
        found = zstandard.ZstdDecompressor().multi_decompress_to_buffer(
            _segments(ByteSlices(frames.source, frames.position[nonempty], frames.size[nonempty])),
            decompressed_sizes=sizes[nonempty].astype("<u8").tobytes(),
        )
    except zstandard.ZstdError as error:
        raise corrupt(Fault.BAD_STREAM, kernel=_KERNEL, index=0) from error
    # A segment is a buffer, which its stub lacks.
    parts = [found[index] for index in range(len(found))]
    plain = np.frombuffer(b"".join(parts), np.uint8)  # type: ignore[arg-type]
    if plain.nbytes != int(sizes.sum()):
        raise corrupt(Fault.BAD_STREAM, kernel=_KERNEL, index=0)
    return slices_of_sizes(plain, sizes)


def zstd_compress_chunks(slices: ByteSlices, *, level: int, sized: bool) -> ByteSlices:
    """Compress each slice to a frame; `sized` adds the uncompressed size as a u64 prefix."""
    check_slices(slices, kernel="zstd_compress_chunks")
    if not -100 <= level <= zstandard.MAX_COMPRESSION_LEVEL:
        raise InvalidInputError("unsupported Zstandard level", level=level)
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=True)
    frames: list[bytes | zstandard.BufferSegment] = [compressor.compress(b"")] * len(slices)
    if slices.size.any():
        # One call, so that the interpreter lock is released only once.
        found = compressor.multi_compress_to_buffer(_segments(slices))
        frames = [found[index] for index in range(len(found))]
    sizes = np.array([len(frame) for frame in frames], np.int64)
    parts: list[object] = [*frames]
    if sized:
        heads = slices.size.astype("<u8").view("V8")
        parts = [part for pair in zip(heads, frames, strict=True) for part in pair]
        sizes += 8
    # A segment is a buffer, which its stub lacks.
    return slices_of_sizes(np.frombuffer(b"".join(parts), np.uint8), sizes)  # type: ignore[arg-type]


def zstd_encode_prefixes(
    slices: ByteSlices, prefix_bytes: Int64s, *, word_bytes: int, sized: bool
) -> ByteSlices:
    """Compress chunks that start with fixed-width words; the frames depend on the implementation.

    Args:
        slices: The chunks.
        prefix_bytes: Size of the words in each chunk.
        word_bytes: Width of a word: 4, 8, 16 or 32 bytes.
        sized: Whether to add the uncompressed size as a u64 prefix.
    """
    check_prefixes(slices, prefix_bytes, word_bytes=word_bytes)
    return zstd_compress_chunks(slices, level=_LEVEL, sized=sized)


def check_prefixes(slices: ByteSlices, prefix_bytes: Int64s, *, word_bytes: int) -> None:
    """Raise unless prefixes are within their chunks and consist of whole words."""
    kernel = "zstd_encode_prefixes"
    if word_bytes not in PREFIX_WORD_BYTES:
        raise InvalidInputError("words have 4, 8, 16 or 32 bytes", word_bytes=word_bytes)
    check_slices(slices, prefix_bytes, kernel=kernel)
    bad = (prefix_bytes < 0) | (prefix_bytes > slices.size) | (prefix_bytes % word_bytes != 0)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))


def _segments(slices: ByteSlices) -> zstandard.BufferWithSegments:
    pairs = np.stack([slices.position, slices.size], axis=1).astype("<u8")
    return zstandard.BufferWithSegments(slices.source.data, pairs.tobytes())


def _stored_sizes(slices: ByteSlices) -> tuple[ByteSlices, Int64s]:
    """Return the frames without size prefixes, and the uncompressed size of each."""
    empty = slices.size == 0
    short = ~empty & (slices.size < 8)
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=_KERNEL, index=int(short.argmax()))
    nonempty = np.flatnonzero(~empty)
    head = slices.source[slices.position[nonempty][:, None] + np.arange(8)]
    bare = (head[:, :4] == _MAGIC).all(axis=1)
    sizes = np.zeros(len(slices), np.int64)
    sizes[nonempty] = head.reshape(-1).view("<u8").astype(np.int64)
    skip = np.where(empty, 0, 8)
    skip[nonempty[bare]] = 0
    for index in nonempty[bare].tolist():
        sizes[index] = _plain_size(slices, index)
    return ByteSlices(slices.source, slices.position + skip, slices.size - skip), sizes


def _plain_size(frames: ByteSlices, index: int) -> int:
    """Return the stated size of a frame, or else its measured size."""
    frame = frames.slice_bytes(index).data
    try:
        stated = int(zstandard.frame_content_size(frame))
        size = stated if stated >= 0 else _measured_size(frame)
    except zstandard.ZstdError as error:
        raise corrupt(Fault.BAD_STREAM, kernel=_KERNEL, index=index) from error
    if size > _SIZE_MAX:
        raise corrupt(Fault.BAD_COUNT, kernel=_KERNEL, index=index)
    return size


def _measured_size(frame: memoryview) -> int:
    size = 0
    with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
        while size <= _SIZE_MAX and (part := reader.read(_PART_BYTES)):
            size += len(part)
    return size
