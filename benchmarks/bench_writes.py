"""Compare writes with the reference: numbers, lineitem, strings, nested lists, wide tables.

python benchmarks/bench_writes.py [--scale 1.0] [--only numbers wide500 ...] [--kinds file table]

Each shape is written as one data file and as a new table, and the shape of frames as tables from
each kind of frame; the sizes of both sides' files are compared with the size in memory.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import columns
import lance as reference
import lance.file
import numpy as np
import polars as pl
import pyarrow as pa
from compare import HEADER, Comparison, compare, save
from lineitem import lineitem

import lancelet as ours
import lancelet.file

VERSION: Final = "2.2"


def numbers(rows: int) -> pa.Table:
    """Sixteen columns: every kind of number, small and large, in order and not."""
    random = np.random.default_rng(columns.SEED)
    made: dict[str, Any] = {
        f"{kind}{bits}": random.integers(0, 1 << used, rows).astype(f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits, used in ((8, 7), (16, 12), (32, 20), (64, 40))
    }
    made["id"] = np.arange(rows)
    made["float16"] = random.random(rows).astype(np.float16)
    made["float32"] = random.standard_normal(rows, np.float32)
    made["float64"] = random.random(rows)
    made["price"] = np.round(random.integers(0, 10_000_00, rows) / 100, 2)
    made["flag"] = random.random(rows) < 0.1
    made["time"] = columns.increasing_microseconds(rows)
    made["day"] = pa.array(random.integers(8000, 20_000, rows).astype(np.int32)).cast(pa.date32())
    return pa.table(made)


def strings(rows: int) -> pa.Table:
    """Four columns: URLs, sentences, ids that do not repeat, and categories."""
    random = np.random.default_rng(columns.SEED)
    ids = random.integers(0, 1 << 63, (rows, 2), np.uint64)
    return pa.table(
        {
            "url": columns.urls(rows),
            "sentence": columns.comments(rows),
            "id": pa.array([f"{a:016x}{b:016x}" for a, b in ids.tolist()]),
            "category": pa.array(["books", "music", "garden", "toys", "sports", "food"]).take(
                pa.array(random.integers(0, 6, rows))
            ),
        }
    )


def random_and_real(rows: int) -> pa.Table:
    """Sixteen columns, half of them random bits, half of them typical."""
    random = np.random.default_rng(columns.SEED)
    made: dict[str, Any] = {
        f"random{i}": random.integers(-(1 << 63), (1 << 63) - 1, rows) for i in range(4)
    }
    made |= {f"float{i}": random.random(rows) for i in range(4)}
    made["id"] = np.arange(rows)
    made["user"] = random.zipf(1.3, rows).clip(0, 1 << 30)
    made["amount"] = np.round(random.lognormal(3, 1, rows), 2)
    made["score"] = random.standard_normal(rows).astype(np.float32)
    made["at"] = columns.increasing_microseconds(rows)
    made["count"] = random.poisson(20, rows).astype(np.int32)
    made["country"] = pa.array(["de", "fr", "us", "jp", "br", "in", "cn", "gb"]).take(
        pa.array(random.zipf(1.5, rows).clip(1, 8) - 1)
    )
    made["rating"] = pa.array(
        random.integers(0, 6, rows).astype(np.int8), mask=random.random(rows) < 0.2
    )
    return pa.table(made)


def random_bits(rows: int) -> pa.Table:
    """Sixteen columns without any order: integers and floats of 32 and 64 bits."""
    random = np.random.default_rng(columns.SEED)
    kinds: list[Callable[[], Any]] = [
        lambda: random.integers(-(1 << 63), (1 << 63) - 1, rows),
        lambda: random.integers(0, 1 << 31, rows).astype(np.int32),
        lambda: random.random(rows),
        lambda: random.standard_normal(rows, np.float32),
    ]
    return pa.table({f"c{i}": kinds[i % len(kinds)]() for i in range(16)})


def real(rows: int) -> pa.Table:
    """Sixteen typical columns: people, times, money, states, few values."""
    random = np.random.default_rng(columns.SEED)
    first = random.integers(0, 300, rows).tolist()
    last = random.integers(0, 1000, rows).tolist()
    number = random.integers(0, 100, rows).tolist()
    moment = 1_700_000_000_000_000 + random.integers(0, 10**13, rows)
    countries = pa.array(["de", "fr", "us", "jp", "br", "in"])
    made: dict[str, Any] = {
        "id": np.arange(rows) + 10**9,
        "name": [f"First{a} Lastname{b}" for a, b in zip(first, last, strict=True)],
        "email": [f"{a}.{b}.{c}@mail.com" for a, b, c in zip(first, last, number, strict=True)],
        "url": columns.urls(rows),
        "seen": pa.array(moment, pa.timestamp("us")),
        "created": pa.array(np.sort(moment), pa.timestamp("us")),
        "money": np.round(random.lognormal(4, 1, rows), 2),
        "points": np.minimum(random.zipf(1.3, rows), 1 << 40),
        "height": random.normal(170, 10, rows),
        "share": random.random(rows).astype(np.float32),
        "active": random.random(rows) < 0.5,
        "country": countries.take(pa.array(random.integers(0, len(countries), rows))),
        "state": random.integers(0, 5, rows).astype(np.int8),
        "rare": pa.array(random.integers(0, 10**9, rows), mask=random.random(rows) < 0.95),
        "note": columns.comments(rows),
        "hash": random.integers(0, 1 << 62, rows),
    }
    return pa.table(made)


def people(rows: int) -> pa.Table:
    """Seven columns such as a frame has."""
    return real(rows).select(["id", "name", "money", "country", "seen", "active", "rare"])


FRAMES: Final[dict[str, Callable[[pa.Table], Any]]] = {
    "arrow": lambda table: table,
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "dicts": lambda table: table.to_pylist(),
}
"""The functions that create each kind of frame."""


def wide(num_columns: int) -> Callable[[int], pa.Table]:
    """Return a function that creates a table of integers, floats, categories and ids."""

    def make(rows: int) -> pa.Table:
        random = np.random.default_rng(columns.SEED)
        words = pa.array([f"word {i}" for i in range(100)])
        kinds: list[Callable[[], Any]] = [
            lambda: random.integers(0, 1000, rows),
            lambda: random.random(rows),
            lambda: random.integers(0, 1 << 30, rows).astype(np.int32),
            lambda: random.standard_normal(rows, np.float32),
            lambda: words.take(pa.array(random.integers(0, 100, rows))),
        ]
        return pa.table({f"c{i}": kinds[i % len(kinds)]() for i in range(num_columns)})

    return make


SHAPES: Final[dict[str, tuple[int, Callable[[int], pa.Table]]]] = {
    "numbers": (2_000_000, numbers),
    "mixed": (1_000_000, random_and_real),
    "random": (1_000_000, random_bits),
    "real": (1_000_000, real),
    "frames": (300_000, people),
    "lineitem": (1_500_000, lineitem),
    "strings": (500_000, strings),
    "nested": (500_000, lambda rows: pa.table({"x": columns.nested(rows)})),
    "wide500": (20_000, wide(500)),
    "wide1000": (1000, wide(1000)),
    "wide10000": (100, wide(10_000)),
}
"""The rows of each table, and the function that creates it."""


def write_file(module: Any, path: Path, table: pa.Table) -> None:
    """Write a table as one data file."""
    with module.LanceFileWriter(str(path), table.schema, version=VERSION) as writer:
        for batch in table.to_batches(max_chunksize=65_536):
            writer.write_batch(batch)


def write_tables(folder: Path, rows: Any, label: str) -> Comparison:
    """Compare both sides at writing rows as a new table."""

    def clear() -> None:
        for side in ("ours", "theirs"):
            shutil.rmtree(folder / side, ignore_errors=True)

    return compare(
        f"write {label}",
        lambda: ours.write_dataset(rows, str(folder / "ours")),
        lambda: reference.write_dataset(rows, str(folder / "theirs")),
        rounds=3,
        prepare=clear,
    )


def cases(
    name: str, folder: Path, scale: float, kinds: list[str]
) -> tuple[list[Comparison], dict[str, float]]:
    """Compare both sides and the sizes of their files for one shape."""
    rows, make = SHAPES[name]
    table = make(max(100, int(rows * scale)))
    label = f"{name}, {table.num_columns:,} x {table.num_rows:,}"
    found: list[Comparison] = []
    if "file" in kinds:
        found.append(
            compare(
                f"write file {label}",
                lambda: write_file(lancelet.file, folder / "ours.lance", table),
                lambda: write_file(lance.file, folder / "theirs.lance", table),
                rounds=3,
            )
        )
    if "table" in kinds:
        found += [
            write_tables(folder, made(table), f"{kind} {label}")
            for kind, made in (FRAMES if name == "frames" else {"table": FRAMES["arrow"]}).items()
        ]
    smaller: dict[str, float] = {}
    for side, module in (("ours", lancelet.file), ("theirs", lance.file)):
        write_file(module, folder / f"{side}.lance", table)
        smaller[side] = round(table.nbytes / (folder / f"{side}.lance").stat().st_size, 2)
    print(f"    times smaller than in memory: {smaller['ours']:.2f}, {smaller['theirs']:.2f}")
    return found, smaller


def main() -> None:
    """Run the requested shapes and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--kinds", nargs="*", default=["file", "table"])
    parser.add_argument("--folder", type=Path, help="where to write, default a temporary folder")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    found: list[Comparison] = []
    smaller: dict[str, dict[str, float]] = {}
    for name in arguments.only:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            compared, smaller[name] = cases(name, Path(folder), arguments.scale, arguments.kinds)
        found += compared
    extra = {"scale": arguments.scale, "times_smaller": smaller}
    print("saved", save("writes", found, extra, arguments.save))


if __name__ == "__main__":
    main()
