"""A task reads the version pinned by its driver, or reports that the table was replaced."""

import shutil

import lance
import pyarrow as pa
import pytest

from lancelet.errors import VersionNotFoundError
from lancelet.jobs.change_rows import delete_rows
from lancelet.jobs.engine import Job
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.scan_task import ScanTask, scan
from lancelet.jobs.split import plan_splits
from lancelet.jobs.table_ref import TableRef


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1, 2, 3]}), path)
    return path


def replace_table(uri, values):
    shutil.rmtree(uri)
    lance.write_dataset(pa.table({"x": values}), uri)


def read(table):
    (split,) = plan_splits(table.open())
    batches = scan(ScanTask(table, ("x",), split))
    return pa.Table.from_batches(batches).column("x").to_pylist()


def test_a_recreated_table_at_the_same_uri_is_reopened(uri):
    table = TableRef.of(uri).at(1)
    assert read(table) == [1, 2, 3]
    replace_table(uri, [7, 8])
    assert read(table) == [7, 8]


def test_a_task_refuses_a_table_that_was_made_again(uri):
    table = TableRef.of(uri)
    pinned = table.pinned(table.open())
    (split,) = plan_splits(table.open())
    replace_table(uri, [7, 8])
    with pytest.raises(VersionNotFoundError, match="deleted and created again"):
        list(scan(ScanTask(pinned, ("x",), split)))


def test_a_pinned_version_is_opened_once(uri):
    table = TableRef.of(uri)
    pinned = table.pinned(table.open())
    assert pinned.open() is pinned.open()


def test_rows_of_a_table_made_again_are_deleted_by_its_own_files(uri):
    job = Job(LocalEngine(1))
    assert read(TableRef.of(uri).at(1)) == [1, 2, 3]
    replace_table(uri, [7, 8, 9])
    assert delete_rows(job, TableRef.of(uri), "x = 8").num_rows == 1
    assert lance.dataset(uri).to_table().column("x").to_pylist() == [7, 9]


def test_tasks_in_other_folders_open_the_same_table(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = TableRef.of("t.lance")
    monkeypatch.chdir("/")
    assert read(table) == [1, 2, 3]
    assert TableRef.of("s3://bucket/t.lance").uri == "s3://bucket/t.lance"
