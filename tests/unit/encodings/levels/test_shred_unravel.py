"""Shredding and unravelling are inverses, for nulls, empty lists, slices and hidden values."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.encodings.base import FileVersion
from lancelet.encodings.levels import (
    LayerKind,
    Layers,
    check_layers,
    check_levels,
    merge,
    nest,
    paths,
    shred,
    unravel,
    visible_validity,
)
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.field import Field

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
TYPES = [
    pa.int32(),
    pa.struct([("x", pa.int32())]),
    STRUCT,
    pa.struct([("s", STRUCT), ("z", pa.bool_())]),
    pa.list_(pa.int32()),
    pa.large_list(pa.string()),
    pa.list_(STRUCT),
    pa.list_(pa.list_(pa.int32())),
    pa.list_(pa.struct([("a", pa.list_(pa.list_(STRUCT))), ("b", pa.int8())])),
    pa.struct([("a", pa.list_(pa.int32())), ("b", pa.large_list(STRUCT)), ("c", pa.int64())]),
    pa.map_(pa.string(), pa.int32()),
    pa.list_(pa.map_(pa.int8(), pa.list_(pa.int32()))),
    pa.list_(STRUCT, 2),
    pa.list_(pa.struct([("l", pa.list_(pa.int8())), ("n", pa.list_(STRUCT, 3))]), 2),
    pa.null(),
    pa.list_(pa.null()),
]


def field_of(data_type):
    return Field.from_arrow(pa.field("f", data_type), itertools.count())


def values_of(data_type):
    """Python values of an Arrow type, with nulls wherever Arrow allows them."""
    if pa.types.is_null(data_type):
        return st.none()
    if pa.types.is_struct(data_type):
        keys = {f.name: values_of(f.type) for f in data_type}
        inner = st.fixed_dictionaries(keys)
    elif pa.types.is_map(data_type):
        pair = st.tuples(
            values_of(data_type.key_type).filter(lambda k: k is not None),
            values_of(data_type.item_type),
        )
        inner = st.lists(pair, max_size=3)
    elif pa.types.is_fixed_size_list(data_type):
        size = data_type.list_size
        inner = st.lists(values_of(data_type.value_type), min_size=size, max_size=size)
    elif pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        inner = st.lists(values_of(data_type.value_type), max_size=3)
    elif pa.types.is_string(data_type):
        inner = st.text(max_size=2)
    elif pa.types.is_boolean(data_type):
        inner = st.booleans()
    else:
        inner = st.integers(-100, 100)
    return st.none() | inner


def there_and_back(array):
    node = nest(field_of(array.type), FileVersion.V2_2)
    leaves = shred(node, array)
    rebuilt = []
    for path, leaf in zip(paths(node), leaves, strict=True):
        check_layers(path, leaf.layers)
        check_levels(leaf.layers, leaf.repetition, leaf.definition)
        rebuilt.append(
            unravel(
                path,
                leaf.layers,
                repetition=leaf.repetition,
                definition=leaf.definition,
                values=leaf.values,
            )
        )
    return merge(node, rebuilt)


@pytest.mark.parametrize("data_type", TYPES, ids=str)
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_unravel_undoes_shred(data_type, data):
    rows = data.draw(st.lists(values_of(data_type), max_size=8))
    array = pa.array(rows, data_type)
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    array = array.slice(start, stop - start)
    back = there_and_back(array)
    back.validate(full=True)
    assert back.type == array.type
    assert back.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("start", [0, 1])
def test_slices_of_nested_fixed_size_lists_lose_no_values_to_null_lists(start):
    inner = pa.FixedSizeListArray.from_arrays(pa.array(range(60), pa.int8()), 2)
    items = pa.FixedSizeListArray.from_arrays(inner, 3)[start:]
    offsets, null = pa.array([0, 1, 2, 4], pa.int32()), pa.array([False, True, False])
    array = pa.ListArray.from_arrays(offsets, items, mask=null)
    assert there_and_back(array).to_pylist() == array.to_pylist()


def test_a_null_column_that_claims_to_have_no_nulls_has_them():
    field = field_of(pa.struct([("x", pa.null())]))
    field = field.with_children(replace(child, nullable=False) for child in field.children)
    assert nest(field, FileVersion.V2_2).data_type == pa.struct([("x", pa.null())])


def test_levels_are_those_of_the_specification():
    array = pa.array([[7, 8], None, [], [None]], pa.list_(pa.int32()))
    (leaf,) = shred(nest(field_of(array.type), FileVersion.V2_2), array)
    assert leaf.repetition.tolist() == [1, 0, 1, 1, 1]
    assert leaf.definition.tolist() == [0, 0, 2, 3, 1]
    assert leaf.layers.kinds == (LayerKind.NULLABLE_ITEM, LayerKind.NULL_AND_EMPTY_LIST)
    assert leaf.values.to_pylist() == [7, 8, None]
    assert leaf.num_entries == 5


def test_three_list_layers_repeat_as_in_the_documentation():
    rows = [[[[0, 1], [], [2]], [[3]], []], [], [[[4]]]]
    array = pa.array(rows, pa.list_(pa.list_(pa.list_(pa.int8()))))
    (leaf,) = shred(nest(field_of(array.type), FileVersion.V2_2), array)
    assert leaf.repetition.tolist() == [3, 0, 1, 1, 2, 2, 3, 3]


def test_a_full_column_has_no_levels():
    (leaf,) = shred(nest(field_of(pa.int32()), FileVersion.V2_2), pa.array([1, 2], pa.int32()))
    assert leaf.repetition is None
    assert leaf.definition is None
    assert leaf.layers.def_max == 0
    assert leaf.num_entries == 2


def test_items_of_null_lists_are_not_stored():
    items = pa.array([1, 2, 3, 4], pa.int32())
    mask = pa.array([False, True, False])
    array = pa.ListArray.from_arrays(pa.array([0, 1, 3, 4], pa.int32()), items, mask=mask)
    (leaf,) = shred(nest(field_of(array.type), FileVersion.V2_2), array)
    assert leaf.values.to_pylist() == [1, 4]
    assert there_and_back(array).to_pylist() == [[1], None, [4]]


def test_lists_under_a_null_struct_are_left_behind():
    lists = pa.array([[1], [2, 3], [4]], pa.list_(pa.int32()))
    array = pa.StructArray.from_arrays([lists], ["l"], mask=pa.array([False, True, False]))
    (leaf,) = shred(nest(field_of(array.type), FileVersion.V2_2), array)
    assert leaf.values.to_pylist() == [1, 4]
    # The list has its own level for nulls, as the reference requires.
    assert leaf.definition.tolist() == [0, 2, 0]
    assert there_and_back(array).to_pylist() == [{"l": [1]}, None, {"l": [4]}]


def test_fields_of_a_null_struct_may_be_null():
    """The reference treats values of a layer without nulls as valid in all contexts."""
    inner = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["x"])
    outer = pa.StructArray.from_arrays([inner], ["s"], mask=pa.array([False, True, False]))
    (leaf,) = shred(nest(field_of(outer.type), FileVersion.V2_2), outer)
    assert [layer.kind for layer in leaf.layers.each] == [LayerKind.NULLABLE_ITEM] * 3
    assert leaf.definition.tolist() == [0, 3, 0]


def test_null_dictionary_items_are_nulls():
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    (leaf,) = shred(nest(field_of(array.type), FileVersion.V2_2), array)
    assert leaf.definition.tolist() == [0, 1, 1]


def test_fixed_lists_of_structs_cannot_lie_in_null_lists():
    data_type = pa.list_(pa.list_(STRUCT, 1))
    node = nest(field_of(data_type), FileVersion.V2_2)
    with pytest.raises(UnsupportedError):
        shred(node, pa.array([None, [[{"x": 1, "y": ""}]]], data_type))


def test_maps_need_2_2():
    with pytest.raises(UnsupportedError, match=r"2\.2"):
        nest(field_of(pa.map_(pa.string(), pa.int8())), FileVersion.V2_1)


def test_visible_validity_counts_only_slots():
    layers = Layers.of([LayerKind.NULLABLE_ITEM, LayerKind.EMPTYABLE_LIST])
    definition = np.array([0, 2, 1, 0], np.uint16)
    assert visible_validity(layers, definition).tolist() == [0b101]


@given(
    repetition=st.lists(st.integers(0, 3), max_size=12),
    definition=st.lists(st.integers(0, 6), max_size=12),
    values=st.integers(0, 12),
)
@settings(deadline=None)
def test_any_levels_are_sound_or_corrupt(repetition, definition, values):
    data_type = pa.list_(pa.struct([("x", pa.list_(pa.int8()))]))
    node = nest(field_of(data_type), FileVersion.V2_2)
    (path,) = paths(node)
    layers = Layers.of(
        [
            LayerKind.NULLABLE_ITEM,
            LayerKind.NULL_AND_EMPTY_LIST,
            LayerKind.NULLABLE_ITEM,
            LayerKind.EMPTYABLE_LIST,
        ]
    )
    rep, definition = np.array(repetition, np.uint16), np.array(definition, np.uint16)
    try:
        check_levels(layers, rep, definition)
        array = unravel(
            path,
            layers,
            repetition=rep,
            definition=definition,
            values=pa.array([0] * values, pa.int8()),
        )
    except CorruptDataError:
        return
    array.validate(full=True)


def test_layers_must_be_those_of_the_type():
    node = nest(field_of(pa.list_(pa.int8())), FileVersion.V2_2)
    (path,) = paths(node)
    with pytest.raises(CorruptDataError, match="layers"):
        check_layers(path, Layers.of([LayerKind.ALL_VALID_ITEM]))


def test_siblings_that_disagree_are_corrupt():
    node = nest(field_of(pa.list_(STRUCT)), FileVersion.V2_2)
    one = pa.array([[{"x": 1}], []], pa.list_(pa.struct([("x", pa.int32())])))
    other = pa.array([[], [{"y": "a"}]], pa.list_(pa.struct([("y", pa.string())])))
    with pytest.raises(CorruptDataError, match="inconsistent"):
        merge(node, [one, other])


POINTS = [pa.struct([("x", pa.int32())]), pa.struct([("y", pa.string())])]


@pytest.mark.parametrize(
    ("wrap", "value"),
    [
        (lambda inner: inner, {}),
        (pa.list_, [{}]),
        (lambda inner: pa.list_(inner, 1), [{}]),
        (lambda inner: pa.struct([("s", inner)]), {"s": {}}),
    ],
    ids=["struct", "list", "list of a fixed size", "structs"],
)
def test_siblings_that_disagree_on_nulls_are_corrupt(wrap, value):
    both = pa.struct([*POINTS[0], *POINTS[1]])
    node = nest(field_of(wrap(both)), FileVersion.V2_2)
    agreed = [pa.array([value, None, value], wrap(kind)) for kind in POINTS]
    assert merge(node, agreed).is_valid().to_pylist() == [True, False, True]
    for odd in ([value, value, value], [None, value, value]):
        with pytest.raises(CorruptDataError, match="inconsistent"):
            merge(node, [agreed[0], pa.array(odd, wrap(POINTS[1]))])


def nested(validity, values):
    """Return fixed-size lists of structs, with the validity of both."""
    child = pa.array([1] * len(values), pa.int32())
    mask = pa.array([not value for value in values])
    structs = pa.StructArray.from_arrays([child], names=["x"], mask=mask)
    bits = pa.py_buffer(np.packbits(validity, bitorder="little").tobytes())
    kind = pa.list_(structs.type, len(values) // len(validity))
    return pa.Array.from_buffers(kind, len(validity), [bits], children=[structs])


def test_columns_may_differ_below_nulls():
    """Whether a struct below a null list is null has no meaning, and columns store both."""
    two = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    node = nest(field_of(pa.list_(two, 2)), FileVersion.V2_3)
    one = nested([True, False], [True, True, False, False])
    other = nested([True, False], [True, True, True, True])
    for leaves in ([one, other], [other, one]):
        merged = merge(node, leaves)
        merged.validate(full=True)
        assert merged.to_pylist() == [[{"x": 1, "y": 1}] * 2, None]
    visible = nested([True, False], [True, False, True, True])
    with pytest.raises(CorruptDataError, match="inconsistent"):
        merge(node, [one, visible])
