"""bfloat16 columns go to pandas and come back."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.arrow import BFloat16, BFloat16Array, PandasBFloat16Array, bfloat16_array

NUMBERS = st.lists(st.none() | st.floats(-100, 100, width=16), min_size=1, max_size=8)


@given(NUMBERS)
def test_a_series_has_the_values_of_the_array(numbers):
    array = bfloat16_array(numbers)
    series = array.to_pandas()
    assert str(series.dtype) == "lance.bfloat16"
    assert series.tolist() == array.to_pylist()
    assert series.isna().tolist() == [number is None for number in numbers]
    back = pa.array(series)
    assert isinstance(back, BFloat16Array)
    assert back == array


@given(NUMBERS, st.data())
def test_rows_are_chosen_as_of_any_series(numbers, data):
    array = PandasBFloat16Array(bfloat16_array(numbers))
    expected = [None if n is None else BFloat16(n) for n in numbers]
    mask = data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
    chosen = [value for value, kept in zip(expected, mask, strict=True) if kept]
    assert list(array[np.array(mask)]) == chosen
    assert list(array[1:3]) == expected[1:3]
    assert array[len(array) - 1] == expected[-1]
    assert list(array.take([0, -1], allow_fill=True)) == [expected[0], None]
    assert list(array.take([0, -1], allow_fill=True, fill_value=1)) == [expected[0], BFloat16(1)]
    assert list(array.take([-1])) == expected[-1:]
    with pytest.raises(IndexError):
        array.take([len(numbers)])
    assert list(array.copy()) == expected
    assert array.nbytes >= 2 * len(numbers)


def test_a_series_is_made_by_the_name_of_the_dtype():
    """In a process of its own, for the reference may have registered its dtype in this one."""
    script = """
import pandas as pd
from lancelet.arrow import BFloat16, PandasBFloat16Array

series = pd.Series([1.1, None], dtype="lance.bfloat16")
assert isinstance(series.array, PandasBFloat16Array)
assert series.tolist() == [BFloat16(1.1), None]
both = pd.concat([series, series], ignore_index=True)
assert both.tolist() == [BFloat16(1.1), None] * 2
assert (both == both.copy()).tolist() == [True, True, True, True]
try:
    pd.Series([1.1], dtype="lance.bfloat17")
except TypeError:
    print("refused")
"""
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("refused\n", "")
