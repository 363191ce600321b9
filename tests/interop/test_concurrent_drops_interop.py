"""Changes of rows that are rebased on a dropped column leave tables that pylance reads."""

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet import ComputedColumn


def delete(table):
    table.delete("id = 1")


def update(table):
    table.update({"id": "9"}, where="id = 1")


def update_columns(table):
    rows = pa.table({"id": [2], "c": pa.array([7], pa.int64())})
    fragment, fields = table.get_fragments()[0].update_columns(rows, left_on="id", right_on="id")
    operation = lancelet.LanceOperation.Update(
        updated_fragments=[fragment], fields_modified=fields, update_mode="rewrite_columns"
    )
    lancelet.LanceDataset.commit(table, operation, read_version=table.version)


@pytest.mark.parametrize("change", [delete, update, update_columns])
def test_a_change_beside_a_dropped_column_keeps_no_file_of_it(tmp_path, change):
    uri = str(tmp_path / "t")
    table = lancelet.write_dataset({"id": [1, 2, 3]}, uri, enable_stable_row_ids=True)
    table.add_columns({"c": "id * 2"})
    stale = lancelet.dataset(uri)
    table.drop_columns(["c"])
    change(stale)
    reference = lance.dataset(uri)
    reference.validate()
    assert reference.to_table() == lancelet.dataset(uri).to_table()


def test_a_refresh_of_a_column_that_is_dropped_meanwhile_keeps_no_file_of_it(tmp_path):
    uri = str(tmp_path / "t")
    table = lancelet.write_dataset({"id": [1, 2, 3]}, uri, enable_stable_row_ids=True)

    def same(ids):
        return ids

    def drop(ids):
        lancelet.dataset(uri).drop_columns(["c"])
        return ids

    table.add_columns(ComputedColumn("c", same, ("id",), pa.int64()))
    table.insert({"id": [4]})
    table.refresh_columns({"same": drop})
    lance.dataset(uri).validate()
    assert lancelet.dataset(uri).schema.names == ["id"]
