"""Refreshes of computed columns lose little work, and are never wrong."""

import asyncio
import shutil
import subprocess
import sys
import threading
import uuid
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
import lancelet.change.columns.refresh as refresh_module
from lancelet import ComputedColumn
from lancelet.aio import AsyncDataset
from lancelet.change.columns.fields import ColumnError
from lancelet.change.columns.saved_results import SavedResults
from lancelet.errors import ColumnFunctionError, CommitConflictError
from lancelet.file import LanceFileWriter
from lancelet.fragment import DataFile
from lancelet.table.computed_columns import STORED_KEY, UpToDate
from tests.kit.child import bound_to_us

Operation = lancelet.LanceOperation


class Twice:
    """A function that counts the rows it computes, and does something in between."""

    __name__ = "twice"

    def __init__(self, before=lambda _: None):
        self.rows = Counter()
        self.before = before

    def __call__(self, numbers):
        self.before(self)
        self.rows.update(numbers.to_pylist())
        return pc.multiply(numbers, 2)


def column(function=None):
    return ComputedColumn("twice", function or Twice(), ("n",), pa.int64())


def table_of(rows=10, uri=None, **options):
    uri = uri or f"memory://{uuid.uuid4().hex}"
    data = pa.table({"n": pa.array(range(rows), pa.int64())})
    options = {"max_rows_per_file": 5, **options}
    dataset = lancelet.write_dataset(data, uri, enable_stable_row_ids=True, **options)
    dataset.add_columns(column())
    return dataset


def refresh(dataset, function=None, **options):
    function = function or Twice()
    done = dataset.refresh_columns({"twice": function}, **options)
    return function.rows, done


def check(dataset):
    dataset.checkout_latest()
    assert dataset.stale_rows().rows == 0
    found = dataset.to_table().to_pydict()
    assert found["twice"] == [2 * n for n in found["n"]]
    return sorted(found["n"])


def test_each_fragment_is_one_commit_that_records_its_state():
    dataset = table_of()
    dataset.update({"n": "n + 100"})
    version = dataset.version
    _, done = refresh(dataset)
    fragments = len(dataset.get_fragments())
    assert done.refreshed == 10
    assert dataset.version == version + fragments
    assert UpToDate.of(dataset.snapshot) == UpToDate(dataset.version)
    check(dataset)


def test_batches_before_an_error_are_committed():
    dataset = table_of()
    dataset.insert({"n": list(range(100, 110))})

    def fail(function):
        if len(function.rows) == 6:
            raise RuntimeError("no memory left")

    with pytest.raises(RuntimeError, match="no memory left"):
        refresh(dataset, Twice(fail), batch_size=3)
    dataset.checkout_latest()
    assert dataset.stale_rows().rows == 4
    rows, _ = refresh(dataset)
    assert sorted(rows) == [106, 107, 108, 109]
    check(dataset)


def test_the_time_ends_a_refresh_between_batches(monkeypatch):
    dataset = table_of()
    dataset.insert({"n": list(range(100, 110))})
    now = [0.0]
    monkeypatch.setattr("lancelet.surroundings.monotonic", lambda: now[0])

    def wait(_):
        now[0] += 1

    _, done = refresh(dataset, Twice(wait), batch_size=3, max_seconds=2)
    assert (done.refreshed, done.remaining) == (6, 4)
    monkeypatch.undo()
    refresh(dataset)
    check(dataset)


KILLED = """
import os, sys
import pyarrow.compute as pc
import lancelet

calls = []

def twice(numbers):
    if len(calls) == 3:
        os._exit(9)
    calls.append(numbers)
    return pc.multiply(numbers, 2)

dataset = lancelet.dataset(sys.argv[1])
dataset.refresh_columns({"twice": twice}, batch_size=2, checkpoint=sys.argv[2])
"""


def test_after_a_kill_only_one_batch_is_computed_again(tmp_path):
    dataset = table_of(uri=str(tmp_path / "t"), max_rows_per_file=100)
    dataset.insert({"n": list(range(100, 110))})
    dataset.insert({"n": list(range(200, 202))})
    notes = str(tmp_path / "notes")
    command = bound_to_us([sys.executable, "-c", KILLED, dataset.uri, notes])
    assert subprocess.run(command, check=False).returncode == 9
    dataset.checkout_latest()
    dataset.delete("n in (100, 105)")
    dataset.update({"n": "1000"}, where="n = 101")
    rows, done = refresh(dataset, checkpoint=notes)
    assert sorted(rows) == [106, 107, 108, 109, 200, 201, 1000]
    assert done.remaining == 0
    assert not list((tmp_path / "notes").rglob("*.arrow"))
    assert 1000 in check(dataset)


def test_results_of_another_table_at_the_same_place_are_not_used(tmp_path):
    notes, uri = str(tmp_path / "notes"), str(tmp_path / "t")

    for start in (0, 50):
        data = pa.table({"n": range(start, start + 5)})
        table = lancelet.write_dataset(data, uri, enable_stable_row_ids=True)
        table.add_columns(column())
        table.insert({"n": [start + 10, start + 11]})
        if start:
            rows, _ = refresh(table, checkpoint=notes)
            assert sorted(rows) == [60, 61]
            check(table)
        else:
            snapshot = table.snapshot
            saved = SavedResults.of(snapshot, notes)
            fragment = snapshot.fragments[1]
            keys = _keys(snapshot, fragment)
            saved.add(fragment, keys, pa.table({"twice": pa.array([7, 7])}))
            assert SavedResults.of(snapshot, notes).find(fragment, keys)[0].all()
            shutil.rmtree(uri)


def _keys(snapshot, fragment):
    from lancelet.change.columns.saved_results import RowKeys
    from lancelet.table.lineage import row_ids_of, updated_versions_of

    ids = row_ids_of(snapshot, fragment).to_array()
    return RowKeys(ids, updated_versions_of(snapshot, fragment).to_array())


@pytest.mark.parametrize("change", ["update", "delete", "compact", "append", "add", "rename"])
def test_changes_during_a_refresh_are_not_lost(change):
    dataset = table_of()
    dataset.insert({"n": list(range(100, 110))})

    def once(function):
        if function.rows or function.done:
            return
        function.done = True
        other = lancelet.dataset(dataset.uri)
        match change:
            case "update":
                other.update({"n": "500"}, where="n = 100")
            case "delete":
                other.delete("n = 100")
            case "compact":
                other.optimize.compact_files()
            case "append":
                other.insert({"n": [300]})
            case "add":
                other.add_columns(pa.field("more", pa.int64()))
            case "rename":
                other.alter_columns({"path": "twice", "name": "double"})

    function = Twice(once)
    function.done = False
    rows, _ = refresh(dataset, function, batch_size=4)
    dataset.checkout_latest()
    if change == "rename":
        dataset.alter_columns({"path": "double", "name": "twice"})
    assert max(rows.values()) <= 2
    if change in {"update", "delete"}:
        # The results of other rows are used again.
        assert sum(rows.values()) <= 10
    refresh(dataset)
    found = check(dataset)
    assert (100 in found) == (change not in {"update", "delete"})
    assert (500 in found) == (change == "update")


def test_two_refreshes_compute_no_row_more_than_twice():
    dataset = table_of(100)
    dataset.insert({"n": list(range(100, 160))})
    dataset.update({"n": "n + 1000"}, where="n % 3 = 0")
    count = dataset.stale_rows().rows
    functions, errors = [Twice(), Twice()], []
    barrier = threading.Barrier(2)

    def run(function):
        try:
            other = lancelet.dataset(dataset.uri)
            barrier.wait()
            refresh(other, function, batch_size=7)
        except Exception as error:  # noqa: BLE001 - checked below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    total = functions[0].rows + functions[1].rows
    assert len(total) == count
    assert max(total.values()) <= 2
    check(dataset)


ONE_OF_TWO = """
import sys, time, uuid
from pathlib import Path
import pyarrow.compute as pc
import lancelet

def twice(numbers):
    for number in numbers.to_pylist():
        (Path(sys.argv[2]) / f"{number}-{uuid.uuid4()}").touch()
    return pc.multiply(numbers, 2)

dataset = lancelet.dataset(sys.argv[1])
dataset.refresh_columns({"twice": twice}, batch_size=3)
"""


def test_two_processes_compute_no_row_more_than_twice(tmp_path):
    dataset = table_of(60, uri=str(tmp_path / "t"))
    dataset.insert({"n": list(range(100, 160))})
    dataset.update({"n": "n + 1000"}, where="n % 3 = 0")
    count, calls = dataset.stale_rows().rows, tmp_path / "calls"
    calls.mkdir()
    command = bound_to_us([sys.executable, "-c", ONE_OF_TWO, dataset.uri, str(calls)])
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [each.wait() for each in processes] == [0, 0]
    found = Counter(path.name.split("-")[0] for path in calls.iterdir())
    assert len(found) == count
    assert max(found.values()) <= 2
    check(dataset)


def test_a_restore_during_a_refresh_brings_back_its_state():
    dataset = table_of()
    dataset.update({"n": "n + 100"}, where="n < 5")
    before = dataset.version
    dataset.update({"n": "n + 100"})

    def restore(function):
        if not function.rows:
            lancelet.dataset(dataset.uri, version=before).restore()

    refresh(dataset, Twice(restore))
    dataset.checkout_latest()
    refresh(dataset)
    assert check(dataset) == [*range(5, 10), *range(100, 105)]


def test_writers_that_change_rows_forever_are_reported():
    dataset = table_of()
    dataset.insert({"n": [100, 101]})

    def change(_):
        lancelet.dataset(dataset.uri).update({"n": "n + 1"}, where="n >= 100")

    with pytest.raises(CommitConflictError, match="refresh the columns later"):
        refresh(dataset, Twice(change))
    refresh(dataset)
    check(dataset)


def test_one_conflict_in_each_of_many_fragments_is_retried():
    dataset = table_of(24, max_rows_per_file=2)
    dataset.add_columns(pa.table({"more": range(24)}))
    dataset.delete_config_keys([STORED_KEY])
    changed = []

    def change(_):
        if len(changed) < 12:
            lancelet.dataset(dataset.uri).replace_columns({len(changed): {"more": [0, 0]}})
            changed.append(len(changed))

    refresh(dataset, Twice(change))
    assert len(check(dataset)) == 24


def test_a_branch_has_its_own_state_and_a_fast_forward_keeps_it():
    dataset = table_of()
    branch = dataset.create_branch("trial", dataset.version)
    for number in range(4):
        branch.insert({"n": [100 + number]})
        refresh(branch)
    assert dataset.stale_rows().rows == 0
    dataset.branches.fast_forward("trial")
    dataset.checkout_latest()
    assert dataset.stale_rows().rows == 0
    assert len(check(dataset)) == 14
    for number in range(6):  # versions that the branch used already
        dataset.insert({"n": [200 + number]})
        assert dataset.stale_rows().rows == number + 1
    refresh(dataset)
    check(dataset)


def test_a_fast_forward_keeps_which_rows_are_stale():
    dataset = table_of()
    branch = dataset.create_branch("trial", dataset.version)
    for number in range(4):
        branch.insert({"n": [100 + number]})
        if number == 1:
            refresh(branch)
    branch.update({"n": "n + 1000"}, where="n = 3")
    dataset.branches.fast_forward("trial")
    dataset.checkout_latest()
    assert dataset.stale_rows().rows == 3
    dataset.insert({"n": [104]})
    rows, _ = refresh(dataset)
    assert sorted(rows) == [102, 103, 104, 1003]
    check(dataset)


def test_a_fast_forward_of_hidden_rows_makes_all_rows_stale():
    dataset = table_of()
    branch = dataset.create_branch("trial", dataset.version)
    branch.insert({"n": [100]})
    branch.add_columns({"more": "n"})
    branch.insert({"n": [101]})
    dataset.branches.fast_forward("trial")
    dataset.checkout_latest()
    assert dataset.stale_rows().rows == 12
    refresh(dataset)
    check(dataset)


@pytest.mark.parametrize("is_deep", [False, True])
def test_clones_keep_the_state(tmp_path, is_deep):
    dataset = table_of(uri=str(tmp_path / "t"))
    dataset.insert({"n": [100]})
    clone = dataset.deep_clone if is_deep else dataset.shallow_clone
    clone = clone(str(tmp_path / "clone"), dataset.version)
    assert clone.stale_rows().rows == 1
    clone.insert({"n": [200]})
    rows, _ = refresh(clone)
    assert sorted(rows) == [100, 200]
    check(clone)


def test_old_versions_and_tags_report_their_own_rows():
    dataset = table_of()
    dataset.insert({"n": [100]})
    dataset.tags.create("stale", dataset.version)
    refresh(dataset)
    assert dataset.checkout_version("stale").stale_rows().rows == 1
    old = dataset.checkout_version("stale")
    assert old.refresh_columns({"twice": Twice()}).refreshed == 0
    check(dataset)


def test_an_overwrite_drops_the_definition_unless_its_schema_has_it():
    dataset = table_of()
    with_definition = dataset.to_table()
    lancelet.write_dataset(pa.table({"n": [1], "twice": [7]}), dataset, mode="overwrite")
    dataset.checkout_latest()
    assert dataset.stale_rows().columns == {}
    if STORED_KEY.encode() in (with_definition.schema.field("twice").metadata or {}):
        lancelet.write_dataset(with_definition, dataset, mode="overwrite")
        dataset.checkout_latest()
        assert dataset.stale_rows().rows == 10


def test_a_copy_without_stable_row_ids_is_reported():
    dataset = table_of()
    copy = lancelet.write_dataset(dataset.to_table(), f"memory://{uuid.uuid4().hex}")
    text = dataset.schema.field("twice").metadata
    if not text:
        copy.update_field_metadata(
            {"twice": {STORED_KEY: dataset.snapshot.schema.fields[1].metadata[STORED_KEY]}}
        )
    with pytest.raises(ColumnError, match="migrate_to_stable_row_ids"):
        refresh(copy)


def test_empty_tables_and_emptied_fragments():
    dataset = table_of(0)
    assert refresh(dataset)[1].refreshed == 0
    dataset.insert({"n": [1, 2]})
    dataset.delete("n = 1")
    assert refresh(dataset)[1].refreshed == 1
    dataset.insert({"n": [3]})
    dataset.delete("n = 3")
    assert refresh(dataset)[1].refreshed == 0
    assert check(dataset) == [2]


def test_nulls_and_vectors_with_nan():
    data = pa.table({"n": [1.0, None, 3.0]})
    uri = f"memory://{uuid.uuid4().hex}"
    dataset = lancelet.write_dataset(data, uri, enable_stable_row_ids=True)
    kind = pa.list_(pa.float32(), 2)

    def vectors(numbers):
        values = [None if n is None else [n, float("nan")] for n in numbers.to_pylist()]
        return pa.array(values, kind)

    dataset.add_columns(ComputedColumn("v", vectors, ("n",), kind))
    dataset.insert(pa.table({"n": pa.array([None, 5.0])}))
    dataset.refresh_columns({"vectors": vectors})
    found = dataset.to_table()["v"].to_pylist()
    assert [each and each[0] for each in found] == [1, None, 3, None, 5]
    assert all(np.isnan(each[1]) for each in found if each)


def test_vectors_may_be_numpy_arrays():
    data = pa.table({"n": [1, 2]})
    uri = f"memory://{uuid.uuid4().hex}"
    dataset = lancelet.write_dataset(data, uri, enable_stable_row_ids=True)

    def embed(numbers):
        return np.outer(numbers.to_numpy(), [1.0, 0.5])

    dataset.add_columns(ComputedColumn("v", embed, ("n",), pa.list_(pa.float32(), 2)))
    dataset.insert({"n": [4]})
    dataset.refresh_columns({"embed": embed})
    assert dataset.to_table()["v"].to_pylist() == [[1, 0.5], [2, 1], [4, 2]]
    with pytest.raises(ColumnFunctionError, match="another type"):
        dataset.add_columns(ComputedColumn("w", embed, ("n",), pa.list_(pa.float32(), 3)))


def test_inputs_in_several_chunks_are_computed_one_by_one(monkeypatch):
    take = refresh_module.take_addresses

    class Chunked:
        """A table too large for one chunk."""

        def __init__(self, table):
            self.table = table

        def combine_chunks(self):
            return pa.concat_tables([self.table.slice(0, 2), self.table.slice(2)])

    monkeypatch.setattr(refresh_module, "take_addresses", lambda *args: Chunked(take(*args)))
    dataset = table_of()
    dataset.insert({"n": [100, 101, 102]})
    refresh(dataset)
    check(dataset)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: n.slice(1), "one value per row"),
        (lambda n: pa.array(["x"] * len(n)), "another type"),
        (lambda _: object(), "no array"),
    ],
)
def test_unsuitable_results_commit_nothing(result, message):
    dataset = table_of()
    dataset.insert({"n": [100]})
    version = dataset.version
    with pytest.raises(ColumnFunctionError, match=message):
        dataset.refresh_columns({"twice": result})
    assert dataset.latest_version == version


def test_a_dry_run_reports_the_files_and_commits_nothing():
    dataset = table_of()
    dataset.insert({"n": [100, 101]})
    report = dataset.refresh_columns({"twice": Twice()}, dry_run=True)
    assert (report.operation, report.rows, report.files) == ("Update", 2, 1)
    assert report.bytes > 0
    assert dataset.stale_rows().rows == 2
    assert dataset.refresh_columns({"twice": Twice()}, dry_run=True, max_rows=1).rows == 1


def test_asynchronous_refreshes():
    async def run(dataset):
        table = AsyncDataset(dataset)
        assert (await table.stale_rows()).rows == 1
        done = await table.refresh_columns({"twice": Twice()}, batch_size=1)
        assert done.refreshed == 1

    dataset = table_of()
    dataset.insert({"n": [100]})
    asyncio.run(run(dataset))
    check(dataset)


def test_indices_on_computed_columns_cover_no_changed_rows():
    dataset = table_of()
    dataset.create_scalar_index("twice", "BTREE")
    dataset.update({"n": "n + 100"}, where="n = 3")
    refresh(dataset)
    assert dataset.to_table(filter="twice = 206")["n"].to_pylist() == [103]
    assert dataset.count_rows("twice = 6") == 0
    dataset.optimize.optimize_indices()
    assert dataset.to_table(filter="twice = 206")["n"].to_pylist() == [103]


def test_overlays_make_the_rows_of_their_fragment_stale(tmp_path):
    dataset = table_of(uri=str(tmp_path / "t"))
    with LanceFileWriter(str(tmp_path / "t" / "data" / "overlay.lance")) as writer:
        writer.write_batch(pa.table({"n": [77]}))
    version = dataset.get_fragments()[0].metadata.files[0]
    numbers = version.file_major_version, version.file_minor_version
    size = (tmp_path / "t" / "data" / "overlay.lance").stat().st_size
    overlay = Operation.DataOverlayFile(
        DataFile("overlay.lance", [0], [0], *numbers, size), offsets=[1]
    )
    operation = Operation.DataOverlay([Operation.DataOverlayGroup(0, [overlay])])
    dataset = lancelet.LanceDataset.commit(dataset, operation, read_version=dataset.version)
    assert dataset.stale_rows().rows == 5
    refresh(dataset, max_rows=2)
    assert dataset.stale_rows().rows == 3
    refresh(dataset)
    assert 77 in check(dataset)


def test_a_refresh_does_not_count_for_definitions_that_changed_meanwhile():
    data = pa.table({"s": [{"x": 1, "y": 2}]})
    uri = f"memory://{uuid.uuid4().hex}"
    dataset = lancelet.write_dataset(data, uri, enable_stable_row_ids=True)

    def count(structs):
        return pa.array([len(structs.type)] * len(structs))

    dataset.add_columns(ComputedColumn("size", count, ("s",), pa.int64()))
    dataset.insert({"s": [{"x": 3, "y": 4}]})

    def drops(structs):
        other = lancelet.dataset(uri)
        if other.schema.field("s").type.num_fields == 2:
            other.drop_columns(["s.y"])
            other.refresh_columns({"count": count})
        return count(structs)

    dataset.refresh_columns({"count": drops})
    dataset.checkout_latest()
    dataset.refresh_columns({"count": count})
    assert dataset.stale_rows().rows == 0
    assert dataset.to_table()["size"].to_pylist() == [1, 1]


@pytest.mark.parametrize("own", [(), (3,), (3, 4), (3, 4, 5), (2, 4, 5, 6, 9, 11, 12, 13)])
def test_versions_of_refreshes_are_stored_as_ranges(own):
    dataset = table_of()
    state = UpToDate(1, own)
    dataset.update_config(state.to_config())
    assert UpToDate.of(dataset.snapshot) == state


def test_versions_that_no_row_has_are_removed_from_the_record(monkeypatch):
    monkeypatch.setattr("lancelet.table.computed_columns._COMMITS_PER_CLEANING", 4)
    dataset = table_of()
    dataset.insert({"n": list(range(100, 104))})
    for _ in range(12):
        dataset.update({"n": "n + 1000"}, where="n % 1000 = 1")
        dataset.refresh_columns({"twice": Twice()}, max_rows=1)
    state = UpToDate.of(dataset.snapshot)
    assert len(state.own) < 6
    refresh(dataset)
    assert UpToDate.of(dataset.snapshot) == UpToDate(dataset.version)
    check(dataset)


def test_a_deferred_column_is_computed_in_slices():
    dataset = table_of()
    dataset.drop_columns(["twice"])  # leaves a record of rows that are up to date
    deferred = ComputedColumn("twice", Twice(), ("n",), pa.int64(), is_deferred=True)
    dataset.add_columns(deferred)
    assert deferred.value.rows == {}
    assert dataset.to_table()["twice"].null_count == dataset.stale_rows().rows == 10
    rows, done = refresh(dataset, max_rows=7)
    assert (len(rows), done.remaining) == (7, 3)
    refresh(dataset)
    check(dataset)
    other = ComputedColumn("more", Twice(), ("n",), pa.int64(), is_deferred=True)
    with pytest.raises(ColumnError, match="without is_deferred"):
        dataset.add_columns(other)
