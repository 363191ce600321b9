"""Run and distinct counts, byte entropy, and dictionary encoding.

For example:

    values [3 3 1]    runs 2, distinct 2
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import (
    Indices,
    check_distinct_count,
    check_distinct_limit,
    check_step,
    check_whole_values,
    log_terms,
)
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets


def count_distinct_fixed(values: Bytes, value_bytes: int, max_count: int) -> tuple[int, int]:
    """Return the number of runs and of distinct values, up to `max_count` + 1."""
    count = check_whole_values(values, value_bytes)
    check_distinct_count(count, max_count)
    each = [values[at * value_bytes : (at + 1) * value_bytes].tobytes() for at in range(count)]
    return _count(each, max_count)


def count_distinct_strings(offsets: Offsets, data: Bytes, max_count: int) -> tuple[int, int]:
    """Return the number of runs and of distinct strings, up to `max_count` + 1."""
    check_distinct_count(len(offsets), max_count)
    return _count(_strings(offsets, data, kernel="count_distinct_strings"), max_count)


def byte_entropy_sums(values: Bytes, value_bytes: int, step: int) -> tuple[float, float]:
    """Return the entropy sums of the bytes of every `step`-th value.

    These are the sum of n log2 n over the frequencies of each byte by its offset in the value, and
    the same for the differences of successive bytes.

    >>> byte_entropy_sums(np.array([7, 7, 9, 9], np.uint8), 1, 1)
    (4.0, 4.754887502163468)
    """
    check_step(check_whole_values(values, value_bytes), step)
    sampled = values.reshape(-1, value_bytes)[::step].T
    logs = log_terms(sampled.shape[1])
    changes = np.diff(sampled, axis=1, prepend=sampled[:, :1])
    return _sum_of_logs(sampled, logs), _sum_of_logs(changes, logs)


def _sum_of_logs(planes: npt.NDArray[np.uint8], logs: npt.NDArray[np.float64]) -> float:
    first = np.arange(len(planes))[:, None] * 256
    found = np.bincount((planes + first).reshape(-1), minlength=len(planes) * 256)
    # Summed in order, so that both implementations round equally.
    return float(logs[found].cumsum()[-1])


def dictionary_encode_fixed(
    values: Bytes, value_bytes: int, max_count: int
) -> tuple[Indices, Int64s] | None:
    """Return the index of each value among the distinct values, and their first rows.

    Distinct values are in order of first occurrence. Return None for more than `max_count`.
    """
    count = check_whole_values(values, value_bytes)
    check_distinct_limit(count, max_count)
    each = [values[at * value_bytes : (at + 1) * value_bytes].tobytes() for at in range(count)]
    return _index(each, max_count)


def dictionary_encode_strings(
    offsets: Offsets, data: Bytes, max_count: int
) -> tuple[Indices, Int64s] | None:
    """Return the index of each string among the distinct strings, and their first rows."""
    check_distinct_limit(max(len(offsets) - 1, 0), max_count)
    return _index(_strings(offsets, data, kernel="dictionary_encode_strings"), max_count)


def _strings(offsets: Offsets, data: Bytes, *, kernel: str) -> list[bytes]:
    count = max(len(offsets) - 1, 0)
    start, stop = offsets[:count].astype(np.int64), offsets[1:].astype(np.int64)
    bad = (start < 0) | (stop < start) | (stop > data.nbytes)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))
    return [
        data[first:last].tobytes()
        for first, last in zip(start.tolist(), stop.tolist(), strict=True)
    ]


def _index(values: Sequence[bytes], max_count: int) -> tuple[Indices, Int64s] | None:
    first: dict[bytes, int] = {}
    for row, value in enumerate(values):
        first.setdefault(value, row)
    if len(first) > max_count:
        return None
    number = {value: index for index, value in enumerate(first)}
    indices = np.array([number[value] for value in values], np.uint32)
    return indices, np.array([*first.values()], np.int64)


def _count(values: Sequence[bytes], max_count: int) -> tuple[int, int]:
    changes = sum(before != after for before, after in itertools.pairwise(values))
    return bool(values) + changes, min(len(set(values)), max_count + 1)
