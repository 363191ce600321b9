"""Altered and dropped columns, and rejected alterations."""

import lance
import pyarrow as pa
import pytest

import lancelet
import lancelet.fragment
from lancelet.change.columns.fields import ColumnError, ColumnUnsupportedError
from lancelet.errors import CommitConflictError, FieldNotFoundError, InvalidInputError

ROWS = pa.table(
    {
        "a": [1, None, 3],
        "s": [{"x": 1, "y.z": "p"}, {"x": None, "y.z": "q"}, None],
        "l": [[{"u": 1}, {"u": None}], [], None],
    }
)


@pytest.fixture
def dataset(tmp_path):
    return lancelet.write_dataset(ROWS, tmp_path)


def test_names_may_be_swapped_in_one_go(dataset):
    dataset.alter_columns({"path": "a", "name": "s"}, {"path": "s", "name": "a"})
    assert dataset.schema.names == ["s", "a", "l"]
    assert dataset.to_table()["s"].to_pylist() == [1, None, 3]


def test_names_with_dots_are_reached_in_back_ticks(dataset):
    dataset.alter_columns({"path": "s.`y.z`", "name": "w"})
    assert dataset.to_table()["s"].to_pylist()[0] == {"x": 1, "w": "p"}
    dataset.drop_columns(["s.w"])
    assert dataset.to_table()["s"].to_pylist()[0] == {"x": 1}


def test_a_struct_and_its_fields_may_be_altered_together(dataset):
    dataset.alter_columns(
        {"path": "s", "name": "t"}, {"path": "s.x", "name": "u", "data_type": pa.int8()}
    )
    assert dataset.to_table()["t"].to_pylist()[0] == {"u": 1, "y.z": "p"}
    assert dataset.schema.field("t").type.field("u").type == pa.int8()


@pytest.mark.parametrize("path", ["a", "s", "s.x", "l", "l.item.u"])
def test_columns_with_nulls_cannot_forbid_them(dataset, path):
    with pytest.raises(ColumnError, match="contains NULL values"):
        dataset.alter_columns({"path": path, "nullable": False})
    assert dataset.version == 1


@pytest.mark.parametrize("path", ["s.`y.z`", "l.item"])
def test_nulls_of_parents_are_not_nulls_of_the_column(dataset, path):
    dataset.alter_columns({"path": path, "nullable": False})
    assert dataset.to_table().to_pylist() == ROWS.to_pylist()
    assert lance.dataset(dataset.uri).to_table().to_pylist() == ROWS.to_pylist()
    dataset.alter_columns({"path": path, "nullable": True})
    assert dataset.schema.equals(ROWS.schema)


def test_deleted_nulls_do_not_count(dataset):
    dataset.delete("a IS NULL")
    dataset.alter_columns({"path": "a", "nullable": False})
    assert not dataset.schema.field("a").nullable


def test_rows_with_nulls_cannot_slip_in_while_nulls_are_forbidden(dataset):
    dataset.delete("a IS NULL")
    stale = lancelet.fragment.write_fragments(ROWS, dataset.uri, mode="append")
    version = dataset.version
    dataset.alter_columns({"path": "a", "nullable": False})
    with pytest.raises(CommitConflictError):
        lancelet.LanceDataset.commit(
            dataset.uri, lancelet.LanceOperation.Append(stale), read_version=version
        )


@pytest.mark.parametrize(
    "alteration",
    [
        {"path": "a", "name": "s"},
        {"path": "a", "name": "b.c"},
        {"path": "a", "data_type": pa.string()},
        {"path": "s", "data_type": pa.struct([("x", pa.int8())])},
        {"path": "l", "data_type": pa.list_(pa.int8())},
        {"path": "q", "name": "r"},
        {"path": "A", "name": "r"},
        {"path": "s.q", "name": "r"},
    ],
    ids=str,
)
def test_invalid_arguments_raise_the_errors_of_the_reference(dataset, alteration):
    with pytest.raises(OSError, match=r".") as ours:
        dataset.alter_columns(alteration)
    assert isinstance(ours.value, ValueError)
    with pytest.raises(OSError, match=r"."):
        lance.dataset(dataset.uri).alter_columns(alteration)
    assert dataset.version == 1


def test_two_fields_of_a_struct_never_have_one_name(dataset):
    with pytest.raises(ColumnError, match="duplicate field names"):
        dataset.alter_columns({"path": "s.x", "name": "y.z"})


@pytest.mark.parametrize(
    ("alteration", "message"),
    [
        ({"name": "b"}, "path is required"),
        ({"path": "a"}, "At least one"),
        ({"path": "a", "type": pa.int8()}, "Unknown key: type"),
    ],
)
def test_empty_alterations_are_rejected(dataset, alteration, message):
    with pytest.raises(ValueError, match=message):
        dataset.alter_columns(alteration)
    with pytest.raises(ValueError, match=message):
        lance.dataset(dataset.uri).alter_columns(alteration)


def index_names(path):
    return sorted(index.name for index in lance.dataset(path).describe_indices())


def test_indices_follow_renames_forbid_casts_and_go_with_their_columns(tmp_path):
    rows = pa.table({"a": range(50), "s": [{"x": number, "y": 0} for number in range(50)]})
    reference = lance.write_dataset(rows, tmp_path)
    reference.create_scalar_index("a", "BTREE")
    reference.create_scalar_index("s.x", "BTREE")
    dataset = lancelet.dataset(tmp_path)
    dataset.alter_columns({"path": "s.x", "name": "z"})
    with pytest.raises(OSError, match=r"1 index\(es\) attached: \[s.x_idx\]"):
        dataset.alter_columns({"path": "s.z", "data_type": pa.int8()})
    dataset.alter_columns({"path": "s.y", "data_type": pa.int8()})
    assert index_names(tmp_path) == ["a_idx", "s.x_idx"]
    assert lance.dataset(tmp_path).to_table(filter="s.z = 7").num_rows == 1
    dataset.drop_columns(["s.z"])
    assert index_names(tmp_path) == ["a_idx"]


@pytest.mark.parametrize("version", ["2.2", "2.1"])
def test_columns_stored_as_one_value_are_cast_as_one_value(tmp_path, version):
    packed = pa.field(
        "p",
        pa.struct([("x", pa.int64()), ("y", pa.int64())]),
        metadata={"lance-encoding:packed": "true"},
    )
    fixed = pa.list_(pa.struct([("u", pa.int64()), ("v", pa.int64())]), 1)
    mapped = pa.map_(pa.string(), pa.int64())
    data = {"p": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}
    fields = [packed]
    if version == "2.2":
        data |= {"f": [[{"u": 1, "v": 2}], [{"u": 3, "v": 4}]], "m": [[("k", 1)], []]}
        fields += [pa.field("f", fixed), pa.field("m", mapped)]
    rows = pa.table(data, schema=pa.schema(fields))
    dataset = lancelet.write_dataset(rows, tmp_path, data_storage_version=version)
    dataset.alter_columns({"path": "p.x", "data_type": pa.int32()})
    if version == "2.2":
        dataset.alter_columns({"path": "f.item.u", "data_type": pa.int32()})
        dataset.alter_columns({"path": "m.entries.value", "data_type": pa.int32()})
        assert dataset.schema.field("m").type.item_type == pa.int32()
        with pytest.raises(InvalidInputError, match="part of a map"):
            dataset.drop_columns(["m.entries.value"])
    found = dataset.to_table()
    assert found.to_pylist() == rows.to_pylist()
    assert lance.dataset(tmp_path).to_table().equals(found)
    assert found.schema.field("p").type.field("x").type == pa.int32()


def test_blobs_are_not_rewritten_for_changes_of_sibling_fields(tmp_path):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    rows = pa.table(
        {"s": [{"x": 1, "b": b"data"}]},
        schema=pa.schema([("s", pa.struct([("x", pa.int64()), blob]))]),
    )
    dataset = lancelet.write_dataset(rows, tmp_path, data_storage_version="2.0")
    with pytest.raises(ColumnUnsupportedError, match="blob"):
        dataset.alter_columns({"path": "s.x", "data_type": pa.int8()})


@pytest.mark.parametrize("columns", [["q"], ["A"], ["a", "s.q"]])
def test_only_columns_that_are_there_can_be_dropped(dataset, columns):
    with pytest.raises(FieldNotFoundError, match="does not exist"):
        dataset.drop_columns(columns)
    with pytest.raises(ValueError, match="does not exist"):
        lance.dataset(dataset.uri).drop_columns(columns)


def test_some_column_has_to_stay(dataset):
    with pytest.raises(ValueError, match="Cannot drop all columns"):
        dataset.drop_columns(["a", "s.x", "s.`y.z`", "l"])
    dataset.drop_columns([])
    assert dataset.schema.names == ["a", "s", "l"]


def test_the_schema_as_a_whole_is_not_replaced(dataset):
    with pytest.raises(NotImplementedError, match="alter"):
        dataset.replace_schema(pa.schema([]))
