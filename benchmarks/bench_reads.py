"""Read a few rows of many columns, of lists and of many fragments, and all of a wide table.

python benchmarks/bench_reads.py [--scale 1.0] [--only numbers lists fragments wide process]

Each side reads the table that it wrote. "opened anew" cases open the table for each call; others
use one handle. `process` streams a table in a new process, including imports.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import lance as reference
import numpy as np
import pyarrow as pa
from compare import HEADER, Comparison, compare, drop_from_page_cache, save

import lancelet as ours

NUMBERS: Final = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8") * 2
TAKES: Final = 64
"""The number of takes, each of other rows, that are prepared and then run sequentially."""

STREAM: Final = (
    "import sys, time; import {module} as m; "
    "rows = sum(len(b) for b in m.dataset(sys.argv[1]).to_batches(batch_size=8000)); "
    "print(time.process_time())"
)


def main() -> None:
    """Run the requested cases and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--folder", type=Path, help="where to write, default a temporary folder")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    print(HEADER)
    found: list[Comparison] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name in arguments.only:
            found += CASES[name](Path(folder) / name, arguments.scale)
    print("saved", save("reads", found, {"scale": arguments.scale}, arguments.save))


def _numbers(folder: Path, scale: float) -> Iterator[Comparison]:
    random = np.random.default_rng(7)
    count = max(10_000, int(2_000_000 * scale))
    columns = {
        f"c{place}": random.integers(0, np.iinfo(kind).max // 3, count).astype(kind)
        for place, kind in enumerate(NUMBERS)
    }
    _write(folder, pa.table(columns))
    two = ["c3", "c2"]
    for rows, repeat in ((10, 50), (100, 20), (1000, 5)):
        yield _takes(folder, f"take {rows} of 2 of 16 columns", rows, repeat, columns=two)
        yield _takes(folder, f"take {rows} of 16 columns", rows, repeat)
    yield _takes(folder, "take 100 of 2 of 16 columns, cold", 100, 1, is_cold=True, columns=two)


def _lists(folder: Path, scale: float) -> Iterator[Comparison]:
    random = np.random.default_rng(7)
    count = max(10_000, int(200_000 * scale))
    offsets = np.concatenate([[0], np.cumsum(random.integers(0, 6, count))]).astype(np.int32)
    items = int(offsets[-1])
    structs = pa.StructArray.from_arrays(
        [
            pa.array(random.integers(0, 1 << 40, items)),
            pa.array(random.random(items)),
            pa.array([f"item {number}" for number in random.integers(0, 100_000, items)]),
        ],
        ["id", "score", "name"],
    )
    lists = pa.ListArray.from_arrays(pa.array(offsets), structs)
    _write(folder, pa.table({"key": np.arange(count), "items": lists}))
    for rows, repeat in ((1, 50), (100, 20), (10_000, 2)):
        yield _takes(folder, f"take {rows} of list<struct>", rows, repeat)
    yield _takes(folder, "take 100 of list<struct>, cold", 100, 1, is_cold=True)


def _fragments(folder: Path, scale: float) -> Iterator[Comparison]:
    random = np.random.default_rng(7)
    for fragments, rows in itertools.product((100, 200), (1_000, 10_000)):
        each = max(100, int(rows * scale))
        count = each * fragments
        table = pa.table(
            {
                "id": random.integers(0, 1 << 40, count),
                "score": random.random(count),
                "name": [f"row {number % 977} of some" for number in range(count)],
            }
        )
        place = folder / f"{fragments}-{rows}"
        _write(place, table, max_rows_per_file=each)
        named = f"take 10 of {fragments} fragments of {each:,}"
        yield _takes(place, f"{named}, anew", 10, 20, is_anew=True)
        yield _takes(place, f"{named}, handle", 10, 20)
        yield _takes(place, f"{named}, cold", 10, 1, is_cold=True)


def _wide(folder: Path, scale: float) -> Iterator[Comparison]:
    random = np.random.default_rng(7)
    count = max(100, int(10_000 * scale))
    table = pa.table(
        {
            f"c{place}": random.random(100) if place % 3 else random.integers(0, 1000, 100)
            for place in range(count)
        }
    )
    _write(folder, table)
    three = [f"c{count // part}" for part in (7, 3, 2)]
    for name, columns in ((f"3 of {count:,} columns", three), (f"{count:,} columns", None)):
        yield compare(
            f"open and read {name} x 100",
            *(partial(_read_all, side, columns) for side in _opened_anew(folder)),
        )


def _process(folder: Path, scale: float) -> Iterator[Comparison]:
    random = np.random.default_rng(7)
    count = max(10_000, int(1_000_000 * scale))
    _write(
        folder, pa.table({f"c{place}": random.integers(0, 1 << 30, count) for place in range(8)})
    )
    sides = [
        partial(_stream, module.__name__, folder / side)
        for module, side in ((ours, "ours"), (reference, "theirs"))
    ]
    yield compare("stream a table in a new process (wall)", *sides)


CASES: Final[dict[str, Callable[[Path, float], Iterator[Comparison]]]] = {
    "numbers": _numbers,
    "lists": _lists,
    "fragments": _fragments,
    "wide": _wide,
    "process": _process,
}


def _takes(
    folder: Path,
    name: str,
    rows: int,
    repeat: int,
    *,
    columns: list[str] | None = None,
    is_anew: bool = False,
    is_cold: bool = False,
) -> Comparison:
    random = np.random.default_rng(11)
    sides = _opened_anew(folder)
    if not (is_anew or is_cold):
        sides = [_kept(side()) for side in sides]
    count = sides[0]().count_rows()
    wanted = [random.integers(0, count, rows).tolist() for _ in range(TAKES)]
    return compare(
        name,
        *(partial(_take, side, itertools.cycle(wanted), columns) for side in sides),
        repeat=repeat,
        prepare=partial(drop_from_page_cache, folder) if is_cold else None,
    )


def _take(side: Callable[[], Any], wanted: Iterator[list[int]], columns: list[str] | None) -> Any:
    return side().take(next(wanted), columns=columns)


def _read_all(side: Callable[[], Any], columns: list[str] | None) -> pa.Table:
    return side().to_table(columns=columns)


def _stream(module: str, table: Path) -> None:
    command = [sys.executable, "-c", STREAM.format(module=module), str(table)]
    subprocess.run(command, check=True, capture_output=True)


def _write(folder: Path, table: pa.Table, **options: Any) -> None:
    ours.write_dataset(table, folder / "ours", **options)
    reference.write_dataset(table, folder / "theirs", data_storage_version="2.2", **options)
    # A file changed within the last clock tick is not distinguishable from a later one.
    time.sleep(0.2)


def _opened_anew(folder: Path) -> list[Callable[[], Any]]:
    return [
        partial(ours.dataset, str(folder / "ours")),
        partial(reference.dataset, str(folder / "theirs")),
    ]


def _kept(dataset: Any) -> Callable[[], Any]:
    return lambda: dataset


if __name__ == "__main__":
    main()
