"""Expanding live rows to all rows preserves their values and list lengths."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancelet.change.columns.expand import expand_field, expand_rows
from lancelet.format.schema import Schema

MASKS = st.lists(st.booleans(), min_size=1, max_size=20).filter(any)
LISTS = st.lists(st.none() | st.lists(st.integers(-9, 9), max_size=3), min_size=1, max_size=20)


def column(schema):
    return Schema.from_arrow(schema).fields[0]


@given(MASKS)
def test_live_rows_keep_their_values(live):
    mask = np.array(live)
    values = pa.record_batch({"a": list(range(sum(live))), "b": [str(i) for i in range(sum(live))]})
    spread = expand_rows(values, mask)
    assert spread.num_rows == len(live)
    assert spread.filter(pa.array(mask)).equals(values)


@given(LISTS, st.data())
def test_lists_of_all_rows_are_as_long_as_those_there(rows, data):
    live = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    present = pa.array(
        [row and [{"x": item} for item in row] for row in rows],
        pa.list_(pa.struct([("x", pa.int64())])),
    )
    wanted = pa.list_(pa.struct([("v", pa.int64())]))
    own = [
        None if row is None else [{"v": 2 * item} for item in row]
        for row, is_live in zip(rows, live, strict=True)
        if is_live
    ]
    field = column(pa.schema([("l", wanted)]))
    spread = expand_field(field, pa.array(own, wanted), present, live)
    assert spread.filter(pa.array(live)).to_pylist() == own
    assert [row and len(row) for row in spread.to_pylist()] == [row and len(row) for row in rows]


def test_required_fields_of_deleted_rows_have_values_even_if_no_live_row_has_one():
    kind = pa.list_(pa.struct([pa.field("v", pa.string(), nullable=False)]))
    present = pa.array([[{"x": 1}, {"x": 2}], []], pa.list_(pa.struct([("x", pa.int64())])))
    field = column(pa.schema([("l", kind)]))
    spread = expand_field(field, pa.array([[]], kind), present, np.array([False, True]))
    assert spread.to_pylist() == [[{"v": ""}, {"v": ""}], []]
