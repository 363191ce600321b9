"""Sorting rows in runs equals sorting them in memory."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.index.parts import sorted_runs
from lancelet.index.parts.ordering import argsort_strings, floats_as_keys, keys_as_floats, order_of
from lancelet.index.parts.sorted_runs import sorted_parts

VALUES = {
    pa.int32(): st.integers(-5, 5),
    pa.float64(): st.sampled_from([0.0, -0.0, 1.5, -math.inf, math.nan, -math.nan, 1e300]),
    pa.string(): st.text("ab\0é", max_size=30),
    pa.binary(): st.binary(max_size=40),
    pa.decimal128(6, 1): st.integers(-30, 30),
    pa.timestamp("us"): st.integers(-3, 3),
    pa.bool_(): st.booleans(),
}


@pytest.mark.parametrize("data_type", VALUES, ids=str)
@given(data=st.data())
def test_sorting_in_runs_is_sorting_at_once(data_type, data):
    found = data.draw(st.lists(st.lists(st.none() | VALUES[data_type], max_size=20), max_size=8))
    arrays = [pa.array(part, data_type) for part in found]
    bounds = np.cumsum([0, *map(len, arrays)])
    numbers = [
        np.arange(start, start + len(part)).astype(np.uint64)
        for start, part in zip(bounds, arrays, strict=False)
    ]
    whole = pa.concat_arrays([pa.array([], data_type), *arrays])
    order = order_of(data_type).sort(whole)
    parts = list(sorted_parts(zip(arrays, numbers, strict=True), data_type, run_bytes=120))
    values = pa.concat_arrays([pa.array([], data_type), *(part[0] for part in parts)])
    ids = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])
    assert ids.tolist() == order.tolist()
    assert str(values) == str(whole.take(pa.array(order)))


@pytest.mark.parametrize(
    "data_type", [pa.int32(), pa.float64(), pa.timestamp("us"), pa.uint8()], ids=str
)
@given(data=st.data())
def test_rows_that_come_in_order_are_handed_on(data_type, data):
    """All of them, or all but the last part, or with a null in it: the result is the same."""
    items = VALUES.get(data_type, st.integers(0, 9))
    found = data.draw(st.lists(items, max_size=30))
    ordered = pa.array(found, data_type)
    ordered = ordered.take(pa.array(order_of(data_type).sort(ordered)))
    last = pa.array(data.draw(st.lists(st.none() | items, max_size=2)), data_type)
    cut = data.draw(st.integers(0, len(ordered)))
    arrays = [ordered.slice(0, cut), ordered.slice(cut), last]
    whole = pa.concat_arrays(arrays)
    numbers = np.arange(len(whole)).astype(np.uint64)
    bounds = np.cumsum([0, *map(len, arrays)])
    parts = [
        (own, numbers[start : start + len(own)]) for own, start in zip(arrays, bounds, strict=False)
    ]
    order = order_of(data_type).sort(whole)
    is_ordered = order.tolist() == list(range(len(whole))) and not whole.null_count
    with pytest.MonkeyPatch.context() as patch:
        if is_ordered:
            patch.setattr(sorted_runs, "SpillFolder", None)  # nothing is written to be sorted
        got = list(sorted_parts(parts, data_type))
    assert np.concatenate([part[1] for part in got]).tolist() == order.tolist()
    assert str(pa.concat_arrays([part[0] for part in got])) == str(whole.take(pa.array(order)))


@given(st.lists(st.binary(max_size=3).map(lambda end: b"shared-beginning-of-all-" * 2 + end)))
def test_texts_are_sorted_as_python_sorts_bytes(values):
    expected = sorted(range(len(values)), key=lambda place: values[place])
    assert argsort_strings(pa.array(values, pa.binary())).tolist() == expected


@given(st.lists(st.binary(max_size=60)), st.integers(0, 3))
def test_slices_are_sorted_by_their_own_values(values, skipped):
    own = values[skipped:]
    expected = sorted(range(len(own)), key=lambda place: own[place])
    assert argsort_strings(pa.array(values, pa.large_binary()).slice(skipped)).tolist() == expected


@given(st.lists(st.none() | st.floats(width=32)))
def test_floats_come_back_from_their_keys(values):
    floats = pa.array(values, pa.float32())
    again = keys_as_floats(floats_as_keys(floats), pa.float32())
    assert again.is_null().equals(floats.is_null())
    bits = [array.drop_null().to_numpy().view(np.int32).tolist() for array in (floats, again)]
    assert bits[0] == bits[1]
