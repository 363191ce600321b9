"""Run-length encoding: a run of equal values is stored once, with its length.

    values   7 7 7 2 2 9
    stored   values [7 2 9]   lengths [3 2 1]

Runs never cross a chunk, and runs longer than 255 are split, as lengths have one byte.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import (
    check_partition,
    check_run_counts,
    check_slices,
    check_whole_values,
)
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.reference.copies import gather

RUN_MAX: Final = 255
"""Maximum run length."""


def rle_decode_chunks(
    values: ByteSlices, lengths: ByteSlices, counts: Int64s, value_bytes: int, length_bytes: int = 1
) -> Bytes:
    """Expand the runs of every chunk; those of chunk i must add up to `counts[i]` values."""
    kernel = "rle_decode_chunks"
    check_slices(values, counts, kernel=kernel)
    check_slices(lengths, counts, kernel=kernel)
    check_run_counts(lengths, counts, value_bytes, length_bytes, kernel=kernel)
    runs = lengths.size // length_bytes
    short = values.size < runs * value_bytes
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(short.argmax()))
    length = gather(lengths.source, lengths.position, runs * length_bytes)
    length = length.view(f"<u{length_bytes}").astype(np.int64)
    ends = np.cumsum(runs)
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
    wrong = total[ends] - total[ends - runs] != counts
    if wrong.any():
        raise corrupt(Fault.BAD_LENGTH, kernel=kernel, index=int(wrong.argmax()))
    stored = gather(values.source, values.position, runs * value_bytes).reshape(-1, value_bytes)
    return np.repeat(stored, length, axis=0).reshape(-1)


def rle_encode_chunks(
    values: Bytes, value_bytes: int, counts: Int64s
) -> tuple[Bytes, Bytes, Int64s]:
    """Encode runs within chunks of `counts[i]` values.

    Returns the values of the runs, their lengths in one byte each, and the number of runs per
    chunk.
    """
    rows = _rows(values, value_bytes)
    check_partition(counts, len(rows), kernel="rle_encode_chunks")
    starts = _run_starts(rows)
    ends = np.cumsum(counts)
    starts[(ends - counts)[counts > 0]] = True
    first = np.flatnonzero(starts)
    length = np.diff(first, append=len(rows))
    parts = -(-length // RUN_MAX)
    last = np.cumsum(parts) - 1
    out = np.full(int(parts.sum()), RUN_MAX, np.uint8)
    out[last] = length - (parts - 1) * RUN_MAX
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(parts)])
    runs = before[np.searchsorted(first, ends)] - before[np.searchsorted(first, ends - counts)]
    return np.repeat(rows[first], parts, axis=0).reshape(-1), out, runs


def _rows(values: Bytes, value_bytes: int) -> npt.NDArray[Any]:
    check_whole_values(values, value_bytes)
    return values.reshape(-1, value_bytes)


def _run_starts(rows: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    starts = np.ones(len(rows), np.bool_)
    starts[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return starts
