"""Measure each additional way to read pages, by reading with and without it.

python benchmarks/bench_ways.py [plans packs in_place]

Each measurement runs in a process of its own, because opened columns are cached per process.
Decision record 36 lists the results.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import lancelet

WAYS = ("plans", "packs", "in_place")
REPEATS = 7


def disable(way: str) -> None:
    """Make all reads of this process do without a way."""
    from lancelet.file import rows
    from lancelet.file.v2.reader import FileReader
    from lancelet.table.snapshot import Snapshot

    match way:
        case "plans":
            FileReader._planned = lambda _, fields: [None] * len(fields)
        case "packs":
            Snapshot.open_small_files = lambda *_: None
        case "in_place":
            rows.RowReader.read_value_slices = lambda *_: None


def make_tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    structs = [
        [{"a": n, "b": n / 3, "s": f"x{n % 50}"} for n in range(k % 5)] for k in range(200_000)
    ]
    tables = {
        "wide": {f"c{n}": rng.random(20_000) for n in range(500)},
        "narrow": {
            f"c{n}": rng.integers(0, 1 << (4 + 2 * n), 1_000_000)
            if n % 2
            else rng.random(1_000_000)
            for n in range(16)
        },
        "structs": {"l": pa.array(structs)},
        "lists": {"l": pa.array([list(range(k % 9)) for k in range(300_000)])},
        "vectors": {
            "v": pa.FixedSizeListArray.from_arrays(
                pa.array(rng.random(200_000 * 128, np.float32)), 128
            )
        },
    }
    for name, columns in tables.items():
        lancelet.write_dataset(pa.table(columns), str(folder / name))
    lancelet.dataset(str(folder / "vectors")).create_index(
        "v", "IVF_PQ", num_partitions=64, num_sub_vectors=16
    )
    for number in range(1000):
        rows = pa.table({"k": np.arange(10) + 10 * number, "s": [f"s{n}" for n in range(10)]})
        lancelet.write_dataset(
            rows, str(folder / "fragments"), mode="append" if number else "create"
        )


def cases(folder: Path, way: str) -> Iterator[tuple[str, Callable[[], object]]]:
    def opened(name: str) -> lancelet.LanceDataset:
        return lancelet.dataset(str(folder / name), session=lancelet.Session())

    def take(name: str, num_rows: int, count: int) -> Callable[[], object]:
        dataset = opened(name)
        rows = np.sort(np.random.default_rng(1).choice(num_rows, count, replace=False)).tolist()
        return lambda: dataset.take(rows)

    def search(factor: int) -> Callable[[], object]:
        dataset, query = opened("vectors"), np.random.default_rng(2).random(128, np.float32)
        nearest = {"column": "v", "q": query, "k": 10, "nprobes": 20, "refine_factor": factor}
        return lambda: dataset.to_table(columns=[], nearest=nearest)

    match way:
        case "plans":
            yield "all of 500 columns of 20,000 rows", opened("wide").to_table
            yield "the same, opened again", lambda: opened("wide").to_table()
            yield "10 rows of 500 columns", take("wide", 20_000, 10)
            yield "700 rows of 500 columns", take("wide", 20_000, 700)
            yield "all of 16 columns of 1,000,000 rows", opened("narrow").to_table
            yield "1 of 16 columns", lambda: opened("narrow").to_table(columns=["c4"])
            for count in (10, 100, 1000, 10_000):
                yield f"{count:,} rows of 16 columns", take("narrow", 1_000_000, count)
            few = list(range(0, 1_000_000, 100_000))
            yield "10 rows of 16 columns, opened again", lambda: opened("narrow").take(few)
            yield "all lists of structs", opened("structs").to_table
            yield "all lists of integers", opened("lists").to_table
            for count in (100, 1000, 10_000):
                yield f"{count:,} rows of lists of structs", take("structs", 200_000, count)
                yield f"{count:,} rows of lists of integers", take("lists", 300_000, count)
        case "packs":
            yield "1,000 fragments of 10 rows", opened("fragments").to_table
            yield "the same, opened again", lambda: opened("fragments").to_table()
            yield "filter of them, opened again", lambda: opened("fragments").count_rows("k > 500")
        case "in_place":
            yield "10 of 200,000 vectors, refined 10 times", search(10)
            yield "10 of 200,000 vectors, refined 50 times", search(50)


def best_ms(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def measure(folder: str, way: str, mode: str) -> dict[str, float]:
    """Return the times of the cases of a way, measured in a new process."""
    command = [sys.executable, __file__, "--folder", folder, "--mode", mode, way]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    pairs = (line.rsplit("|", 1) for line in printed.splitlines())
    return {name: float(milliseconds) for name, milliseconds in pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ways", nargs="*", default=WAYS, choices=WAYS, metavar="WAY")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--mode", choices=["with", "without"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.mode:
        (way,) = arguments.ways
        if arguments.mode == "without":
            disable(way)
        for name, work in cases(Path(arguments.folder), way):
            print(f"{name}|{best_ms(work)}")
        return
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or stack.enter_context(tempfile.TemporaryDirectory())
        make_tables(Path(folder))
        for way in arguments.ways:
            found: dict[str, dict[str, float]] = {}
            for _ in range(2):
                for mode in ("with", "without"):
                    for name, milliseconds in measure(folder, way, mode).items():
                        times = found.setdefault(name, {})
                        times[mode] = min(milliseconds, times.get(mode, milliseconds))
            for name, times in found.items():
                gain = times["without"] / times["with"]
                print(
                    f"{way:9s} {name:42s} {times['with']:8.2f} {times['without']:8.2f} x{gain:.2f}"
                )


if __name__ == "__main__":
    main()
