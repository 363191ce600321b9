"""How often values of many small groups repeat, such as the columns of a wide table.

values [3 3 1 | 7 8 7]  rows 3    runs [2 3]  distinct [2 2]
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import Indices, check_index, check_survey, check_whole_values
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets


def survey_words(values: Bytes, value_bytes: int, rows: int, most: int) -> tuple[Int64s, Int64s]:
    """Return how many runs each `rows` values have, and how many of them differ.

    Of different values no more than `most` + 1 are counted.
    """
    count = check_whole_values(values, value_bytes)
    check_survey(rows, most)
    each = [values[at * value_bytes : (at + 1) * value_bytes].tobytes() for at in range(count)]
    return _survey(each, rows, most)


def survey_strings(offsets: Offsets, data: Bytes, rows: int, most: int) -> tuple[Int64s, Int64s]:
    """Return the same of strings."""
    check_survey(rows, most)
    return _survey(_strings(offsets, data, kernel="survey_strings"), rows, most)


def index_words(values: Bytes, value_bytes: int, most: int) -> tuple[Indices, Int64s] | None:
    """Return which of the different values each is, and the rows where these come first.

    Values are numbered in the order in which they come first. If more than `most` differ, there
    is nothing to return.
    """
    count = check_whole_values(values, value_bytes)
    check_index(count, most)
    each = [values[at * value_bytes : (at + 1) * value_bytes].tobytes() for at in range(count)]
    return _index(each, most)


def index_strings(offsets: Offsets, data: Bytes, most: int) -> tuple[Indices, Int64s] | None:
    """Return the same of strings."""
    check_index(max(len(offsets) - 1, 0), most)
    return _index(_strings(offsets, data, kernel="index_strings"), most)


def _strings(offsets: Offsets, data: Bytes, *, kernel: str) -> list[bytes]:
    count = max(len(offsets) - 1, 0)
    start, stop = offsets[:count].astype(np.int64), offsets[1:].astype(np.int64)
    bad = (start < 0) | (stop < start) | (stop > data.nbytes)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, place=int(bad.argmax()))
    return [
        data[first:last].tobytes()
        for first, last in zip(start.tolist(), stop.tolist(), strict=True)
    ]


def _index(values: Sequence[bytes], most: int) -> tuple[Indices, Int64s] | None:
    first: dict[bytes, int] = {}
    for row, value in enumerate(values):
        first.setdefault(value, row)
    if len(first) > most:
        return None
    number = {value: place for place, value in enumerate(first)}
    indices = np.array([number[value] for value in values], np.uint32)
    return indices, np.array([*first.values()], np.int64)


def _survey(values: Sequence[bytes], rows: int, most: int) -> tuple[Int64s, Int64s]:
    groups = [values[start : start + rows] for start in range(0, len(values), rows)]
    runs = [1 + sum(a != b for a, b in itertools.pairwise(group)) for group in groups]
    distinct = [min(len(set(group)), most + 1) for group in groups]
    return np.array(runs, np.int64), np.array(distinct, np.int64)
