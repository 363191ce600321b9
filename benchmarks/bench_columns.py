"""Compare columns with the reference: add, cast, join, rename and drop.

python benchmarks/bench_columns.py [--scale 1.0] [--only add_sql ...]

Both sides change copies of one table and undo each change, so that each round does the same work.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import lance as reference
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from compare import HEADER, Comparison, compare, save

import lancelet as ours

ROWS: Final = 10_000_000
FRAGMENTS: Final = 4
SCHEMA: Final = pa.schema([("n", pa.int64())])


def main() -> None:
    """Run the requested cases and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--folder", type=Path, help="where to write, default a temporary folder")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        rows = _rows(max(1000, int(ROWS * arguments.scale)))
        found = [_case(name, CASES[name], rows, Path(folder)) for name in arguments.only]
    print("saved", save("columns", found, {"scale": arguments.scale}, arguments.save))


def _case(name: str, change: Any, rows: pa.Table, folder: Path) -> Comparison:
    """Time a change, each time on a table that does not have it yet."""
    source = folder / "source"
    if not source.exists():
        reference.write_dataset(rows, source, max_rows_per_file=-(-rows.num_rows // FRAGMENTS))
    opened = {}

    def prepare() -> None:
        for side, module in (("ours", ours), ("theirs", reference)):
            shutil.rmtree(folder / side, ignore_errors=True)
            shutil.copytree(source, folder / side)
            opened[side] = module.dataset(str(folder / side))

    return compare(
        f"{name} of {rows.num_rows:,} rows",
        lambda: change(opened["ours"], ours, rows),
        lambda: change(opened["theirs"], reference, rows),
        prepare=prepare,
    )


def _rows(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    numbers = random.integers(0, 1 << 40, count)
    return pa.table({"key": random.permutation(count), "a": numbers, "f": random.random(count)})


def _add_function(dataset: Any, module: Any, rows: pa.Table) -> None:
    del rows

    def following(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([pc.add(batch["a"], 1)], schema=SCHEMA)

    dataset.add_columns(module.batch_udf(SCHEMA)(following), read_columns=["a"])


def _add_rows(dataset: Any, module: Any, rows: pa.Table) -> None:
    del module
    dataset.add_columns(rows.select(["a"]).rename_columns(["n"]))


def _join(dataset: Any, module: Any, rows: pa.Table) -> None:
    del module
    other = rows.select(["key", "a"]).rename_columns(["key", "n"]).slice(0, 1_000_000)
    dataset.merge(other, "key")


CASES: Final[dict[str, Any]] = {
    "add_sql": lambda dataset, *_: dataset.add_columns({"n": "a + 1"}),
    "add_function": _add_function,
    "add_rows": _add_rows,
    "add_nulls": lambda dataset, *_: dataset.add_columns(pa.field("n", pa.int64())),
    "join": _join,
    "cast": lambda dataset, *_: dataset.alter_columns({"path": "f", "data_type": pa.float32()}),
    "rename": lambda dataset, *_: dataset.alter_columns({"path": "f", "name": "g"}),
    "drop": lambda dataset, *_: dataset.drop_columns(["f"]),
}


if __name__ == "__main__":
    main()
