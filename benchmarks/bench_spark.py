"""Compare Spark jobs on Lance and on Spark's Parquet: the same rows, alternating, one session.

python benchmarks/bench_spark.py [--scale 1.0] [--rounds 5] [--tpch 1.0] [--tpcds 100] [--only tpch]

The queries of TPC-H and TPC-DS are among the cases, at scales of their own: that of TPC-DS
multiplies the rows of its facts in the tests.

CPU time is that of this process, the JVM and all Python workers. A ratio below 1 means that Lance
took less; the last column is the target for CPU time. Results are saved after each case, so that a
run that was ended continues with `--missing`; `benchmarks/report.py` writes the page. Delta on
Spark is not compared: its Python package `delta-spark` contains no JAR.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tpch
from compare import commit, machine
from pyspark.sql import DataFrame, SparkSession

import lancelet
from lancelet import spark as ls

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "spark"))
import tpcds
from session import SETTINGS, open_session

Case = tuple[str, float, Callable[[], object], Callable[[], object]]
# As docs/guide/spark/speed.md recommends.
SETTINGS["spark.python.unix.domain.socket.enabled"] = "true"
SETTINGS["spark.driver.extraJavaOptions"] = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)
DIMENSION = 128
COLUMNS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tpch", type=float, default=1.0, help="scale of TPC-H; 0 leaves it out")
    parser.add_argument("--tpcds", type=int, default=100, help="factor of TPC-DS; 0 leaves it out")
    parser.add_argument("--only", default="", help="run cases with this prefix")
    parser.add_argument("--missing", action="store_true", help="keep the cases of earlier runs")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    groups = {
        "table": (arguments.scale, cases),
        "tpch": (arguments.tpch, tpch_cases),
        "tpcds": (arguments.tpcds, tpcds_cases),
    }
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(Path(folder))
        print(f"{'case':<36}{'CPU s':>9}{'Parquet':>9}{'ratio':>8}{'target':>8}{'wall ratio':>12}")
        for group, (scale, make) in groups.items():
            only = arguments.only
            is_named = only.startswith(group) if only.startswith("tpc") else group == "table"
            if not scale or (only and not is_named):
                continue
            found = earlier(group, scale, arguments.save) if arguments.missing else {}
            for name, target, ours, theirs in make(spark, folder, scale):
                if name in found or not (
                    group == arguments.only or name.startswith(arguments.only)
                ):
                    continue
                mine, other = in_turn(ours, theirs, arguments.rounds)
                case = {"name": name, "lance": mine, "parquet": other, "target": target}
                found[name] = case | {"commit": commit(), "rounds": arguments.rounds}
                ratios = [a / max(b, 1e-3) for a, b in zip(mine, other, strict=True)]
                print(
                    f"{name:<36}{mine[1]:>9.2f}{other[1]:>9.2f}{ratios[1]:>8.2f}{target:>8.2f}"
                    f"{ratios[0]:>12.2f}",
                    flush=True,
                )
                save(group, scale, list(found.values()), arguments.save)
        spark.stop()


def save(group: str, scale: float, found: list[dict[str, object]], folder: Path) -> None:
    """Write the cases of a group, with the machine that they were measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    run = {"machine": machine(), "scale": scale, "cases": [], "spark_cases": found}
    (folder / f"spark-{group}.json").write_text(json.dumps(run, indent=2) + "\n")


def earlier(group: str, scale: float, folder: Path) -> dict[str, dict[str, object]]:
    """Return the saved cases of a group by name, if they were measured at the same scale."""
    path = folder / f"spark-{group}.json"
    run = json.loads(path.read_text()) if path.exists() else {"scale": None}
    return {case["name"]: case for case in run["spark_cases"]} if run["scale"] == scale else {}


def in_turn(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the medians of wall and CPU time of both; the first run of each does not count."""
    taken: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    for number in range(rounds + 1):
        for work, times in zip((ours, theirs), taken, strict=True):
            before, started = cpu_seconds(), time.perf_counter()
            work()
            wall = time.perf_counter() - started
            if number:
                times.append((wall, cpu_seconds() - before))
    return _medians(taken[0]), _medians(taken[1])


def _medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)


def cpu_seconds() -> float:
    """Return the CPU time of this process and its descendants, including those that ended."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # the process has ended
            continue
        pid = int(path.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    total, pending = 0, [os.getpid()]
    while pending:
        pid = pending.pop()
        total += ticks.get(pid, 0)
        pending += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def cases(spark: SparkSession, folder: str, scale: float) -> list[Case]:
    """Create the tables and return the cases; the targets are ratios of time."""
    rows, many = int(8_000_000 * scale), int(200_000 * scale)
    lance, parquet = f"{folder}/t.lance", f"{folder}/t.parquet"
    scalars = spark.range(0, rows, 1, 4).mapInArrow(make_scalars, SCALARS)
    wide = spark.range(0, many, 1, 4).mapInArrow(make_vectors, "id long, v array<float>")
    # The rows are read from files, so that creating them is not timed.
    scalars.write.parquet(f"{folder}/scalars")
    wide.write.parquet(f"{folder}/vectors")
    scalars, wide = spark.read.parquet(f"{folder}/scalars"), spark.read.parquet(f"{folder}/vectors")
    ls.write(scalars, lance)
    scalars.write.parquet(parquet)

    def theirs() -> DataFrame:
        return spark.read.parquet(parquet)

    def write_vectors() -> None:
        options = {"vector.v": DIMENSION}
        ls.write(wide, f"{folder}/v.lance", mode="overwrite", options=options)

    def merge_lance() -> None:
        statement = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        text = f"MERGE INTO lance.`{merged}` AS t USING {{new}} AS s ON t.id = s.id {statement}"
        ls.sql(spark, text, new=changed)

    def merge_parquet() -> None:
        kept = theirs().join(changed.select("id"), "id", "left_anti")
        kept.unionByName(changed).write.mode("overwrite").parquet(f"{folder}/m.parquet")

    merged = f"{folder}/m.lance"
    ls.write(scalars, merged)
    spark.read.parquet(f"{folder}/scalars").where("id % 100 = 7").write.parquet(f"{folder}/new")
    changed = spark.read.parquet(f"{folder}/new")
    few, one = "c1 = 17", f"id = {rows // 2}"
    return [
        (
            "full scan, format",
            1.1,
            lambda: noop(spark.read.format("lance").load(lance)),
            lambda: noop(theirs()),
        ),
        ("full scan, scan()", 0.8, lambda: noop(ls.scan(spark, lance)), lambda: noop(theirs())),
        (
            "one column of sixteen, scan()",
            0.6,
            lambda: noop(ls.scan(spark, lance, columns=["c0"])),
            lambda: noop(theirs().select("c0")),
        ),
        (
            "one column of sixteen, sql()",
            0.6,
            lambda: noop(ls.sql(spark, f"SELECT c0 FROM lance.`{lance}`")),
            lambda: noop(theirs().select("c0")),
        ),
        ("count", 0.05, lambda: ls.count(lance), lambda: theirs().count()),
        (
            "count, sql()",
            0.05,
            lambda: ls.sql(spark, f"SELECT count(*) FROM lance.`{lance}`").collect(),
            lambda: theirs().count(),
        ),
        (
            "SELECT a, sum(b) GROUP BY a, sql()",
            0.4,
            lambda: ls.sql(spark, f"SELECT c1, sum(c4) FROM lance.`{lance}` GROUP BY c1").collect(),
            lambda: theirs().groupBy("c1").sum("c4").collect(),
        ),
        (
            "point lookup, sql()",
            0.2,
            lambda: ls.sql(spark, f"SELECT * FROM lance.`{lance}` WHERE {one}").collect(),
            lambda: theirs().where(one).collect(),
        ),
        (
            "1 % filter on an unsorted key",
            0.5,
            lambda: noop(ls.scan(spark, lance, filter=few)),
            lambda: noop(theirs().where(few)),
        ),
        (
            "point lookup",
            0.2,
            lambda: ls.scan(spark, lance, filter=one).collect(),
            lambda: theirs().where(one).collect(),
        ),
        (
            "write scalars",
            1.3,
            lambda: ls.write(scalars, f"{folder}/w.lance", mode="overwrite"),
            lambda: scalars.write.mode("overwrite").parquet(f"{folder}/w.parquet"),
        ),
        (
            "write vectors",
            0.6,
            write_vectors,
            lambda: wide.write.mode("overwrite").parquet(f"{folder}/v.parquet"),
        ),
        ("MERGE of 1 %, Parquet rewritten", 0.5, merge_lance, merge_parquet),
    ]


def tpch_cases(spark: SparkSession, folder: str, scale: float) -> list[Case]:
    """Make the tables of TPC-H, and return its queries over Lance and over Parquet."""
    lance, plain = {}, {}
    for name, table in tpch.tables(scale):
        rows = max(1, table.num_rows // 8)
        lancelet.write_dataset(table, f"{folder}/{name}.lance", max_rows_per_file=rows + 1)
        Path(f"{folder}/{name}.parquet").mkdir()
        for number in range(0, table.num_rows, rows + 1):
            part = table.slice(number, rows + 1)
            pq.write_table(part, f"{folder}/{name}.parquet/{number}.parquet")
        spark.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(name)
        lance[name], plain[name] = f"lance.`{folder}/{name}.lance`", name

    def case(number: int, text: str) -> Case:
        ours, theirs = text.format(**lance), text.format(**plain)
        return (
            f"tpch {number}",
            1.3,
            lambda: ls.sql(spark, ours).collect(),
            lambda: spark.sql(theirs).collect(),
        )

    return [case(number, text) for number, text in tpch.QUERIES.items()]


def tpcds_cases(spark: SparkSession, folder: str, factor: float) -> list[Case]:
    """Make the tables of TPC-DS, and return its queries over Lance and over Parquet."""
    for name in tpcds.SIZES:
        if name.endswith(("_sales", "_returns", "inventory")):
            tpcds.SIZES[name] *= int(factor)
    lance = {}
    for name, table in tpcds.tables():
        path = f"{folder}/ds_{name}"
        half = table.num_rows // 2 + 1
        lancelet.write_dataset(table, f"{path}.lance", max_rows_per_file=half)
        Path(f"{path}.parquet").mkdir()
        for number in (0, half):
            pq.write_table(table.slice(number, half), f"{path}.parquet/{number}.parquet")
        spark.read.parquet(f"{path}.parquet").createOrReplaceTempView(f"ds_{name}")
        lance[name] = name
    for name in lance:
        ls.sql(
            spark,
            f"CREATE OR REPLACE TEMPORARY VIEW {name} USING lance "
            f"OPTIONS (path '{folder}/ds_{name}.lance')",
        )

    def case(number: int, text: str) -> Case:
        ours, theirs = text.format(**lance), text.format(**{name: f"ds_{name}" for name in lance})
        return (
            f"tpcds {number}",
            1.3,
            lambda: ls.sql(spark, ours).collect(),
            lambda: spark.sql(theirs).collect(),
        )

    return [case(number, text) for number, text in tpcds.QUERIES.items()]


def noop(frame: DataFrame) -> None:
    """Read all rows and drop them."""
    frame.write.format("noop").mode("overwrite").save()


SCALARS = "id long, " + ", ".join(
    f"c{number} {('double', 'int', 'string')[number % 3]}" for number in range(COLUMNS - 1)
)


def make_scalars(batches):
    """Turn ids into rows of fifteen more columns."""
    for batch in batches:
        ids = batch.column(0).to_numpy()
        random = np.random.default_rng(int(ids[0]))
        columns = [batch.column(0)]
        for number in range(COLUMNS - 1):
            drawn = random.integers(0, 100, len(ids))
            kinds = (
                lambda drawn=drawn: pa.array(drawn / 8 + random.random(len(drawn))),
                lambda drawn=drawn: pa.array(drawn, pa.int32()),
                lambda drawn=drawn: pa.array(drawn * 997).cast(pa.string()),
            )
            columns.append(kinds[number % 3]())
        yield pa.RecordBatch.from_arrays(
            columns, ["id", *(f"c{number}" for number in range(COLUMNS - 1))]
        )


def make_vectors(batches):
    """Turn ids into vectors."""
    for batch in batches:
        ids = batch.column(0).to_numpy()
        random = np.random.default_rng(int(ids[0]))
        values = pa.array(random.standard_normal(len(ids) * DIMENSION, dtype=np.float32))
        offsets = np.arange(len(ids) + 1, dtype=np.int32) * DIMENSION
        lists = pa.ListArray.from_arrays(pa.array(offsets), values)
        yield pa.RecordBatch.from_arrays([batch.column(0), lists], ["id", "v"])


if __name__ == "__main__":
    main()
