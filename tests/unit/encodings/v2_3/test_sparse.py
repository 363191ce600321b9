"""Sparse structure: positions instead of levels, read back as the arrays they describe.

Only pages that are all null are written with sparse structure, so the pages here are put
together by hand: the structure of an array, and its values without levels, chunked or zipped.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.encodings.base import FileVersion, RowIndices, RowRange
from lancelet.encodings.levels import nest, paths, rows_multiple
from lancelet.encodings.pages.envelope import pack_any, unpack_any
from lancelet.encodings.v2_3.messages import sparse_structure
from lancelet.encodings.v2_3.open_page import PLANAR_LAYOUT_URL
from lancelet.encodings.v2_3.structure import is_member, parse_structure
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.field import Field
from lancelet.format.protos import encodings23_pb as pb
from tests.kit.field_file import FieldFile, append, field_file

V = FileVersion.V2_3
NULLS, VALIDS = pb.SparseValiditySet.NULLS, pb.SparseValiditySet.VALIDS

LIST = pa.list_(pa.struct([("x", pa.int32())]))
ARRAYS = {
    "ints": pa.array([1, None, 3, None] * 50),
    "full": pa.array(range(100)),
    "structs": pa.array([{"x": 1}, None, {"x": None}, {"x": 2}] * 40),
    "lists": pa.array([[1, None], [], None, [2]] * 40),
    "lists of structs": pa.array([[{"x": 1}, None], [], None, [{"x": None}, {"x": 2}]] * 40, LIST),
    "lists of lists": pa.array([[[1], [], None], None, [], [[2, None]]] * 40),
    "fixed lists": pa.array(
        [[{"x": 1}, None], None, [None, {"x": 2}]] * 30, pa.list_(pa.struct([("x", pa.int32())]), 2)
    ),
    "fixed lists in lists": pa.array(
        [[[{"x": 1}, None], None], [], None, [[{"x": 2}, {"x": 3}]]] * 30,
        pa.list_(pa.list_(pa.struct([("x", pa.int32())]), 2)),
    ),
}


def innermost(array):
    """Return the values of the only leaf, one for each slot, nulls filled with anything."""
    while pa.types.is_nested(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.values
    return array.fill_null(0)


def sparse_file(array, kind="chunked"):
    """Return the file of a page with sparse structure, put together from its two planes."""
    field = Field.from_arrow(pa.field("f", array.type), itertools.count())
    (path,) = paths(nest(field, V))
    structure, positions = sparse_structure(path, array)
    slots = innermost(array)
    indices = []
    if kind == "zipped":
        slots = pa.array([value for value in leaf_values(array) if value is not None], slots.type)
    elif kind == "indexed":
        encoded = slots.dictionary_encode()
        slots, indices = encoded.dictionary, [np.asarray(encoded.indices, "<u4").view(np.uint8)]
    wish = {"lance-encoding:structural-encoding": "miniblock" if kind == "chunked" else "fullzip"}
    file = field_file(slots, V, metadata=wish)
    (page,) = file.columns[0].pages
    layout = unpack_any(page.encoding, PLANAR_LAYOUT_URL, pb.PlanarLayout)
    layout.structure.sparse.CopyFrom(structure)
    if kind == "chunked":
        layout.values.chunked.ClearField("levels")
        layout.values.chunked.ClearField("num_items")
    else:
        layout.values.zipped.ClearField("levels")
    if kind == "indexed":
        numbers = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=32))
        items = layout.values.zipped
        layout.values.CopyFrom(
            pb.ValuePlane(indexed=pb.IndexedValues(indices=numbers, items=items))
        )
    before = [append(file.data, buffer) for buffer in indices]
    after = [append(file.data, buffer) for buffer in positions]
    page = dataclasses.replace(
        page,
        length=len(array) * rows_multiple(path),
        position=np.concatenate([before, page.position, after]).astype(np.int64),
        size=np.concatenate(
            [[len(b) for b in indices], page.size, [len(b) for b in positions]]
        ).astype(np.int64),
        encoding=pack_any(PLANAR_LAYOUT_URL, layout),
    )
    column = dataclasses.replace(file.columns[0], pages=(page,))
    return FieldFile(field, V, [column], file.data, file.sink)


def leaf_values(array):
    """Return the leaf of every slot inside the innermost list, with the nulls around it."""
    if pa.types.is_struct(array.type):
        return leaf_values(array.flatten()[0])
    if pa.types.is_fixed_size_list(array.type):
        values = leaf_values(array.values)
        valid = np.repeat(np.asarray(array.is_valid()), array.type.list_size)
        return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
    if pa.types.is_nested(array.type):
        return leaf_values(array.values)
    return array.to_pylist()


def check_reads(file, array):
    count = len(array)
    found = file.read(RowRange(0, count))
    found.validate(full=True)
    assert found.to_pylist() == array.to_pylist()
    rng = np.random.default_rng(count)
    for _ in range(5):
        start, stop = np.sort(rng.integers(0, count + 1, 2)).tolist()
        assert file.read(RowRange(start, stop)).to_pylist() == array[start:stop].to_pylist()
        rows = np.unique(rng.integers(0, count, 15))
        found = file.read(RowIndices(rows))
        found.validate(full=True)
        assert found.to_pylist() == array.take(pa.array(rows)).to_pylist()


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("kind", ["chunked", "zipped", "indexed"])
def test_sparse_pages_read_back(name, kind):
    array = ARRAYS[name]
    file = sparse_file(array, kind)
    check_reads(file, array)
    assert file.reader().encoded_bytes(RowRange(0, len(array))) > 0


def test_a_sparse_page_takes_two_rounds_and_then_one():
    file = sparse_file(ARRAYS["lists of structs"])
    file.read(RowRange(0, 10))
    assert file.num_rounds == 2
    file.read(RowRange(50, 60))
    assert file.num_rounds == 3


@pytest.mark.parametrize(
    "array",
    [
        pa.nulls(90, pa.int8()),
        pa.array([[None], [], None] * 30, pa.list_(pa.string())),
        pa.array([{"x": None}, None] * 30, pa.struct([("x", pa.int8())])),
        pa.array([{}] * 30, pa.struct([])),
        pa.array([[None, {"x": None}], None] * 30, pa.list_(pa.struct([("x", pa.int8())]), 2)),
        pa.array([7] * 30, pa.int8()),
        pa.array([[1, None], [], None] * 30),
        pa.array(["same"] * 30),
    ],
    ids=lambda array: str(array.type),
)
def test_version_2_3_round_trips(array):
    check_reads(field_file(array, V), array)


def test_a_sparse_page_without_values_costs_next_to_nothing():
    file = field_file(pa.nulls(1_000_000, pa.int64()), V)
    assert len(file.data) == 0
    assert file.read(RowRange(10, 20)).null_count == 10


def test_blobs_of_the_first_kind_are_rejected():
    with pytest.raises(UnsupportedError, match="blob"):
        field_file(pa.array([b"a"], pa.large_binary()), V, metadata={"lance-encoding:blob": "true"})


@given(position=st.sets(st.integers(0, 40)), start=st.integers(0, 40), count=st.integers(0, 20))
@settings(deadline=None, max_examples=40)
def test_membership_is_the_same_for_runs_and_single_slots(position, start, count):
    sorted_position = np.array(sorted(position), np.int64)
    slots = np.arange(start, start + count)
    expected = [int(slot) in position for slot in slots]
    assert is_member(sorted_position, slice(start, start + count)).tolist() == expected
    assert is_member(sorted_position, slots).tolist() == expected


def flat(numbers):
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=64)), np.array(numbers, "<i8")


def validity(numbers, meaning=NULLS, count=None):
    encoding, data = flat(numbers)
    message = pb.SparseValiditySet(
        meaning=meaning,
        positions=encoding,
        num_positions=len(numbers) if count is None else count,
    )
    return pb.SparseStructuralLayer(validity=message), [data.view(np.uint8)]


def lists(position, counts, num_children):
    encoding, data = flat(position)
    more, lengths = flat(counts)
    message = pb.SparseListLayer(
        num_child_slots=num_children,
        non_empty_positions=encoding,
        num_non_empty_positions=len(position),
        counts=more,
        validity=pb.SparseValiditySet(
            meaning=NULLS, positions=pb.CompressiveEncoding(constant=pb.Constant())
        ),
    )
    return pb.SparseStructuralLayer(list=message), [data.view(np.uint8), lengths.view(np.uint8)]


@pytest.mark.parametrize(
    "layer",
    [
        validity([3, 1]),
        validity([1, 1]),
        validity([-1]),
        validity([0, 2**63 - 1, -2, 1]),
        validity([10]),
        validity([1], pb.SparseValiditySet.UNSPECIFIED),
        validity([1], count=11),
        validity([1], count=2),
        lists([0, 2], [1, 0], 1),
        lists([0, 2], [1, -1], 0),
        lists([0, 2], [1, 2], 4),
        lists([0, 12], [1, 2], 3),
        (pb.SparseStructuralLayer(), []),
    ],
)
def test_structure_that_cannot_be_is_corrupt(layer):
    message, buffers = layer
    with pytest.raises(CorruptDataError):
        parse_structure(pb.SparseStructure(layers=[message]), 10, buffers)


def with_structure(file, change):
    (page,) = file.columns[0].pages
    layout = unpack_any(page.encoding, PLANAR_LAYOUT_URL, pb.PlanarLayout)
    change(layout)
    page = dataclasses.replace(page, encoding=pack_any(PLANAR_LAYOUT_URL, layout))
    file.columns[0] = dataclasses.replace(file.columns[0], pages=(page,))
    return file


def test_layers_of_another_type_are_corrupt():
    def drop_a_layer(layout):
        del layout.structure.sparse.layers[0]

    file = with_structure(sparse_file(ARRAYS["lists"]), drop_a_layer)
    with pytest.raises(CorruptDataError, match="layers"):
        file.read(RowRange(0, 4))


def test_zipped_values_of_another_number_are_corrupt():
    def claim_more(layout):
        layout.values.zipped.num_items += 1

    file = with_structure(sparse_file(pa.array([1, None, None, 2] * 10), "zipped"), claim_more)
    with pytest.raises(CorruptDataError):
        file.read(RowRange(0, 40))


def test_indices_are_read_once():
    file = sparse_file(ARRAYS["ints"], "indexed")
    file.read(RowRange(0, 10))
    assert file.num_rounds == 2
    file.read(RowRange(50, 60))
    assert file.num_rounds == 3


@pytest.mark.parametrize("index", [4, 0xFFFFFFFF])
def test_an_index_past_the_values_is_corrupt_unless_it_is_under_a_null(index):
    array = ARRAYS["ints"]
    file = sparse_file(array, "indexed")
    at = int(file.columns[0].pages[0].position[0])
    file.data[at + 4 : at + 8] = index.to_bytes(4, "little")
    assert file.read(RowRange(0, 200)).to_pylist() == array.to_pylist()
    file.header_cache = type(file.header_cache)()
    file.data[at + 8 : at + 12] = index.to_bytes(4, "little")
    with pytest.raises(CorruptDataError, match="out of bounds"):
        file.read(RowRange(0, 200))


@pytest.mark.parametrize("plane", ["structure", "values"])
def test_planes_of_an_unknown_kind_are_unsupported(plane):
    file = with_structure(
        sparse_file(ARRAYS["ints"]), lambda layout: getattr(layout, plane).Clear()
    )
    with pytest.raises(UnsupportedError):
        file.read(RowRange(0, 1))


@pytest.mark.parametrize("name", ["lists of structs", "fixed lists in lists"])
def test_damaged_structure_is_sound_or_rejected(name):
    whole = sparse_file(ARRAYS[name])
    rng = np.random.default_rng(1)
    outcomes = set()
    for _ in range(300):
        file = dataclasses.replace(whole, data=bytearray(whole.data), columns=list(whole.columns))
        file.header_cache = type(file.header_cache)()
        (page,) = file.columns[0].pages
        if rng.random() < 0.5:
            buffer = rng.integers(2, len(page.size))
            at = int(page.position[buffer]) + int(rng.integers(page.size[buffer]))
            file.data[at] ^= 1 << int(rng.integers(8))
        else:
            encoding = bytearray(page.encoding)
            encoding[rng.integers(len(encoding))] ^= 1 << int(rng.integers(8))
            page = dataclasses.replace(page, encoding=bytes(encoding))
            file.columns[0] = dataclasses.replace(file.columns[0], pages=(page,))
        try:
            file.read(RowRange(0, 60)).validate(full=True)
            outcomes.add("sound")
        except (CorruptDataError, UnsupportedError):
            outcomes.add("refused")
    assert outcomes == {"sound", "refused"}
