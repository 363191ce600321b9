"""Distinct counts and dictionary encoding by `native/src/distinct.cpp`; see the reference."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    Indices,
    as_bytes,
    check_distinct_limit,
    check_groups,
    check_whole_values,
    log_terms,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.offsets import Offsets


def count_distinct_fixed(
    values: Bytes, value_bytes: int, rows: int, max_count: int
) -> tuple[Int64s, Int64s]:
    """Return the number of runs and of distinct values of each `rows` values."""
    count = check_whole_values(values, value_bytes)
    check_groups(rows, max_count)
    runs, distinct = (np.empty(-(-count // rows), np.int64) for _ in range(2))
    status = _native.count_distinct_fixed(
        as_bytes(values), value_bytes, rows, max_count, runs, distinct
    )
    checked(status, kernel="count_distinct_fixed")
    return runs, distinct


def count_distinct_strings(
    offsets: Offsets, data: Bytes, rows: int, max_count: int
) -> tuple[Int64s, Int64s]:
    """Return the number of runs and of distinct strings of each `rows` strings."""
    check_groups(rows, max_count)
    count = max(len(offsets) - 1, 0)
    runs, distinct = (np.empty(-(-count // rows), np.int64) for _ in range(2))
    status = _native.count_distinct_strings(
        as_bytes(offsets), offsets.itemsize, as_bytes(data), rows, max_count, runs, distinct
    )
    checked(status, kernel="count_distinct_strings")
    return runs, distinct


def byte_entropy_sums(
    values: Bytes, value_bytes: int, rows: int, step: int
) -> npt.NDArray[np.float64]:
    """Return the entropy sums of the bytes of every `step`-th of each `rows` values."""
    count = check_whole_values(values, value_bytes)
    check_groups(rows, step - 1)
    out = np.empty((count // rows, 2))
    if not len(out):
        return out
    logs = log_terms((rows - 1) // step + 1)
    status = _native.byte_entropy_sums(
        as_bytes(values), value_bytes, rows, step, as_bytes(logs), out.reshape(-1)
    )
    checked(status, kernel="byte_entropy_sums")
    return out


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
