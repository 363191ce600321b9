"""Into which tasks a read is cut, and how large these are taken to be."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, plan_tasks
from lancelet.table.location import TableLocation
from tests.kit.tables import SIMPLE_SCHEMA, append_rows, create_table, simple_rows

ROWS = 40_000


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Four files with a key of 8 bytes and two texts."""
    uri = str(tmp_path_factory.mktemp("tasks") / "t.lance")
    texts = pa.array([f"{number % 97:030d}" for number in range(ROWS)])
    rows = pa.table({"id": pa.array(range(ROWS)), "a": texts, "b": texts})
    lancelet.write_dataset(rows, uri, max_rows_per_file=ROWS // 4)
    return TableRef.of(uri, {})


def tasks(table, names, **options):
    wanted = ReadOptions(table, **options)
    return plan_tasks(pinned(wanted), wanted, names)


def test_columns_of_the_filter_count(table):
    """A read of no column but by a filter is cut by what the filter has to look at."""
    few = tasks(table, (), split_bytes=5_000)
    assert [each.split.fragments for each in few] == [(0, 1, 2, 3)]
    many = tasks(table, (), filter="a != ''", split_bytes=5_000)
    assert len(many) == len(tasks(table, ("a",), split_bytes=5_000)) > 4


def test_sizes_are_those_of_what_is_read(table):
    whole = sum(each.split.num_bytes for each in tasks(table, ("id", "a", "b")))
    files = Path(table.uri, "data").iterdir()
    size = sum(each.stat().st_size for each in files)
    assert whole == pytest.approx(size, rel=0.01)
    cut = tasks(table, ("id", "a", "b"), split_bytes=whole // 16)
    assert len(cut) >= 16
    assert sum(each.split.num_bytes for each in cut) == pytest.approx(whole, rel=0.01)
    one = sum(each.split.num_bytes for each in tasks(table, ("id",)))
    assert one == pytest.approx(whole * 8 / 72, rel=0.01)


@pytest.mark.parametrize("options", [{}, {"filter": "id >= 0"}])
def test_a_limit_makes_them_smaller(table, options):
    whole = sum(each.split.num_bytes for each in tasks(table, ("id",)))
    few = tasks(table, ("id",), limit=ROWS // 10, **options)
    assert sum(each.split.num_bytes for each in few) == pytest.approx(whole / 10, rel=0.01)


def test_a_fragment_without_rows_is_no_task_of_a_limit(tmp_path):
    location = TableLocation.open(str(tmp_path / "t.lance"))
    none = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1).slice(1))
    append_rows(location, none, simple_rows(0, 5))
    wanted = ReadOptions(TableRef.of(location.uri, {}), limit=10)
    snapshot = pinned(wanted)
    assert [snapshot.live_rows(each) for each in snapshot.fragments] == [0, 5]
    found = plan_tasks(snapshot, replace(wanted, split_bytes=1), ("id",))
    assert [(each.split.fragments, each.split.num_rows) for each in found] == [((1,), 1)] * 5
