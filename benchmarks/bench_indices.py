"""Scalar indices beside the reference: questions over one table, and builds.

python benchmarks/bench_indices.py [--scale 1.0] [--rounds 7]

A scale of 1 asks 5 million rows and builds indices of 20 million. Questions are asked of the same
table and the same index files, those of ours. `scan` rows compare ours with an index to ours
without, so a ratio below 1 there says that an index was chosen that did not pay. How much memory a
build takes is measured in a process of its own, from where it starts.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import lance as reference
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, save
from lance.dataset import ColumnOrdering as ReferenceOrdering

import lancelet as ours
from lancelet.dataset.scanner import ColumnOrdering

SPREAD = 1 << 40
GROWTH = """
import importlib, re, sys
from pathlib import Path
side, path, column, kind = sys.argv[1:]

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

dataset = importlib.import_module(side).dataset(path)
dataset.to_table(columns=[column], limit=10)
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = peak()
dataset.create_scalar_index(column, kind, replace=True)
print((peak() - before) / 1024)
"""
SHARES = (0.00001, 0.001, 0.01, 0.5)
BUILDS = (
    ("id", "BTREE"),
    ("name", "BTREE"),
    ("city", "BITMAP"),
    ("day", "ZONEMAP"),
    ("day", "BLOOMFILTER"),
)
BUILT_PER_ASKED = 4


def main() -> None:
    """Run all cases and save what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    num_rows = int(5_000_000 * arguments.scale)
    num_built = BUILT_PER_ASKED * num_rows
    with tempfile.TemporaryDirectory() as folder:
        found = list(cases(Path(folder), num_rows, arguments.rounds))
        found += [build(Path(folder), num_built, column, kind) for column, kind in BUILDS]
        peaks = dict(peak_memory(Path(folder), num_built))
    extra = {
        "scale": arguments.scale,
        "num_rows": num_rows,
        "num_rows_built": num_built,
        "peak_mb": peaks,
    }
    print("saved", save("indices", found, extra, arguments.save))


def cases(folder: Path, num_rows: int, rounds: int) -> Iterator[Comparison]:
    """Ask indices of every kind."""
    path = folder / "asked"
    ours.write_dataset(rows(num_rows), path, max_rows_per_file=num_rows)
    for column, kind in (("id", "BTREE"), ("city", "BITMAP"), ("day", "ZONEMAP")):
        ours.dataset(path).create_scalar_index(column, kind)
    yield from questions(path, num_rows, rounds)


def questions(path: Path, num_rows: int, rounds: int) -> Iterator[Comparison]:
    """Compare answers to filters, warm."""
    mine, theirs = ours.dataset(path), reference.dataset(path)
    point = mine.to_table(columns=["id"], limit=1)["id"][0].as_py()
    found = mine.to_table(columns=["id"], limit=5000)["id"].to_numpy()
    some = np.concatenate([found, np.random.default_rng(2).integers(0, SPREAD, 5000)])
    np.random.default_rng(3).shuffle(some)
    filters = {
        "BTREE, one row": f"id = {point}",
        **{
            f"BTREE, IN of {count:,}": f"id IN ({', '.join(map(str, some[:count]))})"
            for count in (20, 200, 10_000)
        },
        "BITMAP, 1 of 100 values": "city = 7",
        "BITMAP, half of the values": "city < 50",
        "ZONEMAP, 1 %": f"day >= 1000 AND day < {1000 + num_rows // 100}",
    }
    filters |= {f"BTREE, {share:.3%}": f"id < {int(share * SPREAD)}" for share in SHARES}
    for name, text in filters.items():
        repeat = 20 if "one row" in name else 1
        yield compare(name, ask(mine, text), ask(theirs, text), rounds=rounds, repeat=repeat)
        without = ask(mine, text, use_scalar_index=False)
        yield compare(f"{name}, to a scan of ours", ask(mine, text), without, rounds=rounds)
    points = mine.to_table(columns=["id"], limit=2000)["id"].to_pylist()
    yield compare(
        "BTREE, one row, another each time",
        ask_one_by_one(mine, points),
        ask_one_by_one(theirs, points),
        rounds=rounds,
        repeat=100,
    )
    count = "id < 549755813888"
    first = {"columns": ["id", "city"], "limit": 10}
    yield compare(
        "BTREE, first 10 of an order",
        lambda: mine.scanner(order_by=[ColumnOrdering("id")], **first).to_table(),
        lambda: theirs.scanner(order_by=[ReferenceOrdering("id")], **first).to_table(),
        rounds=rounds,
    )
    yield compare(
        "BTREE, count of half",
        partial(mine.count_rows, count),
        partial(theirs.count_rows, count),
        rounds=rounds,
    )


def ask(dataset: Any, text: str, **options: Any) -> Callable[[], object]:
    """Return what asks a dataset of either side."""
    return lambda: dataset.to_table(filter=text, columns=["id", "city"], **options)


def ask_one_by_one(dataset: Any, points: list[int]) -> Callable[[], object]:
    """Return what asks for another row each time."""
    following = cycle(points)
    return lambda: ask(dataset, f"id = {next(following)}")()  # noqa: PLW0108 - another each time


def build(folder: Path, num_rows: int, column: str, kind: str) -> Comparison:
    """Compare builds of an index on copies of one table."""
    source = folder / f"built-{column}"
    copy = source.with_name(f"{source.name}-copy")
    if not source.exists():
        ours.write_dataset(rows(num_rows).select([column]), source, max_rows_per_file=num_rows)
        shutil.copytree(source, copy)
    mine, theirs = ours.dataset(source), reference.dataset(copy)
    return compare(
        f"build {kind} of {column}, {num_rows:,} rows",
        lambda: mine.create_scalar_index(column, kind, replace=True),
        lambda: theirs.create_scalar_index(column, kind, replace=True),
        rounds=3,
    )


def peak_memory(folder: Path, num_rows: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield how many megabytes a process grows by while it builds an index, on either side."""
    for column, kind in BUILDS:
        grown: dict[str, float] = {}
        for side in ("lancelet", "lance"):
            path = folder / f"built-{column}{'-copy' if side == 'lance' else ''}"
            told = subprocess.run(
                [sys.executable, "-W", "ignore", "-c", GROWTH, side, path, column, kind],
                check=True,
                capture_output=True,
                text=True,
            )
            grown[side] = float(told.stdout)
        print(f"peak of {kind} of {column}, {num_rows:,} rows, MB: {grown}", flush=True)
        yield f"{kind} of {column}", grown


def rows(num_rows: int) -> pa.Table:
    """Return a table with ids in no order, few cities, names, and days that ascend."""
    random = np.random.default_rng(1)
    ids = random.integers(0, SPREAD, num_rows)
    names = pa.array(ids).cast(pa.string())
    days = np.arange(num_rows)
    return pa.table({"id": ids, "city": ids % 100, "name": names, "day": days})


if __name__ == "__main__":
    main()
