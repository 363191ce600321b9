"""Merges on Spark whose driver or task crashes at any store request, and that run again.

Goal: a merge with the number of a batch changes each row once. Method: as for the streaming sink,
the process ends before or behind each request that changes the store. Rows with their actions are
those that the join on Spark returns.
"""

import contextlib
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet import spark as ls
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.files import Publication, plan_files
from lancelet.spark.merge_tasks import ACTION, ADDRESS, Action, commit_merge, write_merged
from lancelet.spark.options import WriteSettings
from lancelet.spark.types import spark_schema
from lancelet.table.watermark import BatchWatermark
from tests.faults.test_stream_sink_crashes import Died, Dying, dying  # noqa: F401 - a fixture

PUBLICATION = Publication(watermark=BatchWatermark("merges", 7))
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "n": pa.array([10, 20, 30], pa.int64())})


def merge(uri):
    """Add one to the rows 1 and 3 and insert a row each, in two tasks, unless the batch is done."""
    table = TableRef.of(uri)
    snapshot = table.open()
    assert PUBLICATION.watermark is not None
    if PUBLICATION.watermark.is_reached(snapshot.manifest.config):
        return
    files = plan_files(WriteSettings(table), snapshot, spark_schema(ROWS.schema), replaces=False)
    stored = lance.dataset(uri).to_table(with_row_address=True).to_pylist()
    parts = []
    for number in (1, 3):
        (row,) = [row for row in stored if row["id"] == number]
        rows = pa.table(
            {
                ACTION: pa.array([Action.UPDATE, Action.INSERT], pa.int32()),
                ADDRESS: pa.array([row["_rowaddr"], None], pa.int64()),
                "id": pa.array([number, number * 10], pa.int64()),
                "n": pa.array([row["n"] + 1, 0], pa.int64()),
            }
        )
        parts.append(write_merged(files, ("id",), rows.to_batches()).value)
    commit_merge(snapshot, files, ("id",), parts, PUBLICATION)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("stable", [False, True])
def test_a_merge_is_applied_once_after_any_crash(tmp_path, dying, stable, is_done):  # noqa: F811
    at = 0
    while True:
        uri = str(tmp_path / f"{at}")
        lancelet.write_dataset(ROWS, uri, enable_stable_row_ids=stable, max_rows_per_file=2)
        dying.append(Dying(at, is_done=is_done))
        with contextlib.suppress(Died):
            merge(uri)
        fault = dying.pop()
        fault.is_over = True
        if fault.has_died:
            merge(uri)
        dataset = lance.dataset(uri)
        found = dataset.to_table().sort_by("id").to_pydict()
        assert found == {"id": [1, 2, 3, 10, 30], "n": [11, 20, 31, 0, 0]}, f"died at {at}"
        if stable:
            ids = dataset.to_table(with_row_id=True).sort_by("id")["_rowid"].to_numpy()
            assert len(np.unique(ids)) == 5
            assert ids[:3].tolist() == [0, 1, 2]
        ls.cleanup(uri, older_than=timedelta(0), delete_unverified=True)
        used = {file.path for each in dataset.get_fragments() for file in each.data_files()}
        assert {path.name for path in (Path(uri) / "data").iterdir()} == used
        if not fault.has_died:
            break
        at += 1
    assert at >= 3
