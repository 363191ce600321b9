"""Encoded values round trip, by ranges and by single rows, in at most two rounds."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from lancelet.buffers import ByteSlices, run
from lancelet.encodings import v2_1
from lancelet.encodings.base import FileVersion, RowIndices, RowRange
from lancelet.errors import InvalidInputError, UnsupportedError
from tests.kit.field_file import field_file

VERSIONS = [FileVersion.V2_1, FileVersion.V2_2]
POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
PACKED = {"lance-encoding:packed": "true"}
BLOB = {"lance-encoding:blob": "true"}
ROWS = 3000


def some(values, *, every=5):
    """Set every n-th value to null."""
    return [None if index % every == 0 else value for index, value in enumerate(values)]


def arrays():
    rng = np.random.default_rng(0)
    count = range(ROWS)
    return {
        "int64": pa.array(rng.integers(-(2**60), 2**60, ROWS)),
        "small ints with nulls": pa.array(some(rng.integers(0, 99, ROWS).tolist()), pa.int32()),
        "booleans": pa.array(some([i % 3 == 0 for i in count])),
        "decimals": pa.array([decimal.Decimal(i) for i in count], pa.decimal256(40, 2)),
        "strings": pa.array(some([f"text {i}" * (i % 5) for i in count])),
        "few strings": pa.array(some([f"name {i % 7}" for i in count]), pa.large_string()),
        "dictionary": pa.array(some([f"name {i % 7}" for i in count])).dictionary_encode(),
        "long strings": pa.array(some([f"{i}" * 200 for i in count])),
        "vectors": pa.array([[float(i)] * 80 for i in count], pa.list_(pa.float32(), 80)),
        "null vectors": pa.array(some([[i, None] for i in count]), pa.list_(pa.int16(), 2)),
        "wide vectors with nulls": pa.array(
            some([[None] + [i] * 99 for i in count]), pa.list_(pa.int32(), 100)
        ),
        "all null": pa.nulls(ROWS, pa.string()),
        "null type": pa.nulls(ROWS),
        "one value": pa.array([7] * ROWS, pa.int16()),
        "one string": pa.array(["same"] * ROWS),
        "one value or null": pa.array(some([7] * ROWS), pa.int16()),
        "structs": pa.array(some([{"x": i, "y": f"{i}"} for i in count]), POINT),
        "lists": pa.array(some([list(range(i % 6)) for i in count]), pa.list_(pa.int32())),
        "long lists": pa.array([list(range(i * 40)) for i in range(120)], pa.list_(pa.int32())),
        "empty lists": pa.array([[]] * ROWS, pa.list_(pa.int32())),
        "null lists": pa.array([None] * ROWS, pa.list_(pa.int32())),
        "lists of long strings": pa.array(
            some([[f"{i}{j}" * 99 for j in range(i % 4)] for i in range(300)])
        ),
        "lists of vectors": pa.array(
            some([[[i % 99] * 300] * (i % 3) for i in range(300)]),
            pa.list_(pa.list_(pa.int8(), 300)),
        ),
        "lists of lists of structs": pa.array(
            some([[[{"x": i, "y": None}, None], [], None][: i % 4] for i in count]),
            pa.list_(pa.large_list(POINT)),
        ),
        "struct without children": pa.array([{}] * ROWS, pa.struct([])),
    }


def arrays_of_2_2():
    count = range(ROWS)
    return {
        "maps": pa.array(
            some([[(f"k{j}", j or None) for j in range(i % 3)] for i in count]),
            pa.map_(pa.string(), pa.int32()),
        ),
        "lists of structs of a fixed size": pa.array(
            some([[{"x": i, "y": "a"}, None] for i in count]), pa.list_(POINT, 2)
        ),
    }


ARRAYS = arrays() | arrays_of_2_2()
CASES = [
    (version, name)
    for version in VERSIONS
    for name in ARRAYS
    if version is FileVersion.V2_2 or name not in ("maps", "lists of structs of a fixed size")
]


def check_reads(file, array):
    reader = file.reader()
    count = len(array)
    assert reader.num_rows == count
    assert reader.data_type == array.type
    whole = file.read(RowRange(0, count))
    whole.validate(full=True)
    assert whole.to_pylist() == array.to_pylist()
    rng = np.random.default_rng(count)
    for _ in range(4):
        start, stop = np.sort(rng.integers(0, count + 1, 2)).tolist()
        found = file.read(RowRange(start, stop))
        found.validate(full=True)
        assert found.to_pylist() == array[start:stop].to_pylist()
        assert reader.encoded_bytes(RowRange(start, stop)) >= 0
        rows = np.unique(rng.integers(0, count, rng.integers(1, 60)))
        found = file.read(RowIndices(rows))
        found.validate(full=True)
        assert found.to_pylist() == array.take(pa.array(rows)).to_pylist()


@pytest.mark.parametrize(("version", "name"), CASES, ids=lambda x: getattr(x, "value", x))
def test_encoded_values_are_read_back(version, name):
    check_reads(field_file(ARRAYS[name], version), ARRAYS[name])


@pytest.mark.parametrize(("version", "name"), CASES, ids=lambda x: getattr(x, "value", x))
def test_a_read_takes_at_most_two_rounds_and_one_with_a_memo(version, name):
    file = field_file(ARRAYS[name], version)
    rows = RowIndices(np.array([1, 50, 99]))
    file.read(rows)
    assert file.num_rounds <= 2
    has_row_index = name in ("long strings", "lists of long strings", "lists of vectors")
    file.num_rounds = 0
    file.read(rows)
    assert file.num_rounds <= (2 if has_row_index else 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("metadata", [PACKED, {}])
def test_structs_of_fixed_width_can_be_packed(version, metadata):
    data_type = pa.struct([("x", pa.int32()), ("y", pa.float64())])
    array = pa.array(some([{"x": i, "y": i / 2} for i in range(ROWS)]), data_type)
    file = field_file(array, version, metadata=metadata)
    assert len(file.columns) == (1 if metadata else 2)
    check_reads(file, array)


def test_structs_with_strings_can_be_packed_from_2_2():
    array = pa.array(some([{"x": i, "y": "s" * (i % 9)} for i in range(ROWS)]), POINT)
    check_reads(field_file(array, FileVersion.V2_2, metadata=PACKED), array)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("in_struct", [False, True])
def test_blobs_read_back_as_bytes(version, in_struct):
    values = some([b"", b"abc", bytes(70)] * 20)
    array = pa.array(values, pa.large_binary())
    arrow_field = pa.field("f", pa.large_binary(), metadata=BLOB)
    if in_struct:
        array = pa.StructArray.from_arrays([array], ["f"], mask=pa.array([True] + [False] * 59))
        arrow_field = pa.field("s", pa.struct([arrow_field]))
    check_reads(field_file(array, version, arrow_field=arrow_field), array)


@pytest.mark.parametrize("version", VERSIONS)
def test_blobs_in_lists_are_unsupported(version):
    arrow_field = pa.field("f", pa.list_(pa.field("item", pa.large_binary(), metadata=BLOB)))
    with pytest.raises(UnsupportedError, match="lists"):
        field_file(pa.array([[b"a"]], arrow_field.type), version, arrow_field=arrow_field)


def test_a_range_reads_only_the_chunks_that_hold_it():
    array = pa.array(np.random.default_rng(0).integers(0, 1 << 60, 1_000_000))
    file = field_file(array, FileVersion.V2_2)
    file.read(RowRange(0, 1))
    file.bytes_read = 0
    found = file.read(RowRange(500_000, 510_000))
    assert found.to_pylist() == array[500_000:510_000].to_pylist()
    assert file.bytes_read < 10_000 * 8 + 40_000


def test_single_rows_read_only_their_chunks():
    array = pa.array(np.random.default_rng(0).integers(0, 1 << 60, 1_000_000))
    file = field_file(array, FileVersion.V2_2)
    file.read(RowRange(0, 1))
    file.bytes_read = 0
    file.read(RowIndices(np.array([5, 500_000, 999_999])))
    assert file.bytes_read < 3 * 17_000


def test_rows_of_long_lists_read_only_their_chunks():
    lengths = np.full(1000, 3000)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    items = pa.array(np.random.default_rng(0).integers(0, 1 << 60, int(lengths.sum())))
    file = field_file(pa.ListArray.from_arrays(offsets, items), FileVersion.V2_2)
    file.read(RowRange(0, 1))
    file.bytes_read = 0
    file.read(RowIndices(np.array([300, 700])))
    assert file.bytes_read < 2 * 3000 * 8 + 4 * 20_000


def test_vectors_without_nulls_are_not_copied():
    vectors = np.random.default_rng(0).random((1000, 96), np.float32)
    array = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 96)
    file = field_file(array, FileVersion.V2_2)
    source = np.frombuffer(bytes(file.data), np.uint8)
    found = run(
        file.reader().read(RowRange(10, 900)),
        lambda ranges: ByteSlices(source, ranges.position, ranges.size),
    )
    buffer = found.values.buffers()[1]
    start = source.ctypes.data
    assert start <= buffer.address < start + len(source)
    np.testing.assert_array_equal(found.values.to_numpy().reshape(-1, 96), vectors[10:900])


def test_no_rows_are_read_without_a_request():
    file = field_file(ARRAYS["lists"], FileVersion.V2_2)
    assert len(file.read(RowRange(7, 7))) == 0
    assert len(file.read(RowIndices(np.empty(0, np.int64)))) == 0
    assert file.num_rounds == 0


@pytest.mark.parametrize(
    "rows",
    [
        RowRange(-1, 2),
        RowRange(0, ROWS + 1),
        RowIndices(np.array([0, ROWS])),
        RowIndices(np.array([-1])),
        RowIndices(np.array([3, 3])),
        RowIndices(np.array([4, 3])),
    ],
)
def test_rows_that_are_not_there_are_rejected(rows):
    file = field_file(ARRAYS["int64"], FileVersion.V2_2)
    with pytest.raises(InvalidInputError):
        file.read(rows)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("empties", [70_000, 200_000])
def test_pages_are_cut_where_a_chunk_cannot_count_its_entries(version, empties):
    rows = [[1]] + [[]] * empties + [[2, 3]]
    array = pa.array(rows, pa.list_(pa.int32()))
    file = field_file(array, version)
    assert len(file.columns[0].pages) > 1
    assert file.read(RowRange(0, len(rows))).to_pylist() == rows
    assert file.read(RowIndices(np.array([0, 5, empties + 1]))).to_pylist() == [[1], [], [2, 3]]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_single_row_of_too_many_empty_lists_is_zipped(version):
    row = [[1]] + [[]] * 70_000 + [[2]]
    array = pa.array([row, [[3]]], pa.list_(pa.list_(pa.int32())))
    file = field_file(array, version)
    assert file.read(RowRange(0, 2)).to_pylist() == [row, [[3]]]


def test_fixed_size_lists_of_structs_are_not_written_around_lists():
    inner = pa.struct([("l", pa.list_(pa.int8()))])
    with pytest.raises(UnsupportedError, match="cannot be combined with lists"):
        field_file(pa.array([[{"l": [1]}]], pa.list_(inner, 1)), FileVersion.V2_2)


def test_a_struct_without_children_cannot_be_null():
    with pytest.raises(UnsupportedError, match="without children"):
        field_file(pa.array([{}, None], pa.struct([])), FileVersion.V2_2)


def test_columns_are_the_leaves():
    file = field_file(ARRAYS["lists of lists of structs"], FileVersion.V2_2)
    assert [owner.name for owner in v2_1.columns_of(file.field, FileVersion.V2_2)] == ["x", "y"]


def test_some_leaves_of_a_struct_read_alone():
    array = ARRAYS["structs"]
    file = field_file(array, FileVersion.V2_2)
    projected = file.field.with_children([file.field.children[1]])
    file.field, file.columns = projected, file.columns[1:]
    found = file.read(RowRange(0, 10)).to_pylist()
    assert found == [row and {"y": row["y"]} for row in array[:10].to_pylist()]


def test_pages_report_the_chosen_encoding():
    array = ARRAYS["structs"]
    file = field_file(array, FileVersion.V2_2)
    pages = v2_1.encode_field(array, file.field, FileVersion.V2_2, blobs=None)
    report = [choice for page in pages for choice in page.report()]
    assert [choice.path for choice in report] == ["f.x", "f.y"]
    assert all(choice.layout == "mini-block" and choice.encoding for choice in report)
    assert all(choice.encoded_bytes > 0 for choice in report)
