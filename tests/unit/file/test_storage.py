"""Between users' arrays and stored ones: inverses where both mean the same, errors where not."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.file.storage import (
    cast_values,
    check_nulls,
    from_storage,
    has_json,
    stored_column,
    stored_columns,
    to_storage,
)
from lancelet.format.field import Field
from lancelet.format.version import FileVersion
from tests.kit.strategies import (
    Distribution,
    column_types,
    distributions,
    random_array,
    stored_table,
)


def field_of(data_type, **options):
    return Field.from_arrow(pa.field("x", data_type, **options), itertools.count())


def same(found, expected):
    assert found.type == expected.type
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


@given(column_types(FileVersion.V2_2), distributions(), st.integers(0, 1 << 32), st.integers(0, 9))
def test_stored_values_are_read_back(data_type, spread, seed, start):
    array = random_array(np.random.default_rng(seed), data_type, 30, spread)[start:]
    field = field_of(data_type)
    stored = to_storage(array, field)
    assert stored.type == field.storage_type
    expected = stored_table(pa.table({"x": array}))["x"].combine_chunks()
    same(from_storage(stored, field), expected)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: inner,
        pa.list_,
        pa.large_list,
        lambda inner: pa.struct([("a", inner), ("b", pa.int8())]),
        lambda inner: pa.map_(pa.string(), inner),
        lambda inner: pa.list_(pa.struct([("a", pa.list_(inner))])),
    ],
)
def test_json_is_converted_at_any_depth(wrap):
    data_type = wrap(pa.json_(pa.string()))
    field = field_of(data_type)
    assert has_json(field)
    spread = Distribution(50, False, 3, 3, 0.2)
    array = random_array(np.random.default_rng(4), data_type, 60, spread)[7:50]
    stored = to_storage(array, field)
    assert stored.type == field.storage_type
    found = from_storage(stored, field)
    assert found.type == data_type
    # Keys are in order and spaces are gone; in these documents only that.
    assert repr(found.to_pylist()).replace(
        '{"a":300,"b":{"c":[]}}', '{"b":{"c":[]},"a":300}'
    ) == repr(array.to_pylist())


@pytest.mark.parametrize(
    ("given_type", "wanted"),
    [
        (pa.int64(), pa.int32()),
        (pa.string(), pa.binary()),
        (pa.list_(pa.int8()), pa.large_list(pa.int8())),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())])),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int8()), ("b", pa.int8())])),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.string(), pa.json_(pa.string())),
    ],
)
def test_values_of_another_meaning_are_rejected(given_type, wanted):
    with pytest.raises(SchemaMismatchError, match="do not have the type") as caught:
        to_storage(pa.nulls(2, given_type), field_of(wanted))
    assert caught.value.facts["field"] == "x"
    assert caught.value.facts["found"] == str(given_type)


def test_names_of_list_items_do_not_matter():
    array = pa.array([[1], None], pa.list_(pa.field("element", pa.int8())))
    same(
        to_storage(array, field_of(pa.list_(pa.int8()))), pa.array([[1], None], pa.list_(pa.int8()))
    )


def strict(name, data_type):
    return pa.field(name, data_type, nullable=False)


@pytest.mark.parametrize(
    ("data_type", "good", "bad"),
    [
        (pa.struct([strict("a", pa.int8())]), [{"a": 1}, None], [{"a": None}]),
        (pa.list_(strict("item", pa.int8())), [[1], None, []], [[1, None]]),
        (
            pa.map_(pa.string(), strict("value", pa.int8())),
            [[("k", 1)], None],
            [[("k", 1)], [("k", None)]],
        ),
        (
            pa.large_list(pa.struct([strict("a", pa.string()), pa.field("b", pa.int8())])),
            [[{"a": "x", "b": None}, None]],
            [[{"a": "x", "b": None}, {"a": None, "b": 1}]],
        ),
    ],
)
def test_nulls_are_rejected_where_the_schema_forbids_them(data_type, good, bad):
    field = field_of(data_type)
    check_nulls(pa.array(good, data_type), field)
    check_nulls(pa.array([*bad, *good], data_type)[len(bad) :], field)
    with pytest.raises(InvalidInputError, match="non-nullable"):
        check_nulls(pa.array([*good, *bad], data_type), field)


def test_a_missing_column_is_named():
    with pytest.raises(InvalidInputError, match="does not contain a column") as caught:
        stored_column(pa.table({"y": pa.array([1])}), field_of(pa.int64()))
    assert caught.value.facts == {"field": "x", "found": ["y"]}


def test_columns_are_found_by_name_in_any_order():
    batch = pa.record_batch({"b": ["x"], "a": pa.array([1], pa.int8()), "c": [None]})
    fields = [
        Field.from_arrow(pa.field("a", pa.int8()), itertools.count()),
        Field.from_arrow(pa.field("b", pa.string(), nullable=False), itertools.count(1)),
    ]
    for rows in (batch, batch.select(["a", "b"]), pa.Table.from_batches([batch])):
        (numbers,), (texts,) = stored_columns(rows, fields)
        assert (numbers.to_pylist(), texts.to_pylist()) == ([1], ["x"])


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["the columns", "others too"])
def test_columns_in_order_are_checked_as_well(names):
    batch = pa.record_batch({"a": pa.array([None], pa.int8()), "b": ["x"]}).select(names)
    required = Field.from_arrow(pa.field("a", pa.int8(), nullable=False), itertools.count())
    other = Field.from_arrow(pa.field("a", pa.string()), itertools.count())
    with pytest.raises(InvalidInputError, match="non-nullable"):
        stored_columns(batch, [required])
    with pytest.raises(SchemaMismatchError):
        stored_columns(batch, [other])


NULLS = [[None] * (row % 4) if row % 5 else None for row in range(40)]
STRUCTS = [None if items is None else {"a": str(len(items)), "b": items} for items in NULLS]
MAPS = [None if items is None else list(zip("abc", items, strict=False)) for items in NULLS]


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize(
    ("values", "given", "wanted"),
    [
        (NULLS, pa.list_(pa.field("element", pa.null())), pa.list_(pa.null())),
        (NULLS, pa.large_list(pa.field("element", pa.null())), pa.large_list(pa.null())),
        (
            STRUCTS,
            pa.struct([("a", pa.string_view()), ("b", pa.list_(pa.null()))]),
            pa.struct([("a", pa.string()), ("b", pa.list_(pa.null()))]),
        ),
        (
            MAPS,
            pa.map_(pa.string_view(), pa.null()),
            pa.map_(pa.string(), pa.null()),
        ),
        (
            [None if items is None else [{"a": "x", "b": items}] * 2 for items in NULLS],
            pa.list_(pa.struct([("a", pa.string_view()), ("b", pa.list_(pa.null()))]), 2),
            pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.null()))]), 2),
        ),
    ],
)
def test_lists_keep_their_nulls_when_they_are_cast(values, given, wanted, start):
    """Arrow's cast makes the column of nulls as long as the outermost array."""
    array = pa.array(values, given)[start:]
    found = cast_values(array, wanted)
    found.validate(full=True)
    assert found.type == wanted
    assert found.to_pylist() == array.to_pylist()
