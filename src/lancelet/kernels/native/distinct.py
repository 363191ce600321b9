"""Distinct counts and dictionary encoding by `native/src/distinct.cpp`; see the reference."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    Indices,
    as_bytes,
    check_distinct_count,
    check_distinct_limit,
    check_step,
    check_whole_values,
    log_terms,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.offsets import Offsets


def count_distinct_fixed(values: Bytes, value_bytes: int, max_count: int) -> tuple[int, int]:
    """Return the number of runs and of distinct values."""
    check_distinct_count(check_whole_values(values, value_bytes), max_count)
    counts = np.empty(2, np.int64)
    status = _native.count_distinct_fixed(as_bytes(values), value_bytes, max_count, counts)
    checked(status, kernel="count_distinct_fixed")
    return int(counts[0]), int(counts[1])


def count_distinct_strings(offsets: Offsets, data: Bytes, max_count: int) -> tuple[int, int]:
    """Return the number of runs and of distinct strings."""
    check_distinct_count(len(offsets), max_count)
    counts = np.empty(2, np.int64)
    status = _native.count_distinct_strings(
        as_bytes(offsets), offsets.itemsize, as_bytes(data), max_count, counts
    )
    checked(status, kernel="count_distinct_strings")
    return int(counts[0]), int(counts[1])


def byte_entropy_sums(values: Bytes, value_bytes: int, step: int) -> tuple[float, float]:
    """Return the entropy sums of the bytes of every `step`-th value."""
    count = check_whole_values(values, value_bytes)
    check_step(count, step)
    out = np.empty(2)
    logs = log_terms((count - 1) // step + 1)
    status = _native.byte_entropy_sums(as_bytes(values), value_bytes, step, as_bytes(logs), out)
    checked(status, kernel="byte_entropy_sums")
    return float(out[0]), float(out[1])


def dictionary_encode_fixed(
    values: Bytes, value_bytes: int, max_count: int
) -> tuple[Indices, Int64s] | None:
    """Return the index of each value among the distinct values, and their first rows."""
    count = check_whole_values(values, value_bytes)
    check_distinct_limit(count, max_count)
    indices, first = np.empty(count, np.uint32), np.empty(min(count, max_count), np.int64)
    status = _native.dictionary_encode_fixed(
        as_bytes(values), value_bytes, as_bytes(indices), first
    )
    found = checked(status, kernel="dictionary_encode_fixed")
    return (indices, first[:found]) if found <= max_count else None


def dictionary_encode_strings(
    offsets: Offsets, data: Bytes, max_count: int
) -> tuple[Indices, Int64s] | None:
    """Return the index of each string among the distinct strings, and their first rows."""
    count = max(len(offsets) - 1, 0)
    check_distinct_limit(count, max_count)
    indices, first = np.empty(count, np.uint32), np.empty(min(count, max_count), np.int64)
    status = _native.dictionary_encode_strings(
        as_bytes(offsets), offsets.itemsize, as_bytes(data), as_bytes(indices), first
    )
    found = checked(status, kernel="dictionary_encode_strings")
    return (indices, first[:found]) if found <= max_count else None
