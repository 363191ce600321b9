"""Updates and merges beside the reference: each run changes a fresh copy of one table.

python benchmarks/bench_mutation.py [--scale 1.0] [--rounds 5]
"""

from __future__ import annotations

import argparse
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
    return found + tiny_cases(folder, max(10, int(1_000 * scale)), rounds)


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
