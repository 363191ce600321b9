"""Updates compute from old values, preserve other columns, and change nothing if they fail."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lancelet
from lancelet.change.update import update_rows
from lancelet.errors import ExpressionError, FieldNotFoundError, InvalidInputError

STRUCT = pa.struct([("x", pa.int32()), ("in", pa.struct([("y", pa.string())]))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("s", STRUCT),
        pa.field("must", pa.int16(), nullable=False),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us")),
        ("tags", pa.list_(pa.int64())),
        ("color", pa.dictionary(pa.int8(), pa.string())),
    ]
)


def row(number):
    nested = None if number % 5 == 4 else {"x": number, "in": {"y": str(number)}}
    return {
        "id": number,
        "name": f"n{number}",
        "s": nested,
        "must": number,
        "price": number,
        "at": number,
        "tags": [number],
        "color": "red",
    }


@pytest.fixture
def dataset(request):
    rows = pa.Table.from_pylist([row(number) for number in range(10)], SCHEMA)
    return lancelet.write_dataset(rows, f"memory://{request.node.name}/t", max_rows_per_file=4)


def column(dataset, name):
    ids = dataset.to_table(columns=["id", name])
    return dict(zip(ids.column("id").to_pylist(), ids.column(name).to_pylist(), strict=True))


@given(limit=st.integers(-1, 11), delta=st.integers(-5, 5), stable=st.booleans())
def test_rows_that_match_change_and_no_others(limit, delta, stable):
    path = f"memory://update-{limit}-{delta}-{stable}/t"
    rows = pa.table({"id": range(10), "n": [i * i for i in range(10)]})
    dataset = lancelet.write_dataset(
        rows, path, mode="overwrite", max_rows_per_file=3, enable_stable_row_ids=stable
    )
    done = update_rows(dataset.snapshot, {"n": f"n + {delta} * id"}, f"id < {limit}")
    dataset.checkout_latest()
    assert done.num_rows == min(max(limit, 0), 10)
    assert column(dataset, "n") == {i: i * i + delta * i * (i < limit) for i in range(10)}
    dataset.validate()


def test_columns_see_the_old_values_of_each_other(dataset):
    assert dataset.update({"id": "must + 100", "must": "id"}) == {"num_rows_updated": 10}
    assert column(dataset, "must") == {100 + i: i for i in range(10)}


def test_leaves_of_structs_are_updated_and_null_structs_stay_null(dataset):
    dataset.update({"s.x": "s.x * 10", "s.in.y": "concat(name, '!')"}, where="id > 1")
    found = column(dataset, "s")
    assert found[1] == {"x": 1, "in": {"y": "1"}}
    assert found[3] == {"x": 30, "in": {"y": "n3!"}}
    assert found[4] is None


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("must", "1.7", 1),
        ("must", "'12'", 12),
        ("name", "7", "7"),
        ("name", "NULL", None),
        ("price", "1.234", "1.23"),
        ("at", "'2020-01-01'", "2020-01-01 00:00:00"),
        ("tags", "[1, 2]", [1, 2]),
        ("color", "'blue'", "blue"),
        ("`name`", "upper(name)", "N3"),
    ],
)
def test_values_take_the_type_of_the_column(dataset, name, written, value):
    dataset.update({name: written}, where="id = 3")
    found = column(dataset, name.strip("`"))[3]
    assert found == value or str(found) == str(value)
    assert dataset.schema == SCHEMA


@pytest.mark.parametrize("written", ["100000", "'abc'", "id * 100000"])
def test_values_without_a_place_in_the_column_are_rejected(dataset, written):
    with pytest.raises(ExpressionError):
        dataset.update({"must": written})
    assert dataset.latest_version == 1


def test_a_field_that_must_not_be_null_stays_so(dataset):
    with pytest.raises(InvalidInputError, match="non-nullable"):
        dataset.update({"must": "NULL"}, where="id = 3")
    assert dataset.latest_version == 1


@pytest.mark.parametrize("name", ["nope", "s.nope", "NAME", "_rowid"])
def test_columns_that_are_not_there_are_rejected(dataset, name):
    with pytest.raises(FieldNotFoundError, match="does not exist"):
        dataset.update({name: "1"})


@pytest.mark.parametrize(
    ("updates", "reason"),
    [
        ({}, "No updates provided"),
        ({"s.x": "1", "s": "NULL"}, "set twice"),
        ({"s": "NULL", "s.in.y": "'a'"}, "set twice"),
        ({"name": "1", "`name`": "2"}, "set twice"),
        ({"tags.item": "1"}, "only struct fields"),
    ],
)
def test_updates_that_make_no_sense_are_rejected(dataset, updates, reason):
    with pytest.raises(InvalidInputError, match=reason):
        dataset.update(updates)


def test_an_update_without_rows_is_a_version_like_any(dataset):
    assert dataset.update({"name": "'x'"}, where="id > 100") == {"num_rows_updated": 0}
    assert dataset.version == 2


def test_a_dry_run_changes_nothing(dataset):
    report = dataset.update({"name": "'x'"}, where="id < 5", dry_run=True)
    # One new file, and a deletion file for the fragment that keeps rows.
    assert (report.operation, report.rows, report.files) == ("Update", 5, 2)
    assert (dataset.version, dataset.latest_version) == (1, 1)
    deletion = dataset.delete("id < 5", dry_run=True)
    assert (deletion.operation, deletion.rows, deletion.files) == ("Delete", 5, 1)


def test_updates_of_different_rows_follow_each_other(dataset):
    other = lancelet.dataset(dataset.uri)
    dataset.update({"name": "'x'"}, where="id = 0")
    other.update({"name": "'y'"}, where="id = 1", conflict_retries=0)
    assert (column(other, "name")[0], column(other, "name")[1]) == ("x", "y")


def test_an_update_is_done_again_where_another_changed_the_row(dataset):
    other = lancelet.dataset(dataset.uri)
    dataset.update({"must": "must + 1"}, where="id = 3")
    other.update({"must": "must + 1"}, where="id = 3")
    assert column(other, "must")[3] == 5


def test_files_of_another_version_can_be_requested(dataset):
    dataset.update({"name": "'x'"}, where="id = 0", data_storage_version="2.1")
    minors = [f.metadata.files[0].file_minor_version for f in dataset.get_fragments()]
    assert minors == [2, 2, 2, 1]


@pytest.mark.parametrize(
    ("written", "value"), [("4.0", 4.0), ("h + 1", 2.5), ("NULL", None), ("h * 2", 3.0)]
)
def test_types_that_nothing_is_computed_in_take_values_too(tmp_path, written, value):
    rows = pa.table({"h": pa.array([1.5], pa.float16()), "b": pa.array([b"abc"], pa.binary(3))})
    dataset = lancelet.write_dataset(rows, str(tmp_path / "t"))
    dataset.update({"h": written, "b": "x'616263'"})
    assert dataset.to_table().to_pylist() == [{"h": value, "b": b"abc"}]
    dataset.add_columns({"more": "arrow_cast(h, 'Float16')"})
    assert dataset.to_table()["more"].to_pylist() == [value]
