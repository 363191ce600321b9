"""Compare Spark jobs on Lance and on Spark's Parquet: the same rows, alternating, one session.

python benchmarks/bench_spark.py [--scale 1.0] [--rounds 5] [--tpch 1.0] [--only tpch]

TPC-H's 22 queries are among the cases, at a scale of their own.

Times are medians of wall time, since the work runs in other processes. A ratio below 1 means that
Lance took less time; the last column is the target. Results are saved for
`benchmarks/report.py`.
"""

from __future__ import annotations

import argparse
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
from compare import save
from pyspark.sql import DataFrame, SparkSession

import lancelet
from lancelet import spark as ls

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
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
    parser.add_argument("--only", default="", help="run cases with this prefix")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(Path(folder))
        found = []
        print(f"{'case':<36}{'lance s':>9}{'parquet s':>11}{'lance/parquet':>15}{'target':>8}")
        chosen: list[Case] = []
        if not arguments.only.startswith("tpch"):
            chosen += cases(spark, folder, arguments.scale)
        if arguments.tpch:
            chosen += tpch_cases(spark, folder, arguments.tpch)
        for name, target, ours, theirs in chosen:
            if not name.startswith(arguments.only):
                continue
            mine, other = in_turn(ours, theirs, arguments.rounds)
            line = f"{name:<36}{mine:>9.3f}{other:>11.3f}{mine / other:>14.2f}x{target:>7.1f}x"
            print(line, flush=True)
            found.append({"name": name, "lance_s": mine, "parquet_s": other, "target": target})
        ratios = [
            each["lance_s"] / each["parquet_s"] for each in found if each["name"].startswith("tpch")
        ]
        if ratios:
            print(
                f"{'tpch, geometric mean':<54}{statistics.geometric_mean(ratios):>16.2f}x    0.9x"
            )
        spark.stop()
    extra = {"scale": arguments.scale, "rounds": arguments.rounds, "spark_cases": found}
    save("spark", [], extra, arguments.save)


def in_turn(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """Return the medians of both, which run alternately after one run that does not count."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for work, seconds in zip((ours, theirs), taken, strict=True):
            started = time.perf_counter()
            work()
            if number:
                seconds.append(time.perf_counter() - started)
    return statistics.median(taken[0]), statistics.median(taken[1])


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

    few, one = "c1 = 17", f"id = {rows // 2}"
    return [
        (
            "full scan, format",
            1.2,
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
    targets = {1: 0.5, 6: 0.5}

    def case(number: int, text: str) -> Case:
        ours, theirs = text.format(**lance), text.format(**plain)
        return (
            f"tpch {number}",
            targets.get(number, 0.9),
            lambda: ls.sql(spark, ours).collect(),
            lambda: spark.sql(theirs).collect(),
        )

    return [case(number, text) for number, text in tpch.QUERIES.items()]


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
