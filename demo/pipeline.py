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
from pathlib import Path

import data
from page import write_page
from report import Report, peak_memory, print_report
from scene import Demo, expect, stored_bytes
from search import index_orders, search_digits, search_many, search_orders, search_words
from session import HERE, open_session
from stream import stream

import lancelet
from lancelet import spark as ls

BATCHES = 5
ARRIVED_BEFORE_KILL = 3
LANDED_BEFORE_KILL = 2
LOG_LINES = 30
STREAM_SECONDS_MAX = 900
ROWS = 1_000_000
FRAGMENTS = 4
ROWS_PER_FRAGMENT_MIN = 1000
TAG = "loaded"


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
    with demo.report.step("tag it") as step:
        demo.sql(step, f"CREATE TAG {TAG} ON <orders>")
    parquet = demo.folder / "orders.parquet"
    with demo.report.step("the same as Parquet") as step:
        demo.orders(0, demo.rows).write.mode("overwrite").parquet(str(parquet))
        step.rows = demo.rows
    demo.report.sizes = {
        "Lance": stored_bytes(demo.table),
        "Parquet (snappy)": sum(each.stat().st_size for each in parquet.glob("*.parquet")),
    }


def stream_orders(demo: Demo) -> None:
    """Stream a fifth more into the table, in a process that is killed, and then to the end.

    The process waits for more orders until it is killed, and some arrive only after that: however
    slow or fast it is, it never ends before, and leaves something to do.
    """
    batch = demo.rows // (5 * BATCHES)
    more, killed_at = batch * BATCHES, demo.rows + batch * ARRIVED_BEFORE_KILL
    arrivals, checkpoint = str(demo.folder / "arrivals.lance"), str(demo.folder / "checkpoint")
    ls.write(demo.orders(demo.rows, killed_at), arrivals)
    arguments = (arrivals, demo.table, checkpoint, batch)
    before = lancelet.dataset(demo.table).version
    with demo.report.step("stream, killed") as step:
        step.rows = run_and_kill(demo, arguments, stop_at=before + LANDED_BEFORE_KILL)
        step.version = lancelet.dataset(demo.table).version
        step.note = "with the start of its own Spark; requests are those of watching it"
    landed = step.rows
    ls.write(demo.orders(killed_at, demo.rows + more), arrivals, mode="append")
    with demo.report.step("stream, restarted") as step:
        stream(demo.spark, *arguments).awaitTermination()
        step.rows = more - landed
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
            if process.poll() is not None:
                last = "\n".join(log.read_text().splitlines()[-LOG_LINES:])
                raise SystemExit(f"the stream ended by itself, {log} ends with:\n{last}")
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"{LANDED_BEFORE_KILL} batches took over {STREAM_SECONDS_MAX} s: see {log}"
                )
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
        values = ", ".join(f"t.{name} = s.{name}" for name in late.columns)
        names = ", ".join(late.columns)
        text = f"""MERGE INTO <orders> AS t USING (SELECT * FROM {{late}}) AS s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET {values}
WHEN NOT MATCHED THEN INSERT ({names}) VALUES (s.{", s.".join(late.columns)})"""
        changed = demo.sql(step, text, late=late)
    expect("late orders were merged", changed, late.count())
    with demo.report.step("delete cancelled") as step:
        demo.sql(step, "DELETE FROM <orders> WHERE status = 'cancelled'")
    with demo.report.step("orders by status") as step:
        text = "SELECT status, count(*) AS orders, max(id) AS latest FROM <orders> GROUP BY status"
        found = {row.status: row.orders for row in demo.query(step, text).collect()}
        step.rows = sum(found.values())
    expect("cancelled orders are gone", found.get("cancelled", 0), 0)
    expect("every other order is counted", step.rows, ls.count(demo.table))


def keep_in_shape(demo: Demo) -> None:
    live = ls.count(demo.table)
    with demo.report.step("compact") as step:
        size = max(live // FRAGMENTS, ROWS_PER_FRAGMENT_MIN)
        demo.sql(step, f"OPTIMIZE <orders> WITH (target_rows_per_fragment = {size})")
        step.rows = live
    with demo.report.step("check every value") as step:
        findings = ls.check(demo.table, spark=demo.spark)
        step.rows = live
    expect("findings of the check", len(findings), 0)
    with demo.report.step(f"read version {TAG}") as step:
        text = f"SELECT count(*) FROM <orders> VERSION AS OF '{TAG}'"
        step.rows = demo.query(step, text).collect()[0][0]
    expect("the tagged version is as it was", step.rows, demo.rows)
    demo.report.versions = demo.versions()
    with demo.report.step("clean up") as step:
        gone = ls.cleanup(demo.table, retain_versions=2, error_if_tagged_old_versions=False)
        step.note = f"{gone.old_versions} versions, {gone.bytes_removed:,} bytes"
    again = ls.scan(demo.spark, demo.table, tag=TAG, columns=["id"]).count()
    expect("the tag kept its version", again, demo.rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("demo-output"))
    parser.add_argument("--rows", type=int, default=ROWS)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve() / "pipeline"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    report = Report(arguments.rows)
    with report.step("start Spark"):
        spark = open_session(folder)
    demo = Demo(spark, folder, arguments.rows, report)
    parts = (load_digits, load_orders, stream_orders, change_orders, keep_in_shape, index_orders)
    for part in (*parts, search_many, search_orders, search_words, search_digits):
        part(demo)
    known = {each.number for each in report.versions}
    report.versions += [each for each in demo.versions() if each.number not in known]
    spark.stop()
    report.memory = peak_memory()
    print_report(report)
    print(f"\nThe report with pictures: {write_page(report, folder / 'report.html').as_uri()}")


if __name__ == "__main__":
    main()
