"""What version 2.0 cannot store is refused before a byte is written; damage never passes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancelet.encodings.base import RowIndices
from lancelet.encodings.v2_0.columns import columns_of
from lancelet.errors import CorruptDataError, LanceletError, UnsupportedError
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion

STRUCT = pa.struct([("a", pa.int8())])
PACKED = {"lance-encoding:packed": "true"}


@pytest.mark.parametrize(
    ("array", "metadata", "since"),
    [
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), None, "2.2"),
        (pa.array([{"a": 1}, None], STRUCT), None, "2.1"),
        (pa.array([[{"a": 1}, None]], pa.list_(STRUCT)), None, "2.1"),
        (pa.array([[{"a": 1}]], pa.list_(STRUCT, 1)), None, "2.2"),
        (pa.array([["x"]], pa.list_(pa.string(), 1)), None, "column='x'"),
        (pa.array([{"a": "x"}], pa.struct([("a", pa.string())])), PACKED, "2.2"),
        (pa.array([{"a": True}], pa.struct([("a", pa.bool_())])), PACKED, "2.2"),
        (pa.array([{"a": None}], STRUCT), PACKED, "nulls in packed structs"),
        (pa.array(["x"]), {"lance-encoding:blob": "true"}, "column='x'"),
    ],
)
def test_input_that_cannot_be_stored_is_rejected_by_column_and_version(
    store, array, metadata, since
) -> None:
    with pytest.raises(UnsupportedError, match=since) as raised:
        store(array, metadata=metadata)
    assert raised.value.facts["column"] in ("x", "x.a", "x.item")


def test_null_lists_hide_the_structs_under_them(store) -> None:
    # The struct under the null list is null too, but nobody can see it.
    items = pa.array([{"a": 1}, None], STRUCT)
    array = pa.ListArray.from_arrays(pa.array([0, 1, 2]), items, mask=pa.array([False, True]))
    assert store(array).read().to_pylist() == [[{"a": 1}], None]


def test_a_null_beyond_the_keys_of_a_dictionary_is_rejected(store) -> None:
    keys = pa.array([None, *range(128)], pa.int8())
    values = pa.array([str(i) for i in range(128)])
    with pytest.raises(UnsupportedError, match="wider keys"):
        store(pa.DictionaryArray.from_arrays(keys, values))


def test_parents_own_columns_and_packed_children_do_not() -> None:
    packed = pa.field("p", pa.struct([("q", pa.int8())]), metadata=PACKED)
    arrow = pa.struct([("a", pa.int8()), ("l", pa.list_(STRUCT)), packed])
    field = Schema.from_arrow(pa.schema([("s", arrow)])).fields[0]
    names = [owner.name for owner in columns_of(field, FileVersion.V2_0)]
    assert names == ["s", "a", "l", "item", "a", "p"]


ARRAYS = [
    pa.array([1, None, 3], pa.int32()),
    pa.array(["ab", None, "", "xyz"]),
    pa.array(["a", "b", None] * 40),
    pa.array([[1, 2], None, [], [3]], pa.list_(pa.int16())),
    pa.array([[["a"], []], None, [["b", None]]]),
    pa.array([{"a": 1, "b": [True]}, {"a": None, "b": None}]),
    pa.array([[1.0, None], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    pa.array(["x", None, "y"]).dictionary_encode(),
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(which=st.sampled_from(range(len(ARRAYS))), data=st.data())
def test_damage_is_an_error_or_a_sound_array(store, which, data) -> None:
    """Goal: no crash, hang or unsound array, whatever byte of a page or its message changes.

    Method: change bytes of the data, or of an encoding message, or the place of a buffer, then
    read everything and some rows. `read` of the fixture validates what comes back.
    """
    stored = store(ARRAYS[which])
    column = data.draw(st.sampled_from(stored.columns))
    kind = data.draw(st.sampled_from(["data", "encoding", "size", "position", "length"]))
    number = data.draw(st.integers(0, 255))
    page = column.pages[0]
    if kind == "data" and stored.data:
        stored.data[data.draw(st.integers(0, len(stored.data) - 1))] = number
    elif kind == "encoding":
        message = bytearray(page.encoding)
        message[data.draw(st.integers(0, len(message) - 1))] = number
        object.__setattr__(page, "encoding", bytes(message))
    elif kind == "length":
        object.__setattr__(page, "length", data.draw(st.sampled_from([0, 1, number, 2**40, -1])))
    elif len(page.size):
        place = data.draw(st.integers(0, len(page.size) - 1))
        getattr(page, kind)[place] = data.draw(st.sampled_from([0, 1, number, 2**62]))
    try:
        reader = stored.open()
        if reader.num_rows <= 1 << 20:
            stored.read()
        stored.read(RowIndices(np.array([0, reader.num_rows - 1])[: min(2, reader.num_rows)]))
    except LanceletError:
        pass


def test_lists_never_have_more_items_than_their_child(store) -> None:
    stored = store(pa.array([[1, 2], [3]], pa.list_(pa.int8())))
    object.__setattr__(stored.columns[1], "pages", ())
    with pytest.raises(CorruptDataError, match="more items than are stored"):
        stored.open()


def test_children_of_a_struct_have_its_rows(store) -> None:
    stored = store(pa.array([{"a": 1}, {"a": 2}], STRUCT))
    object.__setattr__(stored.columns[1].pages[0], "length", 1)
    with pytest.raises(CorruptDataError, match="child='a'"):
        stored.open()


def test_blobs_must_not_overlap(store) -> None:
    stored = store(
        pa.array([b"first", b"second"], pa.large_binary()),
        metadata={"lance-encoding:blob": "true"},
    )
    descriptors = stored.columns[0].pages[0].position[0]
    stored.data[descriptors + 8] = 200
    with pytest.raises(CorruptDataError, match="overlap"):
        stored.read()


def test_a_blob_column_without_rows_has_no_pages(store) -> None:
    nothing = pa.array([], pa.large_binary())
    stored = store(nothing, metadata={"lance-encoding:blob": "true"})
    assert stored.columns[0].pages == ()
    assert stored.read().equals(nothing)
