"""A stream into the log for minutes, whose driver and workers are killed again and again.

2,000 rows a second, a trigger of one second, two cores. Beside it the log becomes part of the
table, and is read fresh. Rows are numbered without gaps by their source, so that a row which is
lost, or there twice, is seen.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.mem_wal import LsmScanner
from tests.kit.spark_cluster import descendants, wait_until

MODE = os.environ.get("LANCELET_SPARK_MODE", "classic")
SECONDS = int(os.environ.get("LANCELET_SOAK_SECONDS", "600" if MODE == "classic" else "90"))
ROWS_PER_SECOND = 2_000
SECONDS_PER_DRIVER = 60
KEY = {"lance-schema:unenforced-primary-key": "true"}
DRIVER = """
import json, sys, time

from conftest import SETTINGS
from pyspark.sql import SparkSession

mode, uri, checkpoint, told, folder, trigger = sys.argv[1:]
builder = SparkSession.builder.appName("lancelet")
for name, value in (SETTINGS | {"spark.local.dir": folder}).items():
    builder = builder.config(name, value)
builder = builder.remote("local[2,4]") if mode == "connect" else builder.master("local[2,4]")
spark = builder.getOrCreate()
rate = spark.readStream.format("rate").option("rowsPerSecond", ROWS).option("numPartitions", 2)
query = (
    rate.load().selectExpr("value AS id", "value * 7 AS k")
    .writeStream.format("lance").option("path", uri).option("log", "true")
    .option("checkpointLocation", checkpoint).trigger(**json.loads(trigger)).start()
)
seen = -1
with open(told, "a", encoding="utf-8") as log:
    while query.isActive:
        time.sleep(1)
        for each in query.recentProgress:
            if each["batchId"] > seen and each["numInputRows"]:
                seen = each["batchId"]
                taken = each["durationMs"]["triggerExecution"]
                log.write(json.dumps([seen, each["numInputRows"], taken]) + "\\n")
        log.flush()
if query.exception() is not None:
    raise query.exception()
"""
EACH_SECOND, TO_THE_END = {"processingTime": "1 second"}, {"availableNow": True}


@contextlib.contextmanager
def running(tmp_path, uri, trigger):
    """Start a driver, and kill all of it in the end."""
    paths = [os.environ.get("PYTHONPATH", ""), str(Path(__file__).parent)]
    source = DRIVER.replace("ROWS)", f"{ROWS_PER_SECOND})")
    places = [str(tmp_path / "checkpoint"), str(tmp_path / "told"), str(tmp_path)]
    arguments = [MODE, uri, *places, json.dumps(trigger)]
    with (tmp_path / "driver.log").open("ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-c", source, *arguments],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "PYSPARK_PYTHON": sys.executable,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        for pid, _ in [(driver.pid, ""), *descendants(driver.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.wait()


def wait_for_batch(driver, told):
    """Wait until a driver has done a batch, or has ended."""
    before = told.stat().st_size
    wait_until(lambda: told.stat().st_size > before or driver.poll() is not None, seconds=300)


def kill_a_worker(driver, chance):
    """Kill a worker of Python, whatever it does."""
    workers = [pid for pid, command in descendants(driver.pid) if "daemon" in command]
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(workers), signal.SIGKILL)
    return bool(workers)


def check(table, *, is_whole):
    """Refuse rows that are there twice, or with another value, or not at all but for a batch."""
    ids = np.sort(table["id"].to_numpy())
    assert np.array_equal(table["k"].to_numpy(), table["id"].to_numpy() * 7)
    assert (np.diff(ids) > 0).all(), "a row is there twice"
    if is_whole:
        assert np.array_equal(ids, np.arange(-1, len(ids) - 1)), "a row is lost"


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_by_kills(tmp_path):
    uri, chance = str(tmp_path / "t.lance"), random.Random(17)
    schema = pa.schema([pa.field("id", pa.int64(), False, KEY), ("k", pa.int64())])
    made = lancelet.write_dataset(pa.table([[-1], [-7]], schema=schema), uri)
    made.initialize_mem_wal(bucket_column="id", num_buckets=2)
    (tmp_path / "told").touch()
    began, done = time.monotonic(), Counter()
    while time.monotonic() - began < SECONDS:
        with running(tmp_path, uri, EACH_SECOND) as driver:
            done["drivers"] += 1
            wait_for_batch(driver, tmp_path / "told")
            stop = time.monotonic() + chance.uniform(0.5, 1) * SECONDS_PER_DRIVER
            while time.monotonic() < stop and driver.poll() is None:
                time.sleep(chance.uniform(4, 8))
                done["workers"] += kill_a_worker(driver, chance)
                if chance.random() < 0.3:
                    table = lancelet.dataset(uri)
                    # A batch is put shard by shard, so the last may be there in part.
                    check(LsmScanner.fresh(table).to_table(), is_whole=False)
                    table.compact_mem_wal(flush=True)
                    done["merges"] += 1
    with running(tmp_path, uri, TO_THE_END) as driver:
        assert driver.wait() == 0, (tmp_path / "driver.log").read_text()[-3000:]
    table = lancelet.dataset(uri)
    check(LsmScanner.fresh(table).to_table(), is_whole=True)
    table.compact_mem_wal(flush=True)
    check(table.to_table(), is_whole=True)
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    seconds = sorted(taken / 1000 for _, _, taken in told)
    sys.stdout.write(
        f"{dict(done)}, {table.count_rows()} rows of {ROWS_PER_SECOND * SECONDS}, {len(told)} "
        f"batches, of which half took less than {seconds[len(seconds) // 2]} s\n"
    )
