"""Compare scalar indices with the reference: queries of one table, and builds.

python benchmarks/bench_indices.py [--scale 1.0] [--rounds 7]
python benchmarks/bench_indices.py --parts builds memory --kinds BTREE NGRAM --rounds 1 --folder F

A scale of 1 queries 5 million rows and builds indices of 20 million; indices of lists and n-grams
are built of a part. Both sides query the same table and the same index files, written by this
library. `scan` rows compare queries with and without an index, so a ratio below 1 means that the
chosen index was slower than a scan. The memory of a build is measured in its own process. Results
of queries and builds are saved separately; existing tables in the folder are reused.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from lancelet.dataset.scan.builder import ColumnOrdering

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
print((peak() - before) / 1024, peak() / 1024)
"""
SHARES = (0.00001, 0.001, 0.01, 0.5)
PARTS = ("questions", "builds", "memory")
BUILT_PER_ASKED = 4


@dataclass(frozen=True)
class Build:
    """An index of a column; `share` is that of the rows that are built."""

    column: str
    kind: str
    share: float = 1.0


BUILDS = (
    Build("id", "BTREE"),
    Build("name", "BTREE"),
    Build("city", "BITMAP"),
    Build("day", "ZONEMAP"),
    Build("day", "BLOOMFILTER"),
    Build("tags", "LABEL_LIST", 0.1),
    Build("name", "NGRAM", 0.05),
)


def main() -> None:
    """Run all cases and save what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--kinds", nargs="+", default=sorted({each.kind for each in BUILDS}))
    parser.add_argument("--folder", type=Path, help="where tables are kept, else nowhere")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    num_rows = int(5_000_000 * arguments.scale)
    builds = [each for each in BUILDS if each.kind in arguments.kinds]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        if "questions" in arguments.parts:
            found = list(cases(folder, num_rows, arguments.rounds))
            facts: dict[str, Any] = {"scale": arguments.scale, "num_rows": num_rows}
            print("saved", save("indices", found, facts, arguments.save))
        if {"builds", "memory"}.isdisjoint(arguments.parts):
            return
        tables = [table_of(folder, each, BUILT_PER_ASKED * num_rows) for each in builds]
        found, peaks = [], {}
        if "builds" in arguments.parts:
            found = [built(table, arguments.rounds) for table in tables]
        if "memory" in arguments.parts:
            peaks = {table.name: table.peaks() for table in tables}
    facts = {"num_rows": BUILT_PER_ASKED * num_rows, "peak_mb": peaks}
    print("saved", save("index_builds", found, facts, arguments.save))


def cases(folder: Path, num_rows: int, rounds: int) -> Iterator[Comparison]:
    """Ask indices of every kind."""
    path = folder / f"asked-{num_rows}"
    if not path.exists():
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
        repeat = 100 if "one row" in name else 1
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


@dataclass(frozen=True)
class Table:
    """A table of one column and its copy, each for the builds of one side."""

    path: Path
    build: Build
    num_rows: int

    @property
    def name(self) -> str:
        return f"{self.build.kind} of {self.build.column}, {self.num_rows:,} rows"

    def side(self, module: str) -> Path:
        """Return the table that a module builds its index on."""
        return self.path if module == "lancelet" else self.path.with_name(f"{self.path.name}-copy")

    def peaks(self) -> dict[str, list[float]]:
        """Return by how many megabytes a process of either side grows, and to how many."""
        found = {}
        for side in ("lancelet", "lance"):
            told = subprocess.run(
                [
                    *(sys.executable, "-W", "ignore", "-c", GROWTH),
                    *(side, self.side(side), self.build.column, self.build.kind),
                ],
                check=True,
                capture_output=True,
                text=True,
            )
            found[side] = [round(float(each), 1) for each in told.stdout.split()]
        print(f"peak of {self.name}, grown by and to MB: {found}", flush=True)
        return found


def table_of(folder: Path, build: Build, num_built: int) -> Table:
    """Return the table of a build, which is written if it is not there."""
    num_rows = int(num_built * build.share)
    table = Table(folder / f"built-{build.column}-{num_rows}", build, num_rows)
    if not table.path.exists():
        column = rows(num_rows, build.column)
        ours.write_dataset(column, table.path, max_rows_per_file=num_rows)
        shutil.copytree(table.path, table.side("lance"))
    return table


def built(table: Table, rounds: int) -> Comparison:
    """Compare builds of an index on copies of one table."""

    def build(module: Any) -> Callable[[], object]:
        dataset = module.dataset(table.side(module.__name__))
        column, kind = table.build.column, table.build.kind
        return lambda: dataset.create_scalar_index(column, kind, replace=True)

    return compare(f"build {table.name}", build(ours), build(reference), rounds=min(rounds, 3))


def rows(num_rows: int, column: str | None = None) -> pa.Table:
    """Return ids in no order, few cities, names, days that ascend; or one such column, or tags."""
    random = np.random.default_rng(1)
    ids = random.integers(0, SPREAD, num_rows)
    makers: dict[str, Callable[[], object]] = {
        "id": lambda: ids,
        "city": lambda: ids % 100,
        "name": lambda: pa.array(ids).cast(pa.string()),
        "day": lambda: np.arange(num_rows),
        "tags": lambda: tags(num_rows, random),
    }
    asked = [name for name in makers if name != "tags"]
    return pa.table({name: makers[name]() for name in (asked if column is None else [column])})


def tags(num_rows: int, random: np.random.Generator) -> pa.Array:
    """Return lists of up to four of a thousand tags."""
    ends = np.cumsum(random.integers(0, 5, num_rows, dtype=np.int32), dtype=np.int32)
    values = random.integers(0, 1000, int(ends[-1]))
    return pa.ListArray.from_arrays(np.append(np.int32(0), ends), values)


if __name__ == "__main__":
    main()
