"""MERGE whose worker or driver is killed: no row is lost or there twice.

worker    dies when it has written its files; Spark runs the task again
driver    dies before or behind its commit; the next one merges the batch again
"""

import contextlib
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyspark import cloudpickle

import lancelet
from lancelet import spark as ls
from lancelet.spark import merge_tasks, merging
from tests.kit.spark_driver import Driver
from tests.spark.conftest import MODE, SETTINGS

# Workers and drivers cannot import tests, so functions of this module are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS, CHANGED = 1000, 100
# Half of the source is in the table.
SOURCE = f"SELECT id + {ROWS - CHANGED // 2} AS id, 5L AS n FROM range({CHANGED})"
EXPECTED = {
    **dict.fromkeys(range(ROWS - CHANGED // 2), 1),
    **dict.fromkeys(range(ROWS - CHANGED // 2, ROWS), 6),
    **dict.fromkeys(range(ROWS, ROWS + CHANGED // 2), 5),
}


@pytest.fixture
def uri(tmp_path):
    uri = str(tmp_path / "t.lance")
    table = pa.table({"id": range(ROWS), "n": [1] * ROWS})
    lancelet.write_dataset(table, uri, max_rows_per_file=300)
    return uri


def check(uri, version):
    found = lance.dataset(uri)
    rows = found.to_table().to_pydict()
    assert len(rows["id"]) == len(EXPECTED)
    assert dict(zip(rows["id"], rows["n"], strict=True)) == EXPECTED
    assert found.version == version
    ls.cleanup(uri, older_than=timedelta(0), delete_unverified=True)
    used = {file.path for each in found.get_fragments() for file in each.data_files()}
    assert {path.name for path in (Path(uri) / "data").iterdir()} == used


def dying_once(folder):
    """Return `write_merged` of a worker that is killed behind it, once for each folder."""

    def write_and_die(*arguments):
        done = merge_tasks.write_merged(*arguments)
        with contextlib.suppress(FileExistsError):
            Path(folder).mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return write_and_die


def test_a_worker_that_is_killed_behind_its_files(spark, uri, tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "write_merged", dying_once(str(tmp_path / "killed")))
    ls.sql(
        spark,
        f"""MERGE INTO lance.`{uri}` t USING ({SOURCE}) s ON t.id = s.id
            WHEN MATCHED THEN UPDATE SET n = t.n + s.n WHEN NOT MATCHED THEN INSERT *""",
    )
    assert (tmp_path / "killed").exists()
    check(uri, version=2)


def merge_once(spark, uri, die_at=None):
    """Merge the batch, in a process that is killed before or behind its commit."""
    publish = merge_tasks.publish

    def publish_or_die(*arguments):
        if die_at == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        published = publish(*arguments)
        if die_at == "behind":
            os.kill(os.getpid(), signal.SIGKILL)
        return published

    merge_tasks.publish = publish_or_die
    merge = ls.merge(spark.sql(SOURCE), uri, on="id")
    merge = merge.when_matched_update({"n": "target.n + source.n"}).when_not_matched_insert()
    return merge.execute(once=ls.Once("job", 0)).version


def test_drivers_that_are_killed_before_and_behind_their_commit(uri, tmp_path):
    settings = SETTINGS | {"spark.master": "local[2,2]", "spark.local.dir": str(tmp_path)}
    if MODE == "connect":
        settings["spark.api.mode"] = "connect"
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(lancelet.__file__).parents[1]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

    def run(*arguments):
        log = tmp_path / "driver.log"
        with Driver(settings, environment, log=log, dumps=cloudpickle.dumps) as driver:
            return driver.run(merge_once, uri, *arguments)

    for die_at in ("before", "behind"):
        with pytest.raises(ChildProcessError, match="the driver ended"):
            run(die_at)
        assert lance.dataset(uri).version == (1 if die_at == "before" else 2)
    assert run() == 2
    check(uri, version=2)
