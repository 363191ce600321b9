"""Rows that one index names are those that a scan finds, whatever happened to the table."""

import pyarrow as pa
import pytest

import lancelet
from lancelet.scan.indexing.search import lookup_batches
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions

FILTERS = (
    "a = 7",
    "a = 5000",
    "a IN (3, 7, 11, 3)",
    "a IN (1, 250, 499)",
    "a IN (-1, NULL)",
    "s = 'x7'",
    "s IN ('x1', 'x499', 'y')",
    "f = 0",
    "f IN (0, 12.5)",
)


def rows(first, stop):
    numbers = list(range(first, stop))
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "a": pa.array([None if i % 13 == 0 else i // 3 for i in numbers], pa.int32()),
            "s": [f"x{i}" for i in numbers],
            "f": [-0.0 if i % 7 == 0 else i / 2 for i in numbers],
        }
    )


def at_once(dataset, text):
    return lookup_batches(
        plan_scan(dataset.snapshot, ScanOptions(filter=text, columns=("id", "a")))
    )


def check(dataset):
    for text in FILTERS:
        expected = dataset.to_table(["id", "a"], filter=text, use_scalar_index=False)
        assert dataset.to_table(["id", "a"], filter=text) == expected, text
        few = dataset.to_table(["a", "id"], filter=text, limit=2, offset=1)
        assert few == expected.select(["a", "id"]).slice(1, 2), text


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("deferred", [False, True])
def test_rows_at_once_are_those_of_a_scan(tmp_path, stable, deferred):
    path = tmp_path / "t.lance"
    dataset = lancelet.write_dataset(
        rows(0, 500), path, max_rows_per_file=90, enable_stable_row_ids=stable
    )
    for column in "asf":
        dataset.create_scalar_index(column, "BTREE")
    assert at_once(dataset, "a = 7") is not None
    check(dataset)
    dataset.delete("id % 5 = 2")
    check(dataset)
    dataset.update({"a": "a + 1"}, where="id % 50 = 7")
    check(dataset)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    assert at_once(dataset, "a = 7") is not None
    check(dataset)
    dataset.optimize.compact_files(
        target_rows_per_fragment=200, defer_index_remap=deferred and not stable
    )
    check(lancelet.dataset(path))


def test_rows_of_fragments_that_an_index_lacks_are_looked_for(tmp_path):
    dataset = lancelet.write_dataset(rows(0, 100), tmp_path / "t.lance")
    dataset.create_scalar_index("a", "BTREE")
    dataset.insert(rows(0, 30))
    assert at_once(dataset, "a = 7") is None
    check(dataset)


def test_many_rows_are_not_taken_at_once(tmp_path):
    table = pa.table({"id": range(4000), "a": pa.array([7] * 4000, pa.int32())})
    dataset = lancelet.write_dataset(table, tmp_path / "t.lance")
    dataset.create_scalar_index("a", "BTREE")
    assert at_once(dataset, "a = 7") is None
    assert dataset.to_table(filter="a = 7").num_rows == 4000


def test_an_index_is_not_used_where_it_is_invalid(tmp_path):
    dataset = lancelet.write_dataset(rows(0, 100), tmp_path / "t.lance", max_rows_per_file=50)
    dataset.create_scalar_index("a", "BTREE")
    for options in ({"use_indices": False}, {"fragments": (1,)}):
        plan = plan_scan(dataset.snapshot, ScanOptions(filter="a = 7", **options))
        assert lookup_batches(plan) is None
