"""Rows that pylance changes are out of date, and pylance reads the refreshed values."""

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
from lancelet import ComputedColumn


def shout(names):
    return pc.utf8_upper(names)


def rows_of(ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"m{each}" for each in ids]})


def merge(dataset):
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows_of([3, 30]))


def merge_name(dataset):
    dataset.merge_insert("id").when_matched_update_all().execute(rows_of([3, 4]))


CHANGES = {
    "append": (lambda dataset: lance.write_dataset(rows_of([40]), dataset, mode="append"), 1),
    "update": (lambda dataset: dataset.update({"name": "'x'"}, where="id < 2"), 2),
    "delete": (lambda dataset: dataset.delete("id < 2"), 0),
    "merge": (merge, 2),
    "merge of all columns": (merge_name, 2),
    "compaction": (lambda dataset: dataset.optimize.compact_files(), 0),
    "rename": (lambda dataset: dataset.alter_columns({"path": "name", "name": "title"}), 0),
    "add column": (lambda dataset: dataset.add_columns({"more": "id + 1"}), 10),
    "null column": (lambda dataset: dataset.add_columns(pa.field("more", pa.int64())), 0),
    "restore": (lambda dataset: lance.dataset(dataset.uri, version=2).restore(), 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_pylance_changes_are_refreshed(tmp_path, name):
    uri = str(tmp_path / "t")
    table = lancelet.write_dataset(
        rows_of(range(10)), uri, enable_stable_row_ids=True, max_rows_per_file=4
    )
    table.add_columns(ComputedColumn("loud", shout, ("name",), pa.string()))
    change, stale = CHANGES[name]
    change(lance.dataset(uri))
    table.checkout_latest()
    assert table.stale_rows().rows == stale
    assert table.refresh_columns({"shout": shout}).refreshed == stale
    found = lance.dataset(uri).to_table().to_pydict()
    assert found["loud"] == [each.upper() for each in found.get("name") or found["title"]]
    lance.dataset(uri).validate()
