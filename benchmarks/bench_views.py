"""Measure refreshes of materialised views after changes of 1 % of the rows.

python benchmarks/bench_views.py [--rows 10000000]

Each case creates the source and its views again. Decision record 44 lists the results.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lancelet

QUERIES = {
    "rows": "SELECT id, x * 2 AS twice, y FROM source WHERE x < 500000",
    "groups": "SELECT k, count(*) AS n, sum(x) AS total FROM source GROUP BY k",
    "groups with max": "SELECT k, count(*) AS n, max(x) AS most FROM source GROUP BY k",
    "joined": "SELECT source.id, name, x FROM source JOIN keys ON k = keys.id WHERE x < 500000",
    "function": "SELECT id, model(x) AS score FROM source WHERE x < 100000",
}
KINDS = ("append", "range", "random")
GROUPS = 10_000


def model(values: pa.Array) -> pa.Array:
    """Compute for about 2 us per row, far less than a model."""
    for _ in range(60):
        scores = pc.sin(pc.add(values.cast(pa.float64()), 1.0))
    return scores


def main() -> None:
    """Print the time of refreshes, and that of computing all rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    print(f"{'case':<34}{'refresh, s':>12}{'CPU':>8}{'full, s':>10}{'CPU':>8}{'CPU share':>12}")
    for name, query in QUERIES.items():
        for kind in (*KINDS, "keys") if name == "joined" else KINDS:
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), name, query, kind, rows)


def measure(folder: Path, name: str, query: str, kind: str, rows: int) -> None:
    """Refresh a view after one kind of change."""
    random = np.random.default_rng(0)
    source = lancelet.write_dataset(
        table(random, 0, rows), folder / "source", enable_stable_row_ids=True
    )
    keys = lancelet.write_dataset(
        {"id": range(GROUPS), "name": [f"key {each}" for each in range(GROUPS)]},
        folder / "keys",
        enable_stable_row_ids=True,
    )
    functions = {"model": model} if "model" in query else None
    view = source.create_view(folder / "view", query, functions=functions, tables={"keys": keys})
    changed = rows // 100
    if kind == "append":
        source.insert(table(random, rows, changed))
    elif kind == "keys":
        keys.update({"name": "'changed'"}, where=f"id < {GROUPS // 100}")
    else:
        ids = np.arange(changed) + rows // 3
        if kind == "random":
            ids = random.choice(rows, changed, replace=False)
        new = pa.table({"id": ids, "x": random.integers(0, 1_000_000, changed)})
        source.merge_insert("id").when_matched_update_all().execute(new)
    refresh = timed(lambda: view.refresh(functions=functions))
    full = timed(lambda: view.refresh(full=True, functions=functions))
    share = refresh[1] / full[1]
    print(
        f"{name + ', ' + kind:<34}{refresh[0]:>12.2f}{refresh[1]:>8.2f}{full[0]:>10.2f}"
        f"{full[1]:>8.2f}{share:>12.2f}",
        flush=True,
    )


def table(random: np.random.Generator, first: int, rows: int) -> pa.Table:
    """Return rows with keys from `first` on."""
    return pa.table(
        {
            "id": np.arange(first, first + rows),
            "k": random.integers(0, GROUPS, rows),
            "x": random.integers(0, 1_000_000, rows),
            "y": random.random(rows),
        }
    )


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU time of a call in seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
