"""Measure how Spark reads of many fragments are planned, and count requests to an object store.

python benchmarks/bench_spark_planning.py [--fragments 100000] [--rows 1000000]

Planning reads a manifest of synthetic fragments, all of the same file. Requests are those of the
tasks and the commit of the data source, in this process and without Spark, on a store that takes
50 ms per request and 10,000 requests per second. The same work runs on tables of different sizes
with the same number of fragments. Results are saved for `benchmarks/report.py`.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from compare import commit, machine
from pyspark.sql.datasource import CaseInsensitiveDict

import lancelet
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.jobs import table_ref
from lancelet.spark.reader import LanceReader, read_schema
from lancelet.spark.types import spark_schema
from pyspark_lance import DefaultSource

LATENCY_S = 0.05
REQUESTS_PER_S = 10_000
FRAGMENTS = 8


class SlowStorage:
    """Counts requests, and delays them like an object store."""

    def __init__(self) -> None:
        self.requests = 0
        self._next_s = 0.0
        self._lock = threading.Lock()

    def request(self, request: Request, action: Callable[[], Any]) -> Any:
        """Run a request after a delay."""
        with self._lock:
            self.requests += request.reads
            self._next_s = max(self._next_s + 1 / REQUESTS_PER_S, time.monotonic())
            wait_s = self._next_s - time.monotonic() + LATENCY_S
        time.sleep(wait_s)
        return action()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fragments", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planned = [
            plan(f"{folder}/{count}", count)
            for count in (arguments.fragments // 10, arguments.fragments)
        ]
        counted = [
            case
            for rows in (arguments.rows // 100, arguments.rows // 10, arguments.rows)
            for case in requests(f"{folder}/rows{rows}", rows)
        ]
    run = {"machine": machine(), "commit": commit(), "cases": []}
    text = json.dumps({**run, "planned": planned, "counted": counted}, indent=2)
    (arguments.save / "spark-planning.json").write_text(text + "\n")


def plan(uri: str, count: int) -> dict[str, float]:
    """Plan a read of a table of many fragments."""
    rows = pa.table({"id": pa.array(range(1000), pa.int64()), "x": np.arange(1000) / 8})
    fragment = lancelet.write_dataset(rows, uri).get_fragments()[0].metadata
    append = lancelet.LanceOperation.Append([fragment] * count)
    lancelet.LanceDataset.commit(uri, append, read_version=1)
    options = {"path": uri}
    started = time.perf_counter()
    made = LanceReader.plan(options, read_schema(options))
    seconds = time.perf_counter() - started
    tracemalloc.start()
    LanceReader.plan(options, read_schema(options))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    case = {
        "fragments": count,
        "seconds": seconds,
        "tasks": len(made.tasks),
        "peak_mb": peak / 2**20,
        "plan_mb": len(pickle.dumps(made)) / 2**20,
    }
    print(case, flush=True)
    return case


def requests(uri: str, rows: int) -> list[dict[str, object]]:
    """Count the requests of reads and of an upsert."""
    numbers = np.arange(rows)
    table = pa.table({"id": numbers, "x": numbers / 8, "s": pa.array(numbers % 97).cast("string")})
    lancelet.write_dataset(table, uri, max_rows_per_file=rows // FRAGMENTS)
    changed = table.take(pa.array(np.arange(0, rows, rows // 100)[:100]))
    return [
        counted("scan of all columns", rows, lambda: read(uri)),
        counted("filter of one key", rows, lambda: read(uri, filter=f"id = {rows // 2}")),
        counted("upsert of 100 keys", rows, lambda: upsert(uri, changed)),
    ]


def counted(name: str, rows: int, work: Callable[[], object]) -> dict[str, object]:
    """Run some work on slow storage, and return its requests."""
    slow = SlowStorage()
    locate = table_ref._locate

    def located(*arguments: Any) -> Any:
        location = locate(*arguments)
        return replace(location, store=WrappedStore(location.store, slow))

    table_ref._locate = located
    started = time.perf_counter()
    try:
        work()
    finally:
        table_ref._locate = locate
    seconds = time.perf_counter() - started
    case = {"name": name, "rows": rows, "requests": slow.requests, "seconds": seconds}
    print(case, flush=True)
    return case


def read(uri: str, **options: str) -> None:
    """Plan a read, and run its tasks one after the other."""
    given = {"path": uri, **options}
    reader = LanceReader.plan(given, read_schema(given))
    for partition in reader.partitions():
        for _ in reader.read(partition):
            pass


def upsert(uri: str, rows: pa.Table) -> None:
    """Merge rows by key, as a stream does."""
    options = {"path": uri, "upsert_on": "id", "stream_id": "measured"}
    source = DefaultSource(CaseInsensitiveDict(options))
    writer = source.streamWriter(spark_schema(rows.schema), overwrite=False)
    writer.commit([writer.write(iter(rows.to_batches()))], 0)


if __name__ == "__main__":
    main()
