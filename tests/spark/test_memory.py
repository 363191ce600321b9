"""How much memory the workers of Python take: less than 1 GiB for a task of 256 MB of data.

What counts is the most that a worker ever had in memory, pages of local files that it mapped
included, over all its tasks: workers live as long as their executor.
"""

import os
import sys
import threading
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from lancelet import spark as ls
from tests.kit.spark_cluster import descendants

# Workers of a Connect server cannot import tests, so what is defined here travels by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

LIMIT_MB = 1024
DATA_MB = 256
DIMENSION = 2048
VECTORS = DATA_MB * 1024 * 1024 // (4 * DIMENSION)
BLOB_BYTES = 10 * 1024 * 1024


class WorkerMemory:
    """The most memory that any worker of Python took while this was open, in MB."""

    def __init__(self, job, record):
        self.most = 0
        self._job, self._record = job, record
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def look(self):
        self.most = max(self.most, *map(most_mb, self._workers()), 0)

    def _workers(self):
        # The daemon that forks them may be Spark's or ours.
        return [pid for pid, command in descendants(os.getpid()) if "daemon pyspark." in command]

    def _watch(self):
        while not self._is_over.wait(0.1):
            self.look()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, *_):
        self.look()
        self._is_over.set()
        self._thread.join()
        self._record(f"{self._job} MB", self.most)
        # Nothing was looked at if a worker seems smaller than an interpreter with Arrow.
        assert kind or 20 < self.most < LIMIT_MB, self._job


def most_mb(pid):
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    return found[0] // 1024 if found else 0


@pytest.fixture
def small(record_property):
    """Return what watches a job, and fails if a worker takes too much."""
    return lambda job: WorkerMemory(job, record_property)


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


def vectors(batches):
    """Make vectors of the ids of batches, in parts that are small themselves."""
    for batch in batches:
        for start in range(0, batch.num_rows, 1000):
            ids = batch.column(0).slice(start, 1000)
            first = ids.to_numpy().astype(np.float32)
            values = (first[:, None] + np.arange(DIMENSION, dtype=np.float32)).reshape(-1)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSION)
            yield pa.record_batch({"id": ids, "v": lists.cast(pa.list_(pa.float32()))})


def write_vectors(spark, uri, start=0, stop=VECTORS, mode="create"):
    frame = spark.range(start, stop, 1, 1).mapInArrow(vectors, "id long, v array<float>")
    return ls.write(frame, uri, mode=mode, options={"vector.v": DIMENSION})


@pytest.mark.slow
def test_wide_vectors(spark, uri, small):
    with small("write"):
        assert write_vectors(spark, uri).num_rows == VECTORS
    size = 2 * DATA_MB * 1024 * 1024
    with small("scan"):
        frame = ls.scan(spark, uri, bytes_per_task=size)
        assert frame.selectExpr("sum(v[1] - id)").first()[0] == VECTORS
    with small("read"):
        frame = spark.read.format("lance").option("split_bytes", size).load(uri)
        assert frame.selectExpr("sum(v[1] - id)").first()[0] == VECTORS
    assert lance.dataset(uri).count_rows() == VECTORS


@pytest.mark.slow
def test_jobs_over_wide_vectors(spark, uri, small):
    for start in range(0, VECTORS, VECTORS // 4):
        mode = "append" if start else "create"
        write_vectors(spark, uri, start, start + VECTORS // 4, mode)
    size = 2 * DATA_MB * 1024 * 1024

    def negative(batch):
        lists = batch.column("v")
        values = pa.array(-lists.values.to_numpy())
        return pa.record_batch({"w": pa.FixedSizeListArray.from_arrays(values, DIMENSION)})

    def backfill():
        ls.add_columns(
            uri,
            function=negative,
            schema=pa.schema([("w", pa.list_(pa.float32(), DIMENSION))]),
            reads=["v"],
            bytes_per_task=size,
            spark=spark,
        )

    jobs = {
        "update": lambda: ls.update(uri, {"id": "id + 1"}, "id % 2 = 0", spark=spark),
        "compact": lambda: ls.compact(uri, spark=spark),
        "check": lambda: ls.check(uri, spark=spark),
        "backfill": backfill,
    }
    for name, run in jobs.items():
        with small(name):
            run()
    found = lance.dataset(uri)
    assert found.count_rows() == VECTORS
    row = found.to_table(limit=1).to_pylist()[0]
    assert row["w"] == [-x for x in row["v"]]


@pytest.mark.slow
def test_large_blobs(spark, uri, tmp_path, small):
    folder = tmp_path / "files"
    folder.mkdir()
    count = DATA_MB * 1024 * 1024 // BLOB_BYTES + 1
    for number in range(count):
        content = np.random.default_rng(number).bytes(BLOB_BYTES)
        (folder / f"{number:03}.bin").write_bytes(content)
    with small("ingest"):
        ls.ingest_files(folder, uri, bytes_per_task=2 * DATA_MB << 20, spark=spark)
    table = lance.dataset(uri)
    ids = table.to_table(columns=["path"], with_row_id=True).column("_rowid").to_pylist()
    assert table.take_blobs("data", ids=ids[3:4])[0].readall() == (folder / "003.bin").read_bytes()
    for name, run in {
        "check": lambda: ls.check(uri, spark=spark),
        "delete": lambda: ls.delete(uri, "path = '000.bin'", spark=spark),
        "compact": lambda: ls.compact(
            uri, options={"materialize_deletions_threshold": 0.0}, spark=spark
        ),
    }.items():
        with small(name):
            run()
    assert lance.dataset(uri).count_rows() == count - 1


@pytest.mark.slow
def test_binary_values_of_ten_megabytes_pass_through_spark(spark, uri, small):
    """Values that are no blobs: they lie in pages, and go through the JVM row by row."""
    before = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    count = DATA_MB * 1024 * 1024 // BLOB_BYTES

    def large(batches):
        for batch in batches:
            for number in batch.column(0).to_pylist():
                value = bytes([number]) * BLOB_BYTES
                yield pa.record_batch({"id": [number], "data": pa.array([value])})

    try:
        frame = spark.range(0, count, 1, 1).mapInArrow(large, "id long, data binary")
        with small("write"):
            ls.write(frame, uri)
        with small("scan"):
            found = ls.scan(spark, uri, bytes_per_task=2 * DATA_MB << 20)
            total = found.selectExpr("sum(length(data))").first()[0]
        assert total == count * BLOB_BYTES
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", before)
