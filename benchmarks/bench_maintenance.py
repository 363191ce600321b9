"""Compare compaction, cleanup and new columns with the reference, on copies of the same tables.

python benchmarks/bench_maintenance.py [--scale 1.0] [--rounds 3]
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance as reference
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, save

import lancelet as ours


def main() -> None:
    """Run all cases and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        found = list(cases(Path(folder), arguments.scale, arguments.rounds))
    print("saved", save("maintenance", found, {"scale": arguments.scale}, arguments.save))


def cases(folder: Path, scale: float, rounds: int) -> Iterator[Comparison]:
    """Compact fragments: tiny, small, with deletions, page by page; clean up; add a column."""
    hundred = folder / "hundred"
    reference.write_dataset(rows(int(500_000 * scale)), hundred, max_rows_per_file=5_000)
    yield on_copies("compact 100 fragments of 5,000 rows", hundred, compact(), rounds)
    small = folder / "small"
    reference.write_dataset(rows(int(500_000 * scale)), small, max_rows_per_file=1_000)
    yield on_copies("compact 500 fragments of 1,000 rows", small, compact(), rounds)
    for stable in (False, True):
        tiny = folder / f"tiny {stable}"
        ours.write_dataset(
            rows(int(10_000 * scale)),
            tiny,
            max_rows_per_file=10,
            enable_stable_row_ids=stable,
            storage_options={"local_sync": "false"},
        )
        name = "with stable row ids" if stable else "without"
        yield on_copies(f"compact 1,000 fragments of 10 rows {name}", tiny, compact(), rounds)
    large = folder / "large"
    dataset = reference.write_dataset(
        rows(int(2_000_000 * scale)), large, max_rows_per_file=int(500_000 * scale)
    )
    dataset.delete("id % 5 = 0")
    yield on_copies("compact 2 M rows, a fifth deleted", large, compact(), rounds)
    whole = folder / "whole"
    reference.write_dataset(
        rows(int(2_000_000 * scale)), whole, max_rows_per_file=int(250_000 * scale)
    )
    copying = compact(compaction_mode="try_binary_copy", target_rows_per_fragment=10_000_000)
    yield on_copies("compact 2 M rows page by page", whole, copying, rounds)
    versions = folder / "versions"

    def clean_up(dataset: Any) -> object:
        return dataset.cleanup_old_versions(older_than=timedelta(0))

    for number in range(int(300 * scale)):
        reference.write_dataset(rows(10), versions, mode="append" if number else "create")
        if number == 99:
            yield on_copies("clean up 100 versions", versions, clean_up, rounds)
    yield on_copies("clean up 300 versions", versions, clean_up, rounds)
    one = folder / "one"
    reference.write_dataset(rows(int(1_000_000 * scale)), one)

    def compute(dataset: Any) -> object:
        return dataset.add_columns({"double": "price * 2 + id"})

    yield on_copies("add a computed column to 1 M rows", one, compute, rounds)


def compact(**options: Any) -> Callable[[Any], object]:
    """Return what compacts a dataset of either side."""
    return lambda dataset: dataset.optimize.compact_files(**options)


def on_copies(name: str, source: Path, work: Callable[[Any], object], rounds: int) -> Comparison:
    """Compare work that changes a table, on a fresh copy each time."""
    numbers = itertools.count()
    copies: list[Path] = []

    def fresh() -> None:
        if copies:
            shutil.rmtree(copies.pop())
        copies.append(source.with_name(f"{source.name}-{next(numbers)}"))
        shutil.copytree(source, copies[0])

    return compare(
        name,
        lambda: work(ours.dataset(str(copies[0]))),
        lambda: work(reference.dataset(str(copies[0]))),
        rounds=rounds,
        prepare=fresh,
    )


def rows(count: int) -> pa.Table:
    """Return rows of numbers, text and vectors."""
    random = np.random.default_rng(7)
    vectors = pa.array(random.random(count * 8, np.float32))
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "price": pa.array(random.random(count).round(2)),
            "name": pa.array([f"customer {n % 10_000}" for n in range(count)]),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 8),
        }
    )


if __name__ == "__main__":
    main()
