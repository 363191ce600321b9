"""Casts that may be, casts that may not, and values within structs and lists."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.change.columns.alter import cast_values, check_castable
from lancelet.change.columns.fields import ColumnError
from lancelet.format.schema import Schema

FAMILIES = [
    [pa.int8(), pa.int64(), pa.uint32()],
    [pa.float16(), pa.float64()],
    [pa.string(), pa.large_string()],
    [pa.binary(), pa.large_binary()],
    [pa.decimal128(10, 2), pa.decimal256(50, 3)],
    [pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_(pa.int32(), 2)],
    [pa.date32(), pa.timestamp("us")],
    [pa.bool_()],
]


@pytest.mark.parametrize("before", [kind for family in FAMILIES for kind in family], ids=str)
@pytest.mark.parametrize("after", [kind for family in FAMILIES for kind in family], ids=str)
def test_a_column_may_only_become_a_type_of_its_own_family(before, after):
    is_family = any(before in family and after in family for family in FAMILIES)
    if is_family:
        check_castable("c", before, after)
    else:
        with pytest.raises(ColumnError, match='Cannot cast column "c"') as refused:
            check_castable("c", before, after)
        assert isinstance(refused.value, OSError | ValueError)


def test_lists_of_integers_become_vectors():
    before, after = pa.list_(pa.int64()), pa.list_(pa.float32(), 2)
    check_castable("c", before, after)
    values = cast_values(pa.array([[1, 2], None, [3, 4]], before), *fields(before, after), "c")
    assert values.type == after
    assert values.to_pylist() == [[1.0, 2.0], None, [3.0, 4.0]]
    with pytest.raises(ColumnError, match="Cannot cast"):
        check_castable("c", before, pa.list_(pa.float32()))


def test_types_without_a_kernel_are_rejected():
    with pytest.raises(ColumnError):
        check_castable("c", pa.time32("s"), pa.timestamp("us"))


def fields(before, after):
    old = Schema.from_arrow(pa.schema([("c", before)])).fields[0]
    return old, Schema.from_arrow(pa.schema([("c", after)]), first_id=10).fields[0]


ROWS = st.lists(
    st.none() | st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-9, 9)})),
    max_size=8,
)


@given(ROWS, st.integers(0, 3))
def test_values_within_lists_and_structs_are_cast_where_they_are(rows, start):
    before = pa.list_(pa.struct([("x", pa.int64())]))
    old = Schema.from_arrow(pa.schema([("c", before)])).fields[0]
    item = old.children[0]
    leaf = Schema.from_arrow(pa.schema([("x", pa.int8())]), first_id=9).fields[0]
    new = old.with_children([item.with_children([leaf])])
    values = pa.array(rows, before).slice(start)
    cast = cast_values(values, old, new, "c")
    assert cast.to_pylist() == values.to_pylist()
    assert cast.type.value_type.field("x").type == pa.int8()


MAPS = st.lists(
    st.none() | st.dictionaries(st.text(max_size=2), st.none() | st.integers(-9, 9), max_size=3),
    max_size=6,
)


@given(MAPS, st.integers(0, 3))
def test_values_of_maps_are_cast_where_they_are(rows, start):
    before = pa.map_(pa.string(), pa.int64())
    old = Schema.from_arrow(pa.schema([("c", before)])).fields[0]
    (entries,) = old.children
    key, _ = entries.children
    value = Schema.from_arrow(pa.schema([("value", pa.int8())]), first_id=9).fields[0]
    new = old.with_children([entries.with_children([key, value])])
    values = pa.array([row and list(row.items()) for row in rows], before).slice(start)
    cast = cast_values(values, old, new, "c")
    assert cast.to_pylist() == values.to_pylist()
    assert cast.type.item_type == pa.int8()


FIXED = st.lists(st.none() | st.lists(st.none() | st.integers(-9, 9), min_size=2, max_size=2))


@given(FIXED, st.integers(0, 3))
def test_structs_in_lists_of_fixed_size_are_cast_where_they_are(rows, start):
    before = pa.list_(pa.struct([("x", pa.int64())]), 2)
    old = Schema.from_arrow(pa.schema([("c", before)])).fields[0]
    leaf = Schema.from_arrow(pa.schema([("x", pa.int8())]), first_id=9).fields[0]
    new = old.with_children([old.children[0].with_children([leaf])])
    shown = [row and [{"x": value} for value in row] for row in rows]
    values = pa.array(shown, before).slice(start)
    cast = cast_values(values, old, new, "c")
    assert cast.to_pylist() == values.to_pylist()
    assert cast.type.value_type.field("x").type == pa.int8()


def test_a_value_that_does_not_fit_is_named():
    with pytest.raises(ColumnError, match="1000"):
        cast_values(pa.array([1, 1000]), *fields(pa.int64(), pa.int8()), "c")


def test_a_time_that_would_be_cut_is_rejected():
    with pytest.raises(ColumnError):
        cast_values(
            pa.array([1], pa.timestamp("ns")),
            *fields(pa.timestamp("ns"), pa.timestamp("s")),
            "c",
        )
