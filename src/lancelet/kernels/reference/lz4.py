"""LZ4 blocks, many per call; a stored block may start with its uncompressed size as a u32.

A block is a list of sequences: literal bytes, then a copy of earlier output.

    token 0x32: 3 literals, and a match of 2 + 4 bytes
    32 'a' 'b' 'c' 03 00     abc + 6 bytes from 3 back = abcabcabc
    10 'd'                   the last sequence has literals only

A nibble of 15 is extended by the following bytes. Compressors may find different matches (this one
is Arrow's codec), so only decompression is exactly defined. Arrow's codec does not return the
decompressed size and cannot validate it, so decompression is implemented here.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import check_slices, plain_sizes, slices_of_sizes
from lancelet.kernels.faults import Fault, corrupt


def lz4_decompress_chunks(
    slices: ByteSlices, out_sizes: Int64s | None = None, *, max_sizes: Int64s | None = None
) -> ByteSlices:
    """Decompress each slice; without `out_sizes`, each starts with its size as a u32.

    Raise `CorruptDataError` if a size exceeds `max_sizes`.
    """
    kernel = "lz4_decompress_chunks"
    blocks, sizes = plain_sizes(slices, out_sizes, max_sizes, kernel=kernel)
    check_slices(blocks, sizes, kernel=kernel)
    parts = [
        _decompress(blocks.slice_bytes(index), size, kernel, index)
        for index, size in enumerate(sizes.tolist())
    ]
    return slices_of_sizes(np.concatenate([np.empty(0, np.uint8), *parts]), sizes)


def lz4_compress_chunks(slices: ByteSlices, *, sized: bool) -> ByteSlices:
    """Compress each slice; `sized` adds the uncompressed size as a u32 prefix."""
    check_slices(slices, kernel="lz4_compress_chunks")
    codec = pa.Codec("lz4_raw")
    parts: list[Bytes] = []
    for index in range(len(slices)):
        plain = slices.slice_bytes(index)
        head = np.array([plain.nbytes], np.uint32).view(np.uint8)[: 4 if sized else 0]
        packed = codec.compress(pa.py_buffer(plain), asbytes=True)
        parts.append(np.concatenate([head, np.frombuffer(packed, np.uint8)]))
    sizes = np.array([part.nbytes for part in parts], np.int64)
    return slices_of_sizes(np.concatenate([np.empty(0, np.uint8), *parts]), sizes)


def _decompress(block: Bytes, size: int, kernel: str, index: int) -> Bytes:
    bad = corrupt(Fault.BAD_STREAM, kernel=kernel, index=index)
    if size == 0 and block.nbytes == 0:
        return block
    data = block.tobytes()
    out = bytearray()
    at = 0
    while at < len(data):
        token = data[at]
        literals, at = _extended(data, at + 1, token >> 4)
        if literals > len(data) - at or literals > size - len(out):
            raise bad
        out += data[at : at + literals]
        at += literals
        if at == len(data):
            if len(out) != size:
                raise bad
            return np.frombuffer(bytes(out), np.uint8)
        back = int.from_bytes(data[at : at + 2], "little")
        length, at = _extended(data, at + 2, token & 15)
        length += 4
        if back == 0 or back > len(out) or length > size - len(out) or at > len(data):
            raise bad
        seen = bytes(out[-back:])
        out += (seen * (length // back + 1))[:length]
    raise bad


def _extended(data: bytes, at: int, nibble: int) -> tuple[int, int]:
    """Return a length with its extension bytes at `at`, and the end position."""
    length = nibble
    more = nibble == 15
    while more and at < len(data):
        length += data[at]
        more = data[at] == 255
        at += 1
    # A truncated length exceeds any limit.
    return (1 << 62 if more else length), at
