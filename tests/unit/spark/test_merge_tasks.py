"""Merges that insert rows at the same time notice that they insert the same keys."""

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitConflictError
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.files import Publication, latest_of, plan_files
from lancelet.spark.merge_tasks import ACTION, ADDRESS, Action, commit_merge, write_merged
from lancelet.spark.options import WriteSettings
from lancelet.spark.types import COLLATION_KEY, spark_schema
from lancelet.table.watermark import BatchWatermark

PLAIN = Publication()
COLLATED = {COLLATION_KEY: "UTF8_LCASE"}


def inserted(table, snapshot, key, publication=PLAIN):
    schema = spark_schema(snapshot.schema.to_arrow())
    files = plan_files(WriteSettings(table), snapshot, schema, replaces=False)
    rows = pa.record_batch(
        {
            ACTION: pa.array([int(Action.INSERT)], pa.int32()),
            ADDRESS: pa.nulls(1, pa.int64()),
            "s": [key],
        }
    )
    parts = [write_merged(files, ("s",), [rows]).value]
    return commit_merge(snapshot, files, ("s",), parts, publication)


def test_a_merge_records_its_batch_and_message(tmp_path):
    path = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"s": ["x"]}), path)
    table = TableRef.of(path, {})
    publication = Publication(message="note", watermark=BatchWatermark("nightly", 4))
    published, counts = inserted(table, latest_of(table), "a", publication)
    assert counts.inserted == 1
    assert published.transaction.properties == {
        "lancelet.stream": "nightly",
        "lancelet.batch": "4",
        "__lance_commit_message": "note",
    }


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
