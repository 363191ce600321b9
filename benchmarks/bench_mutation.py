"""Compare updates and merges with the reference; each run changes a new copy of one table.

Small changes follow each other on a table of each side, as they do in a table that is in use, once
waiting for the disk and once written as the reference writes.

python benchmarks/bench_mutation.py [--scale 1.0] [--rounds 5]
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, save

import lancelet

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        results = cases(Path(folder), arguments.scale, arguments.rounds)
    save("mutation", results, {"scale": arguments.scale}, RESULTS)


def cases(folder: Path, scale: float, rounds: int) -> list[Comparison]:
    rows, new = int(5_000_000 * scale), int(100_000 * scale)
    base = folder / "base"
    lance.write_dataset(table_of(np.arange(rows), rows), str(base))
    some = np.random.default_rng(1).choice(rows + rows // 100, new, replace=False)
    scattered, recent = table_of(some, new), table_of(np.arange(rows - new, rows + new), new)

    def upsert(source: pa.Table, key: str = "id") -> Callable[[Any], object]:
        return lambda dataset: (
            dataset.merge_insert(key)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(source)
        )

    work = {
        f"upsert {new:,} scattered keys": upsert(scattered),
        f"upsert {2 * new:,} recent keys": upsert(recent),
        f"upsert {new:,} text keys": upsert(scattered, "name"),
        f"upsert {new:,} of two columns": upsert(scattered.select(["id", "price"])),
        f"insert {new:,} if new": lambda dataset: (
            dataset.merge_insert("id").when_not_matched_insert_all().execute(scattered)
        ),
        "update 2 % of rows": lambda dataset: dataset.update({"price": "price * 2"}, "kind < 20"),
        "update all rows": lambda dataset: dataset.update({"price": "price * 2"}),
    }
    found = [
        on_copies(base, folder / "t", name, change, rounds if name != "update all rows" else 2)
        for name, change in work.items()
    ]
    found += tiny_cases(folder, max(10, int(1_000 * scale)), rounds)
    for durability in ("written", "flushed"):
        found += small_changes(folder / durability, int(100_000 * scale), 4 * rounds, durability)
    return found


def small_changes(folder: Path, rows: int, rounds: int, durability: str) -> list[Comparison]:
    """Append, delete, update and upsert a few rows, again and again."""
    turn = itertools.count()
    few, ten = mixed(100, rows), mixed(10, rows // 2)
    changes: dict[str, Callable[[Any, int], object]] = {
        "append 100 rows": lambda table, _: table.insert(few),
        "delete a row": lambda table, turn: table.delete(f"id = {turn * 17}"),
        "delete 1 % of rows": lambda table, turn: table.delete(f"i0 = {turn}"),
        "update a row": lambda table, turn: table.update({"f0": "f0 + 1"}, f"id = {turn * 17}"),
        "update 1 % of rows": lambda table, turn: table.update({"f0": "f0 + 1"}, f"i0 = {turn}"),
        "upsert 10 rows": lambda table, _: (
            table.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(ten)
        ),
    }
    found: list[Comparison] = []
    for name, change in changes.items():
        for side in ("ours", "theirs"):
            shutil.rmtree(folder / side, ignore_errors=True)
            lance.write_dataset(mixed(rows, 0), str(folder / side))
        os.sync()

        def ours(change: Callable[[Any, int], object] = change) -> object:
            table = lancelet.dataset(folder / "ours", durability=durability)
            return change(table, next(turn) // 2 % 100)

        def theirs(change: Callable[[Any, int], object] = change) -> object:
            return change(lance.dataset(str(folder / "theirs")), next(turn) // 2 % 100)

        found.append(compare(f"{name}, {durability}", ours, theirs, rounds=rounds))
    return found


def mixed(rows: int, first: int) -> pa.Table:
    """Return rows of twelve columns: numbers, categories, names, flags and times."""
    random = np.random.default_rng(first)
    words = pa.array([f"word {i}" for i in range(100)])
    columns: dict[str, Any] = {"id": np.arange(first, first + rows)}
    columns |= {f"i{at}": random.integers(0, 100, rows) for at in range(3)}
    columns |= {f"f{at}": random.random(rows) for at in range(3)}
    columns |= {f"s{at}": words.take(pa.array(random.integers(0, 100, rows))) for at in range(2)}
    columns["name"] = pa.array([f"user-{first + i:08d}" for i in range(rows)])
    columns["flag"] = random.random(rows) < 0.3
    columns["time"] = pa.array(np.arange(rows) * 1000, pa.timestamp("us"))
    return pa.table(columns)


def tiny_cases(folder: Path, fragments: int, rounds: int) -> list[Comparison]:
    """Change a table that was written row by row."""
    base = folder / "tiny"
    lancelet.write_dataset(
        table_of(np.arange(fragments), 1),
        str(base),
        max_rows_per_file=1,
        storage_options={"local_sync": "false"},
    )
    one = table_of(np.array([3]), 2)
    work = {
        "read": lambda dataset: dataset.to_table(filter="id = 7"),
        "update a row": lambda dataset: dataset.update({"price": "price * 2"}, "id = 7"),
        "delete a row": lambda dataset: dataset.delete("id = 7"),
        "append a row": lambda dataset: dataset.insert(one),
        "upsert a row": lambda dataset: (
            dataset.merge_insert("id")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(one)
        ),
    }
    return [
        on_copies(base, folder / "t", f"{name} of {fragments:,} fragments", change, rounds)
        for name, change in work.items()
    ]


def on_copies(
    base: Path, copy: Path, name: str, change: Callable[[Any], object], rounds: int
) -> Comparison:
    """Compare a change, on a fresh copy of a table each time."""
    return compare(
        name,
        lambda: change(lancelet.dataset(str(copy))),
        lambda: change(lance.dataset(str(copy))),
        rounds=rounds,
        prepare=lambda: fresh(base, copy),
    )


def fresh(base: Path, copy: Path) -> None:
    """Copy the table; what still waits for the disk would else be waited for by the first sync."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(base, copy)
    os.sync()


def table_of(ids: np.ndarray, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": ids,
            "name": pa.array([f"user-{i:08d}" for i in ids.tolist()]),
            "price": rng.random(len(ids)),
            "kind": rng.integers(0, 1000, len(ids)),
        }
    )


if __name__ == "__main__":
    main()
