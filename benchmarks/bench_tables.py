"""Compare tables with the reference: open, append, delete, filter and take rows.

python benchmarks/bench_tables.py [--scale 1.0] [--only open append ...]

Each side uses tables that it wrote, or both read the same table if only reads are timed. A group of
cases is one function in `GROUPS`, which yields its comparisons.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import lance as reference
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, save

import lancelet as ours

SIDES: Final = (("ours", ours), ("theirs", reference))


def main() -> None:
    """Run the requested groups and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    parser.add_argument("--folder", type=Path, help="where to write, default a temporary folder")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    found: list[Comparison] = []
    print(HEADER)
    for name in arguments.only:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            found += GROUPS[name](Path(folder), arguments.scale)
    print("saved", save("tables", found, {"scale": arguments.scale}, arguments.save))


def open_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Open tables of many versions, and of many fragments."""
    for count in (1, 100, 1_000, 10_000):
        versions = max(1, int(count * scale))
        path = _table_of_versions(folder / f"versions{count}", versions)
        yield compare(
            f"open at {versions} versions",
            lambda: ours.dataset(path).version,
            lambda: reference.dataset(path).version,
            repeat=20,
        )
        fragments = max(1, int(count * scale))
        path = _table_of_fragments(folder / f"fragments{count}", fragments)
        yield compare(
            f"open with {fragments} fragments",
            lambda: ours.dataset(path).version,
            lambda: reference.dataset(path).version,
            repeat=20,
        )
        yield compare(
            f"count rows of {fragments} fragments",
            lambda: ours.dataset(path).count_rows(),
            lambda: reference.dataset(path).count_rows(),
            repeat=5,
        )


def append_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Append a few rows repeatedly; the last of 500 appends should cost as much as the first."""
    rows = pa.table({"id": range(10), "text": [f"row {i}" for i in range(10)]})
    tables = {name: str(folder / name) for name, _ in SIDES}
    for name, module in SIDES:
        module.write_dataset(rows, tables[name])
    times: dict[str, list[float]] = {name: [] for name, _ in SIDES}

    def append(name: str, module: Any) -> None:
        begun = time.perf_counter()
        module.write_dataset(rows, tables[name], mode="append")
        times[name].append((time.perf_counter() - begun) * 1e3)

    count = max(20, int(500 * scale))
    half = count // 2
    for label in ("first", "last"):
        yield compare(
            f"append, the {label} {half} of {count}",
            lambda: append("ours", ours),
            lambda: append("theirs", reference),
            rounds=5,
            repeat=max(1, half // 6),
        )
    for name, _ in SIDES:
        quarter = max(1, len(times[name]) // 4)
        first, last = np.median(times[name][:quarter]), np.median(times[name][-quarter:])
        print(f"    {name}: {first:.2f} ms an append at first, {last:.2f} ms at last")
    for fragments in (1_000, 100_000):
        made = max(1, int(fragments * scale))
        paths = {
            name: _table_of_fragments(folder / f"{name}{fragments}", made) for name, _ in SIDES
        }
        handles = {name: module.dataset(paths[name]) for name, module in SIDES}
        small = pa.table({"id": [1], "text": ["more"]})
        yield compare(
            f"append to {made} fragments",
            lambda: handles["ours"].insert(small),
            lambda: handles["theirs"].insert(small),
            rounds=3,
        )


def filter_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Filter by a key that is sorted and by one that is not, with 2 and with 16 columns."""
    count = max(10_000, int(2_000_000 * scale))
    path = str(folder / "filtered")
    ours.write_dataset(_keyed(count), path)
    mine, theirs = ours.dataset(path), reference.dataset(path)
    columns = {2: ["sorted", "c0"], 16: ["sorted", "random", *(f"c{i}" for i in range(14))]}
    for share in (0.00001, 0.01, 0.5):
        wanted = max(1, int(count * share))
        for key in ("sorted", "random"):
            text = f"{key} >= {count // 3} AND {key} < {count // 3 + wanted}"
            for width, names in columns.items():
                yield compare(
                    f"filter {share:.3%} by {key} key, {width} columns",
                    lambda: mine.to_table(columns=names, filter=text),
                    lambda: theirs.to_table(columns=names, filter=text),
                )
            yield compare(
                f"count {share:.3%} by {key} key",
                lambda: mine.count_rows(filter=text),
                lambda: theirs.count_rows(filter=text),
            )


def read_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Read small tables whole, and single rows of large ones."""
    count = max(10_000, int(2_000_000 * scale))
    path = str(folder / "large")
    ours.write_dataset(_keyed(count), path)
    mine, theirs = ours.dataset(path), reference.dataset(path)
    random = np.random.default_rng(1)
    for wanted in (1, 10, 1_000):
        rows = np.sort(random.choice(count, wanted, replace=False)).tolist()
        for names in (["c0"], None):
            width = "16 columns" if names is None else "1 column"
            yield compare(
                f"take {wanted} rows, {width}",
                lambda: mine.take(rows, columns=names),
                lambda: theirs.take(rows, columns=names),
                repeat=max(1, 100 // wanted),
            )
    yield compare("scan 16 columns", mine.to_table, theirs.to_table)
    for fragments in (1, 100):
        path = _table_of_fragments(folder / f"small{fragments}", fragments, rows=100)
        small, same = ours.dataset(path), reference.dataset(path)
        yield compare(
            f"read {fragments} fragments of 100 rows", small.to_table, same.to_table, repeat=10
        )
        yield compare(
            f"open and read {fragments} fragments of 100 rows",
            lambda: ours.dataset(path).to_table(),
            lambda: reference.dataset(path).to_table(),
            repeat=10,
        )


def delete_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Delete some rows by a predicate, each time others."""
    count = max(10_000, int(1_000_000 * scale))
    tables = {}
    for name, module in SIDES:
        ours.write_dataset(_keyed(count), str(folder / name))
        tables[name] = module.dataset(str(folder / name))
    begun = dict.fromkeys(tables, 0)

    def delete(name: str, share: float) -> None:
        start, stop = begun[name], begun[name] + max(1, int(count * share))
        begun[name] = stop
        tables[name].delete(f"random >= {start} AND random < {stop}")

    for share in (0.00001, 0.01):
        yield compare(
            f"delete {share:.3%} by random key",
            lambda: delete("ours", share),
            lambda: delete("theirs", share),
        )


def small_change_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Change a row or ten of a small table, and its columns and settings, again and again."""
    count = max(1_000, int(10_000 * scale))
    few = _keyed(10)
    changes: dict[str, Callable[[Any, int], object]] = {
        "insert 10 rows": lambda table, _: table.insert(few),
        "delete 1 row": lambda table, number: table.delete(f"sorted = {number}"),
        "update 1 row": lambda table, number: table.update(
            {"c0": "c0 + 1"}, where=f"sorted = {number}"
        ),
        "upsert 10 rows": lambda table, _: (
            table.merge_insert("sorted")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute(few)
        ),
        "change the config": lambda table, number: table.update_config({"round": str(number)}),
        "rename a column": lambda table, number: table.alter_columns(
            {"path": table.schema.names[-1], "name": f"name{number}"}
        ),
    }
    for name, change in changes.items():
        tables = {
            side: ours.write_dataset(_keyed(count), str(folder / f"{side} {name}")).uri
            for side, _ in SIDES
        }
        handles = {side: module.dataset(tables[side]) for side, module in SIDES}
        numbers = {side: iter(range(count)) for side, _ in SIDES}
        yield compare(
            f"{name} of {count}",
            lambda change=change, handles=handles, numbers=numbers: change(
                handles["ours"], next(numbers["ours"])
            ),
            lambda change=change, handles=handles, numbers=numbers: change(
                handles["theirs"], next(numbers["theirs"])
            ),
            repeat=10,
        )


def question_cases(folder: Path, scale: float) -> Iterator[Comparison]:
    """Query a small table by SQL, and the rows inserted since its first version."""
    path = str(folder / "asked")
    ours.write_dataset(_keyed(max(1_000, int(10_000 * scale))), path, enable_stable_row_ids=True)
    ours.write_dataset(_keyed(10), path, mode="append")
    mine, theirs = ours.dataset(path), reference.dataset(path)
    queries = {
        "select 10 rows by SQL": "SELECT sorted, c0 FROM dataset WHERE sorted < 10",
        "group by SQL": "SELECT c0 % 8 AS part, count(*) FROM dataset GROUP BY part",
    }
    for name, text in queries.items():
        yield compare(
            name,
            lambda text=text: mine.sql(text).build().to_batch_records(),
            lambda text=text: theirs.sql(text).build().to_batch_records(),
            repeat=10,
        )
    yield compare(
        "rows inserted since version 1",
        lambda: mine.delta(compared_against=1).get_inserted_rows().read_all(),
        lambda: theirs.delta(compared_against=1).get_inserted_rows().read_all(),
        repeat=10,
    )


GROUPS: Final[dict[str, Callable[[Path, float], Iterator[Comparison]]]] = {
    "open": open_cases,
    "append": append_cases,
    "filter": filter_cases,
    "read": read_cases,
    "delete": delete_cases,
    "small changes": small_change_cases,
    "questions": question_cases,
}


def _keyed(count: int) -> pa.Table:
    random = np.random.default_rng(7)
    columns = {"sorted": np.arange(count), "random": random.permutation(count)}
    columns |= {f"c{i}": random.integers(0, 1 << 20, count) for i in range(14)}
    return pa.table(columns)


def _table_of_versions(path: Path, versions: int) -> str:
    """Create a table with one commit per version."""
    table = ours.write_dataset(pa.table({"id": [1]}), str(path), storage_options=_NO_SYNC)
    for version in range(1, versions):
        table.update_config({"round": str(version)})
    return str(path)


def _table_of_fragments(path: Path, fragments: int, *, rows: int = 1) -> str:
    """Create a table whose fragments all refer to the same file."""
    table = pa.table({"id": range(rows), "text": [f"row {i}" for i in range(rows)]})
    first = ours.write_dataset(table, str(path), storage_options=_NO_SYNC)
    (fragment,) = (piece.metadata for piece in first.get_fragments())
    more = [fragment] * (fragments - 1)
    if more:
        ours.LanceDataset.commit(str(path), ours.LanceOperation.Append(more), read_version=1)
    return str(path)


_NO_SYNC: Final = {"local_sync": "false"}


if __name__ == "__main__":
    main()
