"""Posting lists by `native/index/postings.cpp`; `reference/postings.py` defines them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels.postings import BLOCKS_PER_GROUP
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s, check_counts, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes

UInt32s = npt.NDArray[np.uint32]
_UINT32 = np.dtype(np.uint32)


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
    end = np.empty(len(block_scores), np.int64)
    out = empty_bytes(64 * (len(block_scores) + 1) + 10 * len(docs))
    arrays = np.ascontiguousarray(docs), np.ascontiguousarray(freqs), as_int64s(counts)
    scores = np.ascontiguousarray(block_scores, np.float32)
    status = _native.encode_postings(*arrays, scores, block_docs, int(is_varint), out, end)
    return out[: checked(status, kernel="encode_postings")], end


def decode_postings(
    blocks: ByteSlices, counts: Int64s, *, block_docs: int = 128, is_varint: bool = True
) -> tuple[UInt32s, UInt32s]:
    """Return the documents and frequencies of blocks of `counts[i]` documents."""
    kernel = "decode_postings"
    check_counts(counts, max_count=block_docs, kernel=kernel)
    total = int(counts.sum())
    docs, freqs = empty(total, _UINT32), empty(total, _UINT32)
    arrays = (*slice_arrays(blocks, counts), as_int64s(counts))
    status = _native.decode_postings(*arrays, block_docs, int(is_varint), docs, freqs)
    checked(status, kernel=kernel)
    return docs, freqs


def encode_streams(values: UInt32s, counts: Int64s) -> tuple[Bytes, Int64s]:
    """Return streams of `counts[i]` values, and the end of each."""
    end = np.empty(len(counts), np.int64)
    out = empty_bytes(1024 + 5 * len(values) + len(values) // 128)
    status = _native.encode_streams(np.ascontiguousarray(values), as_int64s(counts), out, end)
    return out[: checked(status, kernel="encode_streams")], end


def decode_streams(streams: ByteSlices, counts: Int64s) -> UInt32s:
    """Return the values of streams of `counts[i]` values."""
    kernel = "decode_streams"
    # A run of 128 has at least one byte.
    max_count = (int(streams.size.max()) if len(streams) else 0) * 128
    check_counts(counts, max_count=max_count, kernel=kernel)
    values = empty(int(counts.sum()), _UINT32)
    arrays = (*slice_arrays(streams, counts), as_int64s(counts))
    checked(_native.decode_streams(*arrays, values), kernel=kernel)
    return values


def encode_impacts(
    docs: UInt32s, freqs: UInt32s, counts: Int64s, codes: Bytes, *, block_docs: int = 128
) -> tuple[Bytes, Int64s]:
    """Return the impacts of the blocks of lists, then of each 32 blocks, and the end of each."""
    blocks = -(-counts // block_docs)
    entries = int((blocks + -(-blocks // BLOCKS_PER_GROUP)).sum())
    end = np.empty(entries, np.int64)
    # Per document at most six bytes on each of two levels, and ten more per entry.
    out = empty_bytes(2048 + 16 * entries + 12 * len(docs))
    arrays = np.ascontiguousarray(docs), np.ascontiguousarray(freqs), as_int64s(counts)
    status = _native.encode_impacts(*arrays, codes, block_docs, out, end)
    return out[: checked(status, kernel="encode_impacts")], end
