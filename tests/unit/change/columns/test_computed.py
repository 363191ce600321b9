"""Computed columns equal their definitions after refreshes, whatever happened before."""

import datetime as dt
import uuid

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancelet
from lancelet import ComputedColumn
from lancelet.change.columns.fields import ColumnError
from lancelet.errors import ColumnFunctionError, CorruptDataError

SHOUT = ComputedColumn("loud", pc.utf8_upper, ("name",), pa.string())
FUNCTIONS = {"utf8_upper": pc.utf8_upper}


def new_table(rows=10, *, stable=True, uri=None):
    data = pa.table({"id": range(rows), "name": [f"n{number}" for number in range(rows)]})
    uri = uri or f"memory://{uuid.uuid4().hex}"
    return lancelet.write_dataset(data, uri, enable_stable_row_ids=stable, max_rows_per_file=4)


def rows_of(ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"m{each}" for each in ids]})


IDS = st.integers(0, 30)
CHANGES = st.one_of(
    st.tuples(st.just("insert"), st.lists(IDS, max_size=5)),
    st.tuples(st.just("update"), IDS),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("merge"), st.lists(IDS, max_size=5, unique=True)),
    st.tuples(st.just("compact")),
    st.tuples(st.just("restore"), st.integers(4, 20)),
    st.tuples(st.just("cleanup")),
    st.tuples(st.just("refresh"), st.none() | st.integers(1, 4)),
    st.tuples(st.just("overwrite loud"), IDS),
    st.tuples(st.just("add")),
    st.tuples(st.just("join")),
    st.tuples(st.just("branch")),
)


def apply(dataset, change):
    match change:
        case ("insert", ids):
            dataset.insert(rows_of(ids))
        case ("update", number):
            dataset.update({"name": "'changed'"}, where=f"id % 4 = {number % 4}")
        case ("delete", number):
            dataset.delete(f"id = {number}")
        case ("merge", ids):
            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows_of(ids))
        case ("compact",):
            dataset.optimize.compact_files()
        case ("restore", version):
            if version in [each["version"] for each in dataset.versions()]:
                dataset.checkout_version(version).restore()
        case ("cleanup",):
            dataset.cleanup_old_versions(older_than=dt.timedelta(0))
        case ("refresh", rows):
            before = dataset.stale_rows().rows
            done = dataset.refresh_columns(FUNCTIONS, max_rows=rows)
            assert done.refreshed == (before if rows is None else min(rows, before))
            assert done.remaining == dataset.stale_rows().rows == before - done.refreshed
        case ("add",):
            dataset.add_columns({f"c{uuid.uuid4().hex}": "id + 1"})
        case ("join",):
            dataset.merge(pa.table({"id": [1, 2], f"c{uuid.uuid4().hex}": [1, 2]}), "id")
        case ("branch",):
            name = f"b{uuid.uuid4().hex}"
            branch = dataset.create_branch(name, dataset.version)
            branch.update({"name": "'branched'"}, where="id % 3 = 0")
            branch.refresh_columns(FUNCTIONS, max_rows=2)
            branch.insert(rows_of([31, 32]))
            if branch.stale_rows().rows % 2:
                branch.refresh_columns(FUNCTIONS)
            dataset.branches.fast_forward(name)
        case ("overwrite loud", number):
            dataset.update({"loud": "'wrong'"}, where=f"id = {number}")
    dataset.checkout_latest()


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(CHANGES, max_size=10))
def test_values_equal_the_definition_after_a_refresh(changes):
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.add_columns(ComputedColumn("twice", "id * 2"))
    for change in [*changes, ("refresh", None)]:
        apply(dataset, change)
    assert dataset.stale_rows().rows == 0
    for row in dataset.to_table().to_pylist():
        assert (row["loud"], row["twice"]) == (row["name"].upper(), row["id"] * 2)


def test_only_changed_rows_are_computed():
    dataset, calls = new_table(), []

    def shout(names):
        calls.append(names.to_pylist())
        return pc.utf8_upper(names)

    dataset.add_columns(ComputedColumn("loud", shout, ("name",), pa.string()))
    assert sum(map(len, calls)) == 10
    calls.clear()
    dataset.insert(rows_of([20]))
    dataset.update({"name": "'x'"}, where="id = 3")
    dataset.optimize.compact_files()
    assert dataset.refresh_columns({"shout": shout}).refreshed == 2
    assert sorted(name for names in calls for name in names) == ["m20", "x"]
    assert dataset.refresh_columns({"shout": shout}).refreshed == 0


def test_a_report_lists_columns_and_stale_rows():
    dataset = new_table()
    assert dataset.stale_rows().columns == {}
    dataset.add_columns(SHOUT)
    dataset.add_columns(ComputedColumn("twice", "id * 2"))
    dataset.insert(rows_of([20, 21]))
    found = dataset.stale_rows()
    assert found.columns == {"loud": "utf8_upper(name)", "twice": "id * 2"}
    assert (found.rows, found.fragments) == (2, 1)


def test_other_new_columns_change_no_input():
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.add_columns({"other": "id + 1"})
    assert dataset.stale_rows().rows == 0
    dataset.insert(pa.table({"id": [20], "name": ["a"], "other": [1]}))


def test_new_columns_hide_no_rows_that_are_out_of_date():
    dataset, calls = new_table(), []

    def shout(names):
        calls.extend(names.to_pylist())
        return pc.utf8_upper(names)

    dataset.add_columns(ComputedColumn("loud", shout, ("name",), pa.string()))
    dataset.insert(rows_of([20, 21, 22, 23]))
    dataset.update({"name": "'x'"}, where="id = 3")
    dataset.add_columns({"more": "id + 1"})
    dataset.add_columns(ComputedColumn("twice", "id * 2"))
    dataset.optimize.compact_files()
    dataset.delete("id = 20")
    dataset.update({"name": "'y'"}, where="id = 21")
    assert dataset.stale_rows().rows == 4
    calls.clear()
    assert dataset.refresh_columns({"shout": shout}, max_rows=2).remaining == 2
    dataset.merge(pa.table({"id": [1], "joined": [1]}), "id")
    assert dataset.refresh_columns({"shout": shout}).refreshed == 2
    assert sorted(calls) == ["m22", "m23", "x", "y"]
    for row in dataset.to_table().to_pylist():
        assert (row["loud"], row["twice"]) == (row["name"].upper(), row["id"] * 2)


def test_too_many_rows_that_a_new_column_would_hide(monkeypatch):
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.insert(rows_of([20, 21]))
    monkeypatch.setattr("lancelet.table.computed_columns._HIDDEN_BYTES_MAX", 3)
    with pytest.raises(ColumnError, match="refresh_columns first"):
        dataset.add_columns({"more": "id + 1"})
    with pytest.raises(ColumnError, match="refresh_columns first"):
        dataset.add_columns(ComputedColumn("more", "id + 1"))


def test_an_elapsed_budget_computes_nothing():
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.insert(rows_of([20]))
    assert dataset.refresh_columns(FUNCTIONS, max_seconds=0).remaining == 1


def test_a_refresh_is_continued():
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.insert(rows_of([20, 21]))
    dataset.insert(rows_of([22]))
    calls = []

    def fails_later(names):
        calls.append(len(names))
        if len(calls) > 1:
            raise RuntimeError("stopped")
        return pc.utf8_upper(names)

    with pytest.raises(RuntimeError):
        dataset.refresh_columns({"utf8_upper": fails_later})
    dataset.checkout_latest()
    assert dataset.stale_rows().rows == 1
    assert dataset.refresh_columns(FUNCTIONS).refreshed == 1


def test_concurrent_updates_are_not_lost():
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.insert(rows_of([20, 21]))

    def updates_first(names):
        other = lancelet.dataset(dataset.uri)
        if other.count_rows("name = 'late'") == 0:
            other.update({"name": "'late'"}, where="id = 20")
        return pc.utf8_upper(names)

    dataset.refresh_columns({"utf8_upper": updates_first})
    dataset.checkout_latest()
    dataset.refresh_columns(FUNCTIONS)
    rows = {row["id"]: row["loud"] for row in dataset.to_table().to_pylist()}
    assert (rows[20], rows[21]) == ("LATE", "M21")


def test_errors_name_the_next_step():
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.insert(rows_of([20]))
    with pytest.raises(ColumnFunctionError, match="functions="):
        dataset.refresh_columns()
    with pytest.raises(ColumnFunctionError, match="one value per row"):
        dataset.refresh_columns({"utf8_upper": lambda _: pa.array(["a", "b"])})
    with pytest.raises(ColumnFunctionError, match="another type"):
        dataset.refresh_columns({"utf8_upper": lambda names: pa.array([[1]] * len(names))})
    with pytest.raises(ColumnFunctionError, match="`inputs` and `data_type`"):
        dataset.add_columns(ComputedColumn("x", pc.utf8_upper))
    with pytest.raises(ColumnFunctionError, match="omit them"):
        dataset.add_columns(ComputedColumn("x", "id", ("id",)))
    with pytest.raises(ColumnError, match="inputs of both"):
        dataset.add_columns(ComputedColumn("x", "upper(loud)"))
    with pytest.raises(ColumnFunctionError, match="define it with def"):
        dataset.add_columns(ComputedColumn("x", lambda names: names, ("name",), pa.string()))
    with pytest.raises(ColumnError, match="migrate_to_stable_row_ids"):
        new_table(stable=False).add_columns(SHOUT)
    with pytest.raises(ColumnError, match="input of a computed column; drop the computed"):
        dataset.drop_columns(["name"])


def test_inputs_that_another_library_drops_are_reported(tmp_path):
    dataset = new_table(uri=tmp_path / "t")
    dataset.add_columns(SHOUT)
    for swap in (False, True):
        other = lance.dataset(dataset.uri)
        if swap:
            other.add_columns({"name": "cast(id as string)"})
        else:
            other.drop_columns(["name"])
        dataset.checkout_latest()
        assert dataset.stale_rows().rows == 10
        with pytest.raises(ColumnError, match="was dropped or replaced; drop the computed column"):
            dataset.refresh_columns(FUNCTIONS)
    dataset.drop_columns(["loud"])
    dataset.add_columns(SHOUT)
    assert dataset.to_table()["loud"].to_pylist() == [str(number) for number in range(10)]


def test_damaged_definitions_and_records_are_reported():
    dataset = new_table()
    dataset.add_columns(SHOUT)
    dataset.update_config({"lancelet.computed": "{}"})
    with pytest.raises(CorruptDataError, match="delete the entry"):
        dataset.stale_rows()
    dataset.delete_config_keys(["lancelet.computed"])
    assert dataset.stale_rows().rows == 10
    dataset.update_field_metadata({"loud": {"lancelet.computed": "["}})
    with pytest.raises(CorruptDataError, match="drop the column"):
        dataset.stale_rows()


def test_a_dry_run_adds_nothing():
    dataset = new_table()
    dataset.add_columns(SHOUT, dry_run=True)
    assert dataset.schema.names == ["id", "name"]


@pytest.mark.parametrize("column", ["id", "twice"])
def test_values_are_cast_after_a_column_was(column):
    data = {"id": [1, 2, 3]}
    table = lancelet.write_dataset(data, f"memory://{uuid.uuid4().hex}", enable_stable_row_ids=True)
    table.add_columns(ComputedColumn("twice", "id * 2"))
    table.alter_columns({"path": column, "data_type": pa.int32()})
    table.insert(pa.table({"id": [4]}).cast(pa.schema([table.schema.field("id")])))
    table.refresh_columns()
    assert table.to_table()["twice"].to_pylist() == [2, 4, 6, 8]


def test_dropped_columns_leave_no_rows_out_of_date():
    uri = f"memory://{uuid.uuid4().hex}"
    table = lancelet.write_dataset({"id": [1, 2]}, uri, enable_stable_row_ids=True)
    table.add_columns(ComputedColumn("twice", "id * 2"))
    table.drop_columns(["twice"])
    table.insert({"id": [3]})
    table.add_columns(ComputedColumn("thrice", "id * 3"))
    assert table.stale_rows().rows == 0
    table.insert({"id": [4]})
    table.refresh_columns()
    assert table.to_table()["thrice"].to_pylist() == [3, 6, 9, 12]


@pytest.mark.parametrize("other", [{"more": "id + 1"}, ComputedColumn("more", "id + 1")])
def test_columns_that_an_old_handle_adds_hide_no_changed_rows(other):
    uri = f"memory://{uuid.uuid4().hex}"
    table = lancelet.write_dataset({"id": [1, 2]}, uri, enable_stable_row_ids=True)
    table.add_columns(ComputedColumn("twice", "id * 2"))
    lancelet.dataset(uri).update({"id": "50"}, where="id = 1")
    table.add_columns(other)
    assert table.stale_rows().rows == 1
    table.refresh_columns()
    assert sorted(table.to_table()["twice"].to_pylist()) == [4, 100]


def test_rows_that_change_while_a_column_is_added_stay_out_of_date():
    uri = f"memory://{uuid.uuid4().hex}"
    table = lancelet.write_dataset({"id": [1, 2]}, uri, enable_stable_row_ids=True)
    table.add_columns(ComputedColumn("twice", "id * 2"))
    calls = []

    def add(batch):
        if not calls:
            lancelet.dataset(uri).update({"id": "50"}, where="id = 1")
        calls.append(batch)
        return pa.record_batch({"more": batch["id"]})

    table.add_columns(lancelet.batch_udf(pa.schema([("more", pa.int64())]))(add))
    assert table.stale_rows().rows == 1
    table.refresh_columns()
    assert sorted(table.to_table()["twice"].to_pylist()) == [4, 100]


@pytest.mark.parametrize("result", [None, 5, ["a", "b"]])
def test_results_that_are_no_arrays_are_reported(result):
    uri = f"memory://{uuid.uuid4().hex}"
    table = lancelet.write_dataset({"id": [1, 2]}, uri, enable_stable_row_ids=True)

    def same(ids):
        return ids

    column = ComputedColumn("same", same, inputs=("id",), data_type=pa.int64())
    table.add_columns(column)
    table.update({"id": "id + 1"})
    with pytest.raises(ColumnFunctionError, match="no array"):
        table.refresh_columns({"same": lambda _: result})


@pytest.mark.parametrize(
    ("definition", "message"), [("1", "requires an input column"), ("_rowid", "row columns")]
)
def test_definitions_have_columns_of_the_table(definition, message):
    uri = f"memory://{uuid.uuid4().hex}"
    table = lancelet.write_dataset({"id": [1, 2]}, uri, enable_stable_row_ids=True)
    with pytest.raises(ColumnError, match=message):
        table.add_columns(ComputedColumn("new", definition))
