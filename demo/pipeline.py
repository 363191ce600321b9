"""The main job, end to end: Spark writes, streams, embeds, merges, compacts and searches tables.

    make demo
    python demo/pipeline.py --folder demo-output [--rows 1000000]

Orders are made by a fixed seed, digits come with scikit-learn. The stream is killed in the middle
and started again. At the end there is a report on the terminal and one with pictures beside the
tables. Figures are of the machine that it runs on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import data
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from page import write_page
from report import Report, Version, print_report
from session import HERE, open_session
from stream import stream

import lancelet
from lancelet import spark as ls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 5
LANDED_BEFORE_KILL = 2
STREAM_SECONDS_MAX = 900
NEIGHBOURS = 5
QUERIES = 200
TAG = "loaded"


@dataclass(frozen=True)
class Demo:
    """What the steps share: the session, where things are, how much there is, what was found."""

    spark: SparkSession
    folder: Path
    rows: int
    report: Report

    @property
    def table(self) -> str:
        return str(self.folder / "orders.lance")

    @property
    def digits(self) -> str:
        return str(self.folder / "digits.lance")

    def orders(self, first: int, stop: int, step: int = 1, *, is_late: bool = False) -> DataFrame:
        """Return a data frame of orders, which is made in tasks."""
        make = data.late_orders if is_late else data.orders
        return self.spark.range(first, stop, step, 4).mapInArrow(make, data.ORDERS)


def load_digits(demo: Demo) -> None:
    with demo.report.step("write digits") as step:
        frame = demo.spark.createDataFrame(data.digits())
        step.job(ls.write(frame, demo.digits, options={"vector.pixels": data.DIGIT_SIDE**2}))
    with demo.report.step("embed digits") as step:
        step.job(
            ls.add_columns(
                demo.digits,
                function=data.embed_digits,
                setup=data.digit_axes,
                schema=data.EMBEDDINGS,
                reads=["pixels"],
                spark=demo.spark,
            )
        )


def load_orders(demo: Demo) -> None:
    with demo.report.step("write orders") as step:
        frame = demo.orders(0, demo.rows)
        step.job(ls.write(frame, demo.table, options={"enable_stable_row_ids": True}))
    lancelet.dataset(demo.table).tags.create(TAG, step.version)
    parquet = demo.folder / "orders.parquet"
    with demo.report.step("the same as Parquet") as step:
        demo.orders(0, demo.rows).write.mode("overwrite").parquet(str(parquet))
        step.rows = demo.rows
    demo.report.sizes = {
        "Lance": stored_bytes(demo.table),
        "Parquet (snappy)": sum(each.stat().st_size for each in parquet.glob("*.parquet")),
    }


def stream_orders(demo: Demo) -> None:
    """Stream a fifth more into the table, in a process that is killed, and then to the end."""
    more = demo.rows // 5
    arrivals, checkpoint = str(demo.folder / "arrivals.lance"), str(demo.folder / "checkpoint")
    ls.write(demo.orders(demo.rows, demo.rows + more), arrivals)
    arguments = (arrivals, demo.table, checkpoint, more // BATCHES)
    before = lancelet.dataset(demo.table).version
    with demo.report.step("stream, killed") as step:
        step.rows = run_and_kill(demo, arguments, stop_at=before + LANDED_BEFORE_KILL)
        step.version = lancelet.dataset(demo.table).version
        step.note = "requests are those of watching it"
    with demo.report.step("stream, restarted") as step:
        stream(demo.spark, *arguments)
        step.rows = more - demo.report.steps[-1].rows
        step.version = lancelet.dataset(demo.table).version
    ids = ls.scan(demo.spark, demo.table, columns=["id"])
    expect("every order is there once", ids.distinct().count(), demo.rows + more)
    expect("no order is there twice", ls.count(demo.table), demo.rows + more)


def run_and_kill(demo: Demo, arguments: tuple[str, str, str, int], stop_at: int) -> int:
    """Run the stream as a process until some batches have landed, kill it, return its rows."""
    table = lancelet.dataset(demo.table)
    before = table.count_rows()
    command = [sys.executable, str(HERE / "stream.py"), str(demo.folder), *map(str, arguments)]
    log = demo.folder / "stream.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + STREAM_SECONDS_MAX
    try:
        while table.latest_version < stop_at:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the stream ended before it could be killed: see {log}")
            time.sleep(0.25)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return lancelet.dataset(demo.table).count_rows() - before


def change_orders(demo: Demo) -> None:
    with demo.report.step("embed comments") as step:
        step.job(
            ls.add_columns(
                demo.table,
                function=data.embed_comments,
                setup=data.word_vectors,
                schema=data.EMBEDDINGS,
                reads=["comment"],
                checkpoint=demo.folder / "notes",
                spark=demo.spark,
            )
        )
    total = ls.count(demo.table)
    step_size = 50
    with demo.report.step("upsert late orders") as step:
        late = demo.orders(0, total + total // 10, step_size, is_late=True)
        merge = ls.merge(late, demo.table, on="id")
        done = merge.when_matched_update().when_not_matched_insert().execute()
        step.job_report(done.version, done.counts.total, done.report)
    expect("late orders were merged", done.counts.inserted + done.counts.updated, late.count())
    with demo.report.step("delete cancelled") as step:
        step.job(ls.delete(demo.table, "status = 'cancelled'", spark=demo.spark))
    gone = ls.count(demo.table, filter="status = 'cancelled'", spark=demo.spark)
    expect("cancelled orders are gone", gone, 0)


def keep_in_shape(demo: Demo) -> None:
    live = ls.count(demo.table)
    with demo.report.step("compact") as step:
        done = ls.compact(demo.table, spark=demo.spark)
        step.job_report(done.version, live, done.report)
    with demo.report.step("check every value") as step:
        findings = ls.check(demo.table, spark=demo.spark)
        step.rows = live
    expect("findings of the check", len(findings), 0)
    with demo.report.step(f"read version {TAG}") as step:
        step.rows = ls.scan(demo.spark, demo.table, tag=TAG, columns=["id"]).count()
    expect("the tagged version is as it was", step.rows, demo.rows)
    demo.report.versions = versions_of(demo)
    with demo.report.step("clean up") as step:
        gone = ls.cleanup(demo.table, retain_versions=2, error_if_tagged_old_versions=False)
        step.note = f"{gone.old_versions} versions, {gone.bytes_removed:,} bytes"
    again = ls.scan(demo.spark, demo.table, tag=TAG, columns=["id"]).count()
    expect("the tag kept its version", again, demo.rows)


def search_orders(demo: Demo) -> None:
    """Find the orders of a customer, before and after there is an index."""
    table = lancelet.dataset(demo.table)
    wanted = f"customer = {table.take([0], columns=['customer'])['customer'][0]}"
    with demo.report.step("find a customer by scan") as step:
        scanned = table.to_table(columns=["id"], filter=wanted)
        step.rows = len(scanned)
    with demo.report.step("build an index") as step:
        table.create_scalar_index("customer", "BTREE")
        step.rows, step.version = table.count_rows(), table.version
    with demo.report.step("find a customer by index") as step:
        found = table.to_table(columns=["id"], filter=wanted)
        step.rows = len(found)
    order = [("id", "ascending")]
    expect("rows by index", found.sort_by(order).equals(scanned.sort_by(order)), True)


def search_digits(demo: Demo) -> None:
    """Tell digits by their nearest neighbours, each digit of the queries left out itself."""
    table = lancelet.dataset(demo.digits)
    queries = table.to_table().take(pa.array(np.arange(0, table.count_rows(), 9)[:QUERIES]))
    hits = 0
    with demo.report.step("find similar digits") as step:
        for row in queries.to_pylist():
            wish = {"column": "embedding", "q": np.float32(row["embedding"]), "k": NEIGHBOURS + 1}
            found = table.to_table(columns=["id", "label", "pixels"], nearest=wish)
            others = found.filter(pc.not_equal(found["id"], row["id"])).to_pylist()
            hits += others[0]["label"] == row["label"]
            if len(demo.report.similar) < 6:
                similar = [each["pixels"] for each in others[:NEIGHBOURS]]
                demo.report.similar.append([row["pixels"], *similar])
        step.rows = len(queries)
        step.note = f"{hits} of {len(queries)} have the same label"


def versions_of(demo: Demo) -> list[Version]:
    ls.register(demo.spark)
    sql = f"SELECT version, operation, rows, fragments, bytes FROM lance_versions('{demo.table}')"
    return [Version(*row) for row in demo.spark.sql(sql).collect()]


def stored_bytes(uri: str) -> int:
    return int(lancelet.dataset(uri).versions()[-1]["metadata"]["total_files_size"])


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise SystemExit(f"{what}: expected {expected}, found {found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("demo-output"))
    parser.add_argument("--rows", type=int, default=100_000)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve() / "pipeline"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report(arguments.rows)
    with report.step("start Spark"):
        spark = open_session(folder)
    demo = Demo(spark, folder, arguments.rows, report)
    for part in (load_digits, load_orders, stream_orders, change_orders, keep_in_shape):
        part(demo)
    spark.stop()
    search_orders(demo)
    search_digits(demo)
    print_report(report)
    print(f"\nThe report with pictures: {write_page(report, folder / 'report.html').as_uri()}")


if __name__ == "__main__":
    main()
