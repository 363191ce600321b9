"""Compare with pylance, Vortex and DuckDB over Parquet: write, scan, filter and take.

python benchmarks/bench_formats.py [--scale 1.0] [--only write scan filter take]

Each library reads files that it wrote itself, except DuckDB, which reads Parquet files with zstd
that pyarrow wrote. All results are Arrow tables. The libraries take turns in one process, after one
run each for warming up.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import vortex
import vortex.expr
from compare import Timing, commit, machine, measure

import lancelet

OURS: Final = "lancelet"
OTHERS: Final = ("pylance", "vortex", "duckdb")
KINDS: Final = {OURS: "lance", "pylance": "lance2", "vortex": "vortex", "duckdb": "parquet"}
ROUNDS: Final = 7
Work = Callable[[], object]


@dataclass(frozen=True)
class Filter:
    """A predicate, as SQL text and for Vortex, and the columns to return."""

    name: str
    sql: str
    expression: Any
    columns: tuple[str, ...]


class Files:
    """One table in the files of all libraries."""

    def __init__(self, folder: Path, name: str, table: pa.Table) -> None:
        """Write the table once with each library."""
        self.table = table
        self._paths = {each: str(folder / f"{name}.{kind}") for each, kind in KINDS.items()}
        for write in self.writes("").values():
            write()
        self._vortex = vortex.open(self._paths["vortex"])
        self._ours = lancelet.dataset(self._paths[OURS])
        self._theirs = lance.dataset(self._paths["pylance"])

    def writes(self, suffix: str = ".new") -> dict[str, Work]:
        """Return functions that write the table."""
        paths = {each: f"{path}{suffix}" for each, path in self._paths.items()}
        ours, theirs = paths[OURS], paths["pylance"]

        def write_ours() -> None:
            shutil.rmtree(ours, ignore_errors=True)
            lancelet.write_dataset(self.table, ours)

        def write_theirs() -> None:
            shutil.rmtree(theirs, ignore_errors=True)
            lance.write_dataset(self.table, theirs)

        return {
            OURS: write_ours,
            "pylance": write_theirs,
            "vortex": lambda: vortex.io.write(self.table, paths["vortex"]),
            "duckdb": lambda: pq.write_table(self.table, paths["duckdb"], compression="zstd"),
        }

    def scans(self, columns: tuple[str, ...]) -> dict[str, Work]:
        """Return functions that read columns of all rows."""
        names = list(columns)
        return {
            OURS: lambda: self._ours.to_table(columns=names),
            "pylance": lambda: self._theirs.to_table(columns=names),
            "vortex": lambda: self._vortex.scan(names).read_all().to_arrow_table(),
            "duckdb": self._query(columns, ""),
        }

    def filters(self, given: Filter) -> dict[str, Work]:
        """Return functions that read columns of the rows that pass a filter, or count the rows."""
        names = list(given.columns)
        if not names:
            return {
                OURS: lambda: self._ours.count_rows(given.sql),
                "pylance": lambda: self._theirs.count_rows(given.sql),
                "vortex": lambda: len(self._vortex.scan([], expr=given.expression).read_all()),
                "duckdb": self._query(("count(*)",), given.sql),
            }
        return {
            OURS: lambda: self._ours.to_table(columns=names, filter=given.sql),
            "pylance": lambda: self._theirs.to_table(columns=names, filter=given.sql),
            "vortex": lambda: (
                self._vortex.scan(names, expr=given.expression).read_all().to_arrow_table()
            ),
            "duckdb": self._query(given.columns, given.sql),
        }

    def takes(self, columns: tuple[str, ...], rows: list[int]) -> dict[str, Work]:
        """Return functions that read some rows. DuckDB has no access by row number."""
        names, numbers = list(columns), pa.array(rows, pa.uint64())
        return {
            OURS: lambda: self._ours.take(rows, columns=names),
            "pylance": lambda: self._theirs.take(rows, columns=names),
            "vortex": lambda: (
                self._vortex.scan(names, indices=vortex.array(numbers)).read_all().to_arrow_table()
            ),
        }

    def _query(self, columns: tuple[str, ...], where: str) -> Work:
        own = duckdb.connect()
        chosen = ", ".join(columns)
        text = f"SELECT {chosen} FROM '{self._paths['duckdb']}'"
        query = f"{text} WHERE {where}" if where else text
        return lambda: own.execute(query).to_arrow_table()


def main() -> None:
    """Run the requested groups and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    path = arguments.save / "formats.json"
    # A run of some groups keeps the results of the others.
    saved = json.loads(path.read_text()) if path.exists() else {"groups": {}}
    with tempfile.TemporaryDirectory() as folder:
        files = {
            name: Files(Path(folder), name, table)
            for name, table in tables(arguments.scale).items()
        }
        for group in arguments.only:
            print(f"{group:<44}{OURS:>10}" + "".join(f"{each:>10}" for each in OTHERS))
            cases = {name: _timed(name, works) for name, works in GROUPS[group](files)}
            saved["groups"][group] = {
                "commit": commit(),
                "machine": machine(),
                "scale": arguments.scale,
                "cases": cases,
            }
    path.write_text(json.dumps(saved, indent=2) + "\n")


def tables(scale: float) -> dict[str, pa.Table]:
    """Return the data: numbers, strings of few values, comments, nested values, blobs and keys."""
    random = np.random.default_rng(0)
    rows = int(1_000_000 * scale)
    words = np.array([f"word{number}" for number in range(2_000)])
    numbers = {f"i{n}": random.integers(0, 1 << (5 + 5 * n), rows) for n in range(8)}
    numbers |= {f"f{n}": np.round(random.random(rows) * 1000, n) for n in range(8)}
    comments = pa.array([" ".join(each) for each in words[random.integers(0, 2_000, (rows, 5))]])
    counts = random.integers(0, 6, rows // 2)
    offsets = pa.array(np.append(0, np.cumsum(counts)).astype(np.int32))
    total = int(counts.sum())
    structs = pa.StructArray.from_arrays(
        [pa.array(random.integers(0, 1000, total)), pa.array(random.random(total))], ["a", "b"]
    )
    many = 4 * rows
    return {
        "numbers": pa.table(numbers),
        "strings": pa.table(
            {
                "color": np.array(["red", "green", "blue", "cyan"])[random.integers(0, 4, rows)],
                "comment": comments,
            }
        ),
        "nested": pa.table(
            {
                "structs": pa.ListArray.from_arrays(offsets, structs),
                "numbers": pa.ListArray.from_arrays(
                    offsets, pa.array(random.integers(0, 100_000, total, dtype=np.int32))
                ),
            }
        ),
        "vectors": pa.table(
            {
                "vector": pa.FixedSizeListArray.from_arrays(
                    pa.array(random.standard_normal(rows // 20 * 256, dtype=np.float32)), 256
                )
            }
        ),
        "values": pa.table(
            {"value": pa.array([random.bytes(100_000) for _ in range(rows // 800)])}
        ),
        "keys": pa.table(
            {
                "key": random.integers(0, 1_000_000, many),
                "sorted": np.sort(random.integers(0, 1 << 40, many)),
                "real": random.random(many),
                "color": np.array(["red", "green", "blue", "cyan"])[random.integers(0, 4, many)],
            }
        ),
        "wide": pa.table({f"c{n}": random.integers(0, 1000, rows // 50) for n in range(500)}),
    }


def write_cases(files: dict[str, Files]) -> Iterator[tuple[str, dict[str, Work]]]:
    """Write each table."""
    for name, own in files.items():
        yield f"write {name}", own.writes()


def scan_cases(files: dict[str, Files]) -> Iterator[tuple[str, dict[str, Work]]]:
    """Read all rows."""
    for name, columns in SCANNED:
        own = columns or tuple(files[name].table.column_names)
        yield f"scan {name}, {_columns_text(files[name], own)}", files[name].scans(own)


def filter_cases(files: dict[str, Files]) -> Iterator[tuple[str, dict[str, Work]]]:
    """Read the rows that pass a filter."""
    for given in FILTERS:
        yield given.name, files["keys"].filters(given)


def take_cases(files: dict[str, Files]) -> Iterator[tuple[str, dict[str, Work]]]:
    """Read some rows by number."""
    for name, columns in TAKEN:
        own = columns or tuple(files[name].table.column_names)
        for count in (10, 100, 10_000):
            random = np.random.default_rng(count)
            total = files[name].table.num_rows
            if count <= total // 10:
                rows = np.sort(random.choice(total, count, replace=False)).tolist()
                case = f"take {count:,} of {name}, {_columns_text(files[name], own)}"
                yield case, files[name].takes(own, rows)


def _columns_text(files: Files, columns: tuple[str, ...]) -> str:
    total = files.table.num_columns
    return columns[0] if len(columns) == 1 else f"{len(columns)} of {total} columns"


def _timed(name: str, works: dict[str, Work]) -> dict[str, dict[str, float]]:
    samples: dict[str, list[Timing]] = {each: [] for each in works}
    for number in range(ROUNDS + 1):
        for each, work in works.items():
            timing = measure(work)
            if number:
                samples[each].append(timing)
    medians = {
        each: {
            "wall_ms": statistics.median(timing.wall_ms for timing in own),
            "cpu_ms": statistics.median(timing.cpu_ms for timing in own),
        }
        for each, own in samples.items()
    }
    wall = medians[OURS]["wall_ms"]
    others = (medians[each]["wall_ms"] / wall if each in medians else np.nan for each in OTHERS)
    print(f"{name:<44}{wall:>10.2f}" + "".join(f"{ratio:>9.2f}x" for ratio in others), flush=True)
    return medians


_column = vortex.expr.column

FILTERS: Final = (
    Filter("count, all rows", "key >= 0", _column("key") >= 0, ()),
    Filter("count, string equals", "color = 'red'", _column("color") == "red", ()),
    Filter("count, unordered 1 %", "key < 10000", _column("key") < 10_000, ()),
    Filter("unordered, 4 rows", "key = 5", _column("key") == 5, ("key",)),
    Filter(
        "unordered, 4 rows, all columns",
        "key = 5",
        _column("key") == 5,
        ("key", "sorted", "real", "color"),
    ),
    Filter("unordered 1 %", "key < 10000", _column("key") < 10_000, ("key",)),
    Filter("unordered 1 %, another column", "key < 10000", _column("key") < 10_000, ("real",)),
    Filter("unordered 50 %", "key < 500000", _column("key") < 500_000, ("key", "real")),
    Filter("sorted 0.1 %", f"sorted < {1 << 30}", _column("sorted") < 1 << 30, ("sorted", "key")),
    Filter("float 1 %", "real > 0.99", _column("real") > 0.99, ("real",)),
    Filter("string equals", "color = 'red'", _column("color") == "red", ("color",)),
    Filter(
        "two parts",
        "key < 10000 AND real > 0.5",
        (_column("key") < 10_000) & (_column("real") > 0.5),
        ("key", "real"),
    ),
)
SCANNED: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("numbers", ()),
    ("numbers", ("i3", "f2")),
    ("strings", ("color",)),
    ("strings", ("comment",)),
    ("nested", ("structs",)),
    ("nested", ("numbers",)),
    ("vectors", ()),
    ("values", ()),
    ("wide", ("c7", "c300")),
)
TAKEN: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("numbers", ()),
    ("numbers", ("i3", "f2")),
    ("strings", ("comment",)),
    ("nested", ("structs",)),
    ("nested", ("numbers",)),
    ("vectors", ()),
    ("values", ()),
)
GROUPS: Final = {
    "write": write_cases,
    "scan": scan_cases,
    "filter": filter_cases,
    "take": take_cases,
}

if __name__ == "__main__":
    main()
