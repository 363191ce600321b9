"""New fields take the shape of the structs and lists that they go into."""

import pyarrow as pa
import pytest

from lancelet.change.columns.fields import ColumnError
from lancelet.change.columns.nested import GivenRows, values_for
from lancelet.format.schema import Schema


def shape(new, present, given):
    field = Schema.from_arrow(pa.schema([("c", new)])).fields[0]
    rows = pa.record_batch({"c": given})
    return values_for(field, present, GivenRows(rows).child("c"))


def test_structs_that_are_null_stay_null_and_others_do_not_become_it():
    present = pa.array([{"x": 1}, None, {"x": 3}])
    given = pa.array([{"w": 7}, {"w": 8}, None])
    values = shape(given.type, present, given)
    assert values.to_pylist() == [{"w": 7}, None, {"w": None}]


def test_lists_that_are_null_stay_null():
    present = pa.array([[{"x": 1}, {"x": 2}], [], None])
    given = pa.array([[{"w": 5}, {"w": 6}], None, []])
    assert shape(given.type, present, given).to_pylist() == [[{"w": 5}, {"w": 6}], [], None]


def test_slices_are_shaped_by_their_own_rows():
    present = pa.array([[{"x": 9}], [{"x": 1}, {"x": 2}], None, [{"x": 4}]]).slice(1)
    given = pa.array([[{"w": 0}] * 3, [{"w": 5}, {"w": 6}], [], [{"w": 7}]]).slice(1)
    expected = [[{"w": 5}, {"w": 6}], None, [{"w": 7}]]
    assert shape(given.type, present, given).to_pylist() == expected


def test_lists_of_another_length_are_rejected_by_name():
    present, given = pa.array([[{"x": 1}]]), pa.array([[{"w": 1}, {"w": 2}]])
    with pytest.raises(ColumnError, match="column='c'"):
        shape(given.type, present, given)


def test_fields_deep_within_are_reached():
    present = pa.array([{"l": [{"x": 1}, None]}, {"l": None}])
    given = pa.array([{"l": [{"w": 1}, {"w": 2}]}, {"l": []}])
    values = shape(given.type, present, given)
    assert values.to_pylist() == [{"l": [{"w": 1}, None]}, {"l": None}]
