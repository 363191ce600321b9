"""Merges that insert rows at the same time notice that they insert the same keys."""

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitConflictError
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.files import latest_of, plan_files
from lancelet.spark.merge_tasks import ACTION, ADDRESS, Action, commit_merge, write_merged
from lancelet.spark.options import WriteSettings
from lancelet.spark.types import COLLATION_KEY, spark_schema

COLLATED = {COLLATION_KEY: "UTF8_LCASE"}


def inserted(table, snapshot, key):
    schema = spark_schema(snapshot.schema.to_arrow())
    files = plan_files(WriteSettings(table), snapshot, schema, replaces=False)
    rows = pa.record_batch(
        {
            ACTION: pa.array([int(Action.INSERT)], pa.int32()),
            ADDRESS: pa.nulls(1, pa.int64()),
            "s": [key],
        }
    )
    return commit_merge(snapshot, files, ("s",), [write_merged(files, ("s",), [rows]).value], None)


@pytest.mark.parametrize(
    ("metadata", "other", "is_same"),
    [(None, "a", True), (None, "A", False), (COLLATED, "a", True), (COLLATED, "A", True)],
)
def test_merges_that_insert_keys_which_may_be_equal_conflict(tmp_path, metadata, other, is_same):
    path = str(tmp_path / "t.lance")
    schema = pa.schema([pa.field("s", pa.string(), metadata=metadata)])
    lancelet.write_dataset(pa.table({"s": ["x"]}, schema), path)
    table = TableRef.of(path, {})
    base = latest_of(table)
    inserted(table, base, "a")
    if is_same:
        with pytest.raises(CommitConflictError):
            inserted(table, base, other)
    else:
        inserted(table, base, other)
    assert lancelet.dataset(path).count_rows() == 3 - is_same
