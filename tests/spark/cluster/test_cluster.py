"""Jobs on a cluster of two workers, with tables on S3, while executors and machines die.

Each table has every row once, cleanup finds all remaining files, and the reference reads the table.
Tasks create a file and wait for another one; in between, something is killed.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import TaskContext, cloudpickle

import lancelet
from lancelet import spark as ls
from tests.kit.spark_cluster import wait_until

# Workers cannot import tests, so functions of this module are pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

PARTS = 4
ROWS_PER_PART = 120_000
# Behind so many rows a task has finished files: more than a page, and files of half a page.
ROWS_WITH_FILES = 100_000
ROWS_PER_FILE = 30_000
ROWS = PARTS * ROWS_PER_PART
SECONDS_OF_DAWDLING = 200
SECONDS_TO_FINISH_FILES = 4


class Gate:
    """Where tasks stop in the middle until the test lets them pass, on a file system they share."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir()

    def stop(self):
        """Signal that this process is within a task, and wait."""
        (self.folder / f"waiting-{os.getpid()}").touch()
        deadline = time.monotonic() + 120
        while not (self.folder / "open").exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the gate was never opened")
            time.sleep(0.05)

    def open(self):
        (self.folder / "open").touch()

    def wait_for_tasks(self, count=1):
        """Return the numbers of the processes that wait, once there are some."""

        def waiting():
            found = [int(path.name.split("-")[1]) for path in self.folder.glob("waiting-*")]
            return found if len(found) >= count else None

        return wait_until(waiting, seconds=120)


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate")


def frame_of(spark, between, start=0, rows=ROWS):
    """Rows with tasks that call a function after some of their files are finished."""

    def call(batches):
        left = ROWS_WITH_FILES
        for batch in batches:
            first = batch.slice(0, left)
            yield first
            left -= first.num_rows
            if first.num_rows < batch.num_rows:
                between()
                yield batch.slice(first.num_rows)
                left = ROWS_PER_PART

    frame = spark.range(start, start + rows, 1, rows // ROWS_PER_PART)
    frame = frame.selectExpr("id", "id % 7 as k", "id * 0.5D as x")
    return frame.mapInArrow(call, frame.schema)


def write_by(way, frame, table, options):
    """Make a table of a frame, by the format or by the function."""
    if way == "format":
        given = {f"storage.{name}": value for name, value in options.items()}
        writer = frame.write.format("lance").mode("append").options(**given)
        writer.option("max_rows_per_file", ROWS_PER_FILE).save(table)
    else:
        ls.write(
            frame, table, options={"max_rows_per_file": ROWS_PER_FILE}, storage_options=options
        )


def files_in(server, table):
    """Return the names of all data files of a table."""
    prefix = table.removeprefix("s3://shelf/")
    listing = server.request("GET", f"shelf?list-type=2&prefix={prefix}/data/").decode()
    keys = [part.split("</Key>")[0] for part in listing.split("<Key>")[1:]]
    return {key.rsplit("/", 1)[1] for key in keys}


def used_files(server, table):
    """Return the names of the data files that the latest version uses."""
    found = lance.dataset(table, storage_options=server.storage_options)
    return {file.path for each in found.get_fragments() for file in each.data_files()}


def rows_of(server, table):
    """Return all rows as the reference reads them, in the order of their ids."""
    return lance.dataset(table, storage_options=server.storage_options).to_table().sort_by("id")


def numbers(rows=ROWS):
    ids = np.arange(rows)
    return pa.table({"id": ids, "k": ids % 7, "x": ids * 0.5})


def assert_rows(found, expected):
    for name in expected.column_names:
        assert found.column(name).equals(expected.column(name)), name


def assert_valid_without_orphans(driver, server, table):
    """Clean up, and check that no unreferenced file remains and the table is valid."""
    options = server.storage_options
    driver.run(clean, table, options)
    assert files_in(server, table) == used_files(server, table)
    assert driver.run(check, table, options) == []


def clean(spark, table, options):
    ls.cleanup(
        table, older_than=timedelta(0), delete_unverified=True, storage_options=options, spark=spark
    )


def check(spark, table, options):
    return [str(each) for each in ls.check(table, storage_options=options, spark=spark)]


def write_stopping(spark, table, options, gate):
    write_by("function", frame_of(spark, gate.stop), table, options)


def upsert(spark, table, options):
    rows = spark.range(ROWS - 100, ROWS + 100, 1, 2)
    rows = rows.selectExpr("id", "id % 7 as k", "-1.0D as x")
    merge = ls.merge(rows, table, on="id", storage_options=options)
    counts = merge.when_matched_update().when_not_matched_insert().execute().counts
    return counts.updated, counts.inserted


def stream(spark, source, target, options, checkpoint):
    given = {f"storage.{name}": value for name, value in options.items()}
    frame = spark.readStream.format("lance").options(**given).load(source)
    sink = frame.writeStream.format("lance").options(**given).option("path", target)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def backfill(spark, table, options):
    ls.add_columns(table, {"twice": "id * 2"}, storage_options=options, spark=spark)


def compact(spark, table, options):
    done = ls.compact(table, storage_options=options, spark=spark)
    return done.metrics.fragments_removed


@pytest.mark.slow
def test_the_pipeline_survives_an_executor_that_dies_in_the_middle_of_a_write(
    cluster, driver, server, table, gate, tmp_path
):
    options = server.storage_options
    call = driver.start(write_stopping, table, options, gate)
    victim = gate.wait_for_tasks(2)[0]
    wait_until(lambda: len(files_in(server, table)) >= 4, seconds=60)
    cluster.kill_executor(victim)
    gate.open()
    driver.finish(call)
    assert_rows(rows_of(server, table), numbers())
    assert files_in(server, table) > used_files(server, table), "of the dead attempt"
    assert driver.run(upsert, table, options) == (100, 100)
    driver.run(backfill, table, options)
    assert driver.run(compact, table, options) >= PARTS
    copy = f"{table}-copy.lance"
    driver.run(stream, table, copy, options, str(tmp_path / "checkpoint"))
    expected = np.arange(ROWS + 100)
    for each in (table, copy):
        rows = rows_of(server, each)
        assert_rows(rows, pa.table({"id": expected, "twice": expected * 2}))
        assert pc.sum(pc.equal(rows.column("x"), -1.0)).as_py() == 200
        assert_valid_without_orphans(driver, server, each)


def make_table(server, table, files=8):
    """Make a table of some files with the reference."""
    options = server.storage_options
    size = ROWS // files
    lance.write_dataset(numbers(), table, storage_options=options, max_rows_per_file=size)


def backfill_stopping(spark, table, options, gate, checkpoint):
    def double(batch):
        if batch.column("id")[0].as_py() % (ROWS // 4) == 0:
            gate.stop()
        return pa.record_batch({"twice": pc.multiply(batch.column("id"), 2)})

    done = ls.add_columns(
        table,
        function=double,
        schema=pa.schema([("twice", pa.int64())]),
        reads=["id"],
        checkpoint=checkpoint,
        bytes_per_task=1,
        storage_options=options,
        spark=spark,
    )
    return done.report.work.rows


@pytest.mark.slow
def test_a_backfill_survives_the_loss_of_a_machine(cluster, driver, server, table, gate, tmp_path):
    options = server.storage_options
    make_table(server, table)
    call = driver.start(backfill_stopping, table, options, gate, str(tmp_path / "notes"))
    gate.wait_for_tasks(2)
    cluster.kill_worker(1)
    gate.open()
    # Tasks that the lost machine had completed are not run again.
    assert 0 < driver.finish(call) <= ROWS
    cluster.add_worker()
    ids = np.arange(ROWS)
    assert_rows(rows_of(server, table), pa.table({"id": ids, "twice": ids * 2}))
    assert_valid_without_orphans(driver, server, table)


def refresh_stopping(spark, table, options, gate, checkpoint):
    def double(ids):
        if ids[0].as_py() % (ROWS // 4) == 0:
            gate.stop()
        return pc.multiply(ids, 2)

    done = ls.refresh_columns(
        table,
        {"double": double},
        checkpoint=checkpoint,
        rows_per_task=1,
        storage_options=options,
        spark=spark,
    )
    return done.num_rows, done.remaining


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["executor", "machine"])
def test_a_refresh_survives_the_loss_of(cluster, driver, server, table, gate, tmp_path, loss):
    def double(ids):
        return pc.multiply(ids, 2)

    options = server.storage_options
    data = numbers(ROWS // 2)
    found = lancelet.write_dataset(
        data, table, storage_options=options, enable_stable_row_ids=True, max_rows_per_file=60_000
    )
    column = lancelet.ComputedColumn("twice", double, inputs=("id",), data_type=pa.int64())
    found.add_columns(column)
    found.insert(numbers().slice(ROWS // 2), max_rows_per_file=60_000)
    found.update({"id": "id"}, where="id = 0")
    checkpoint = "s3://shelf/results-of-" + table.rsplit("/", 1)[1]
    call = driver.start(refresh_stopping, table, options, gate, checkpoint)
    victim = gate.wait_for_tasks(2)[0]
    if loss == "machine":
        cluster.kill_worker(1)
    else:
        cluster.kill_executor(victim)
    gate.open()
    assert driver.finish(call) == (ROWS // 2 + 1, 0)
    if loss == "machine":
        cluster.add_worker()
    ids = np.arange(ROWS)
    assert_rows(rows_of(server, table), pa.table({"id": ids, "twice": ids * 2}))
    assert_valid_without_orphans(driver, server, table)


@pytest.mark.slow
def test_a_compaction_survives_an_executor_that_dies(cluster, driver, server, table):
    options = server.storage_options
    make_table(server, table, files=40)
    before = files_in(server, table)
    call = driver.start(compact_small, table, options)
    wait_until(lambda: files_in(server, table) - before, seconds=120)
    # From here on every task of the compaction waits for its storage.
    server.pause()
    assert not call.done()
    try:
        os.kill(cluster.executors()[0], signal.SIGKILL)
    finally:
        server.resume()
    assert driver.finish(call) == 40
    assert_rows(rows_of(server, table), numbers())
    assert_valid_without_orphans(driver, server, table)


def compact_small(spark, table, options):
    given = {"target_rows_per_fragment": ROWS // 8}
    done = ls.compact(table, options=given, storage_options=options, spark=spark)
    return done.metrics.fragments_removed


def write_failing_once(spark, table, options, way):
    """Write with tasks that fail in the first attempt after some finished files."""

    def fail():
        if TaskContext.get().attemptNumber() == 0:
            time.sleep(SECONDS_TO_FINISH_FILES)
            raise RuntimeError("the first attempt")

    write_by(way, frame_of(spark, fail), table, options)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["format", "function"])
def test_a_task_that_is_tried_again_writes_its_rows_once(driver, server, table, way):
    driver.run(write_failing_once, table, server.storage_options, way)
    assert_rows(rows_of(server, table), numbers())
    assert files_in(server, table) > used_files(server, table), "of first attempts"
    assert_valid_without_orphans(driver, server, table)


def write_with_a_slow_attempt(spark, table, options, way, folder):
    """Write with one task that waits long in the first attempt after some finished files."""

    def dawdle():
        context = TaskContext.get()
        attempt = (context.partitionId(), context.attemptNumber())
        (Path(folder) / "attempt-{}-{}".format(*attempt)).touch()
        if attempt == (0, 0):
            time.sleep(SECONDS_OF_DAWDLING)

    write_by(way, frame_of(spark, dawdle), table, options)


@pytest.mark.slow
def test_concurrent_attempts_write_rows_once(driver, start_driver, server, table, tmp_path):
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.minTaskRuntime": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    options = server.storage_options
    with start_driver(speculation) as hasty:
        for way in ("format", "function"):
            own = f"{table}-{way}.lance"
            folder = tmp_path / way
            folder.mkdir()
            started = time.monotonic()
            hasty.run(write_with_a_slow_attempt, own, options, way, str(folder))
            assert time.monotonic() - started < SECONDS_OF_DAWDLING, (
                "the slow attempt was not waited for"
            )
            assert (folder / "attempt-0-1").exists(), "there was a second attempt"
            assert_rows(rows_of(server, own), numbers())
            assert_valid_without_orphans(hasty, server, own)


def append_stopping(spark, table, options, gate, start):
    frame = frame_of(spark, gate.stop, start, ROWS_PER_PART)
    return ls.write(frame, table, mode="append", storage_options=options).version


def upsert_both(spark, table, options, value):
    rows = spark.range(0, 500, 1, 2).selectExpr("id", "id % 7 as k", f"{value}D as x")
    merge = ls.merge(rows, table, on="id", storage_options=options)
    return merge.when_matched_update().when_not_matched_insert().execute().version


@pytest.mark.slow
def test_two_drivers_commit_at_once(driver, start_driver, server, table, gate):
    options = server.storage_options
    make_table(server, table, files=2)
    with start_driver() as other:
        both = [(driver, 0), (other, 1)]
        calls = [
            each.start(append_stopping, table, options, gate, ROWS + ROWS_PER_PART * place)
            for each, place in both
        ]
        gate.wait_for_tasks(2)
        gate.open()
        assert sorted(call.result() for call in calls) == [2, 3]
        rows = rows_of(server, table)
        assert_rows(rows, numbers(ROWS + 2 * ROWS_PER_PART))
        calls = [each.start(upsert_both, table, options, -1 - place) for each, place in both]
        versions = [call.result() for call in calls]
    rows = rows_of(server, table)
    assert rows.column("id").to_pylist() == list(range(ROWS + 2 * ROWS_PER_PART))
    last = -1.0 - versions.index(max(versions))
    assert set(rows.column("x").to_pylist()[:500]) == {last}, "the later merge won whole"
    assert_valid_without_orphans(driver, server, table)
