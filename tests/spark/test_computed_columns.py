"""Computed columns are added and refreshed on executors."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
from lancelet import ComputedColumn
from lancelet import spark as ls
from lancelet.errors import ColumnFunctionError, InvalidInputError
from tests.kit.child import bound_to_us

FACTOR = 3


def scale(numbers, factor=FACTOR):
    return pc.multiply(numbers, factor)


COLUMN = ComputedColumn("scaled", scale, ("n",), pa.int64())


@pytest.fixture
def uri(tmp_path):
    """Fifty rows in ten fragments."""
    path = str(tmp_path / "t.lance")
    data = pa.table({"n": range(50)})
    lancelet.write_dataset(data, path, max_rows_per_file=5, enable_stable_row_ids=True)
    return path


def change(uri):
    table = lancelet.dataset(uri)
    table.update({"n": "n + 1000"}, where="n % 3 = 0")
    table.insert(pa.table({"n": range(100, 120)}), max_rows_per_file=5)
    table.delete("n = 104")
    return table.stale_rows().rows


def check(uri):
    table = lancelet.dataset(uri)
    assert table.stale_rows().rows == 0
    found = table.to_table().to_pydict()
    assert found["scaled"] == [FACTOR * n for n in found["n"]]
    return sorted(found["n"])


def test_a_column_is_added_and_refreshed(spark, uri):
    ls.add_columns(uri, COLUMN, bytes_per_task=1, spark=spark)
    check(uri)
    count = change(uri)
    told = []
    part = ls.refresh_columns(uri, {"scale": scale}, max_rows=10, spark=spark)
    assert (part.num_rows, part.remaining) == (10, count - 10)
    options = {"rows_per_task": 5, "tasks_per_commit": 2, "message": "refresh"}
    done = ls.refresh_columns(uri, {"scale": scale}, progress=told.append, spark=spark, **options)
    assert (done.num_rows, done.remaining) == (count - 10, 0)
    assert done.report.work.rows == count - 10
    assert done.version == lancelet.dataset(uri).version > part.version + 1
    assert told[-1].phase == "refresh"
    check(uri)
    assert ls.refresh_columns(uri, {"scale": scale}, spark=spark).version == done.version


def test_a_model_is_loaded_once_in_each_worker(spark, uri, tmp_path):
    loads = tmp_path / "loads"
    loads.mkdir()

    def load():
        (loads / f"{os.getpid()}-{uuid.uuid4()}").touch()
        return FACTOR

    ls.add_columns(uri, COLUMN, setup=load, bytes_per_task=1, spark=spark)
    assert lancelet.dataset(uri).stale_rows().columns == {"scaled": "scale(n)"}
    change(uri)
    for path in loads.iterdir():
        path.unlink()
    ls.refresh_columns(uri, {"scale": scale}, setup=load, rows_per_task=5, spark=spark)
    workers = [path.name.split("-")[0] for path in loads.iterdir()]
    assert len(workers) == len(set(workers)) > 0
    check(uri)


def test_tasks_that_are_tried_again_count_once(spark, uri, tmp_path):
    ls.add_columns(uri, COLUMN, spark=spark)
    count = change(uri)
    failed = str(tmp_path / "failed")

    def dies_once(numbers):
        try:
            os.close(os.open(failed, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return scale(numbers)
        return os.kill(os.getpid(), signal.SIGKILL)

    done = ls.refresh_columns(
        uri,
        {"scale": dies_once},
        batch_size=2,
        rows_per_task=5,
        checkpoint=str(tmp_path / "notes"),
        spark=spark,
    )
    assert (done.num_rows, done.remaining) == (count, 0)
    check(uri)


def test_errors_of_functions_and_inputs_name_the_next_step(spark, uri):
    ls.add_columns(uri, COLUMN, spark=spark)
    count = change(uri)

    def fail(numbers):
        if 105 in numbers.to_pylist():
            raise ValueError("the model failed")
        return scale(numbers)

    with pytest.raises(ColumnFunctionError, match="functions="):
        ls.refresh_columns(uri, spark=spark)
    with pytest.raises(ColumnFunctionError, match="the model failed"):
        ls.refresh_columns(uri, {"scale": fail}, rows_per_task=1, spark=spark)
    assert 0 < lancelet.dataset(uri).stale_rows().rows < count
    count = lancelet.dataset(uri).stale_rows().rows
    ls.add_columns(uri, {"other": "n + 1"}, spark=spark)
    assert lancelet.dataset(uri).stale_rows().rows == count
    ls.refresh_columns(uri, {"scale": scale}, spark=spark)
    ls.sql(spark, f"ALTER TABLE lance.`{uri}` RENAME COLUMN n TO m")
    assert lancelet.dataset(uri).stale_rows().rows == 0
    lancelet.dataset(uri).insert({"m": [7777]})
    ls.refresh_columns(uri, {"scale": scale}, spark=spark)
    assert lancelet.dataset(uri).to_table(filter="m = 7777")["scaled"].to_pylist() == [23331]


def test_rows_that_others_change_meanwhile_stay_stale(spark, uri, tmp_path):
    ls.add_columns(uri, COLUMN, spark=spark)
    change(uri)
    changed = str(tmp_path / "changed")

    def changes_once(numbers):
        try:
            os.close(os.open(changed, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return scale(numbers)
        other = lancelet.dataset(uri)
        other.update({"n": "5000"}, where="n = 102")
        other.delete("n = 110")
        other.insert({"n": [6000]})
        return scale(numbers)

    ls.refresh_columns(uri, {"scale": changes_once}, rows_per_task=5, spark=spark)
    ls.refresh_columns(uri, {"scale": scale}, spark=spark)
    found = check(uri)
    assert {5000, 6000} <= set(found)
    assert not {102, 110} & set(found)


def test_expressions_are_refreshed_by_a_statement(spark, uri):
    table = f"lance.`{uri}`"
    lancelet.dataset(uri).add_columns(ComputedColumn("scaled", f"n * {FACTOR}"))
    count = change(uri)
    (row,) = ls.sql(spark, f"ALTER TABLE {table} REFRESH COLUMNS").collect()
    assert (row.num_rows, row.remaining) == (count, 0)
    check(uri)
    lancelet.dataset(uri).add_columns(ComputedColumn("more", scale, ("n",), pa.int64()))
    with pytest.raises(Exception, match=r"ls.refresh_columns\(path, \{'scale'"):
        ls.sql(spark, f"ALTER TABLE {table} REFRESH COLUMNS")


def test_a_large_fragment_is_computed_by_several_tasks(spark, tmp_path):
    uri, notes = str(tmp_path / "t.lance"), str(tmp_path / "notes")
    lancelet.write_dataset(pa.table({"n": range(40)}), uri, enable_stable_row_ids=True)
    deferred = ComputedColumn("scaled", scale, ("n",), pa.int64(), is_deferred=True)
    ls.add_columns(uri, deferred, spark=spark)
    for option in ("batch_size", "rows_per_task", "tasks_per_commit", "max_rows"):
        with pytest.raises(InvalidInputError, match=option):
            ls.refresh_columns(uri, {"scale": scale}, spark=spark, **{option: -1})
    options = {"rows_per_task": 10, "batch_size": 4, "checkpoint": notes}
    done = ls.refresh_columns(uri, {"scale": scale}, spark=spark, **options)
    phases = [(phase.name, phase.tasks) for phase in done.report.phases]
    assert phases == [("compute", 4), ("refresh", 1)]
    assert (done.num_rows, done.remaining) == (40, 0)
    check(uri)


DRIVER = """
import sys
from pathlib import Path
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from lancelet import spark as ls

uri, notes, calls = sys.argv[1:]

def scale(numbers):
    import time, uuid
    for number in numbers.to_pylist():
        (Path(calls) / f"{number}-{uuid.uuid4()}").touch()
    time.sleep(0.2)
    return pc.multiply(numbers, 3)

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
ls.refresh_columns(
    uri, {"scale": scale}, batch_size=1, rows_per_task=5, checkpoint=notes, spark=spark
)
"""


def test_a_killed_driver_loses_a_batch_per_task(spark, uri, tmp_path):
    ls.add_columns(uri, COLUMN, spark=spark)
    count = change(uri)
    calls, notes = tmp_path / "calls", str(tmp_path / "notes")
    calls.mkdir()
    command = [sys.executable, "-c", DRIVER, uri, notes, str(calls)]
    # A session of Connect sets variables of which a classic driver would think that they are its.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SPARK_") or name == "SPARK_LOCAL_IP"
    }
    driver = subprocess.Popen(bound_to_us(command), start_new_session=True, env=environment)
    try:
        while len(list(calls.iterdir())) < 8:
            assert driver.poll() is None
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert lancelet.dataset(uri).stale_rows().rows == count
    before = {path.name.split("-")[0] for path in calls.iterdir()}

    def counted(numbers):
        for number in numbers.to_pylist():
            (calls / f"{number}-{uuid.uuid4()}").touch()
        return scale(numbers)

    done = ls.refresh_columns(
        uri, {"scale": counted}, batch_size=1, rows_per_task=5, checkpoint=notes, spark=spark
    )
    assert done.num_rows == count
    assert len(list(calls.iterdir())) <= count + 2 * 2 + 2
    assert len(before) >= 6
    check(uri)
