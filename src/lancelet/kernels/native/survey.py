"""Repetition in groups by `native/src/survey.cpp`; `reference/survey.py` defines it."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, check_survey, check_whole_values
from lancelet.kernels.faults import checked
from lancelet.kernels.offsets import Offsets


def survey_words(values: Bytes, value_bytes: int, rows: int, most: int) -> tuple[Int64s, Int64s]:
    """Return how many runs each `rows` values have, and how many of them differ.

    Of different values no more than `most` + 1 are counted.
    """
    count = check_whole_values(values, value_bytes)
    check_survey(rows, most)
    runs, distinct = (np.empty(-(-count // rows), np.int64) for _ in range(2))
    status = _native.survey_words(as_bytes(values), value_bytes, rows, most, runs, distinct)
    checked(status, kernel="survey_words")
    return runs, distinct


def survey_strings(offsets: Offsets, data: Bytes, rows: int, most: int) -> tuple[Int64s, Int64s]:
    """Return the same of strings."""
    check_survey(rows, most)
    count = max(len(offsets) - 1, 0)
    runs, distinct = (np.empty(-(-count // rows), np.int64) for _ in range(2))
    status = _native.survey_strings(
        as_bytes(offsets), offsets.itemsize, as_bytes(data), rows, most, runs, distinct
    )
    checked(status, kernel="survey_strings")
    return runs, distinct
