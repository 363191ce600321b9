"""Compare data files with the reference and Parquet: scans, projections, takes, writes, sizes.

python benchmarks/bench_files.py [--scale 1.0] [--only scan take ...]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import columns
import lance.file as reference
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from compare import HEADER, Comparison, compare, drop_from_page_cache, save

import lancelet.file as ours

VERSION = "2.2"


def tables(scale: float) -> dict[str, pa.Table]:
    """Return the tables of the timed cases."""

    def rows(count: int) -> int:
        return max(1000, int(count * scale))

    wide = {f"c{i:02d}": columns.int64_21_bits(rows(500_000)) for i in range(15)}
    return {
        "int32 13 bit": pa.table({"x": columns.int32_13_bits(rows(20_000_000))}),
        "int64 21 bit": pa.table({"x": columns.int64_21_bits(rows(20_000_000))}),
        "string comments": pa.table({"x": columns.comments(rows(2_000_000))}),
        "vectors f32 x 768": pa.table({"x": columns.vectors(rows(100_000))}),
        "nested list of struct": pa.table({"x": columns.nested(rows(1_000_000))}),
        "sixteen columns": pa.table({**wide, "s": columns.comments(rows(500_000))}),
    }


def write(module, path: Path, table: pa.Table) -> None:
    with module.LanceFileWriter(str(path), table.schema, version=VERSION) as writer:
        for batch in table.to_batches(max_chunksize=65_536):
            writer.write_batch(batch)


def scan(module, path: Path, names=None) -> pa.Table:
    return module.LanceFileReader(str(path), columns=names).read_all(batch_size=65_536).to_table()


def timed_cases(folder: Path, scale: float, only: set[str]) -> list[Comparison]:
    results = []
    for name, table in tables(scale).items():
        path = folder / f"{name.replace(' ', '_')}.lance"
        if "write" in only:
            results.append(
                compare(
                    f"write {name}",
                    lambda: write(ours, folder / "ours.lance", table),
                    lambda: write(reference, folder / "theirs.lance", table),
                    rounds=3,
                )
            )
        write(reference, path, table)
        own = path.with_suffix(".ours.lance")
        write(ours, own, table)
        assert scan(ours, path).equals(scan(reference, path))
        assert scan(reference, own).equals(table.combine_chunks()) or "nested" in name
        for label, file in (("", path), (" (our file)", own)):
            if "scan" in only:
                results.append(
                    compare(
                        f"scan {name}{label}",
                        lambda: scan(ours, file),
                        lambda: scan(reference, file),
                    )
                )
        if "cold" in only:
            results.append(
                compare(
                    f"cold scan {name}",
                    lambda: scan(ours, path),
                    lambda: scan(reference, path),
                    prepare=lambda: drop_from_page_cache(path),
                    rounds=3,
                )
            )
        if "project" in only and "sixteen" in name:
            results.append(
                compare(
                    "scan 1 of 16 columns",
                    lambda: scan(ours, path, ["c07"]),
                    lambda: scan(reference, path, ["c07"]),
                )
            )
        if "take" in only:
            results += take_cases(name, path, table.num_rows)
    return results


def take_cases(name: str, path: Path, num_rows: int) -> list[Comparison]:
    results = []
    random = np.random.default_rng(1)
    mine, theirs = ours.LanceFileReader(str(path)), reference.LanceFileReader(str(path))
    for count in (1, 10, 100, 1_000, 10_000):
        rows = np.sort(random.choice(num_rows, min(count, num_rows), replace=False)).tolist()
        results.append(
            compare(
                f"take {count} {name}",
                lambda: mine.take_rows(rows).to_table(),
                lambda: theirs.take_rows(rows).to_table(),
                repeat=max(1, 200 // count),
            )
        )
    rows = np.sort(random.choice(num_rows, 1_000, replace=False)).tolist()
    results.append(
        compare(
            f"cold take 1000 {name}",
            lambda: ours.LanceFileReader(str(path)).take_rows(rows).to_table(),
            lambda: reference.LanceFileReader(str(path)).take_rows(rows).to_table(),
            prepare=lambda: drop_from_page_cache(path),
            rounds=3,
        )
    )
    return results


def size_cases(folder: Path, scale: float) -> dict[str, dict[str, float]]:
    """Return bytes per value of each column: raw, ours, the reference's, Parquet with zstd."""
    rows = max(10_000, int(1_000_000 * scale))
    found: dict[str, dict[str, float]] = {}
    print(
        f"\n{'bytes per value':<28} {'raw':>8} {'ours':>8} {'reference':>10} {'parquet zstd':>13}"
    )
    for name, make in columns.SIZE_COLUMNS.items():
        table = pa.table({"x": make(rows)})
        mine, theirs, parquet = (
            folder / f"size.{suffix}" for suffix in ("ours", "theirs", "parquet")
        )
        write(ours, mine, table)
        write(reference, theirs, table)
        pq.write_table(table, parquet, compression="zstd")
        found[name] = {
            "raw": table.nbytes / rows,
            "ours": mine.stat().st_size / rows,
            "reference": theirs.stat().st_size / rows,
            "parquet": parquet.stat().st_size / rows,
        }
        print(size_row(name, found[name]), flush=True)
    total = {
        key: sum(f[key] for f in found.values()) for key in ("raw", "ours", "reference", "parquet")
    }
    print(size_row("total", total))
    return {**found, "total": total}


def size_row(name: str, sizes: dict[str, float]) -> str:
    """Return a line of the table of sizes."""
    return (
        f"{name:<28} {sizes['raw']:>8.2f} {sizes['ours']:>8.2f} "
        f"{sizes['reference']:>10.2f} {sizes['parquet']:>13.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--only", nargs="*", default=["write", "scan", "cold", "project", "take", "size"]
    )
    parser.add_argument("--folder", type=Path, help="where to write, default a temporary folder")
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    only = set(arguments.only)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        print(HEADER)
        comparisons = timed_cases(folder, arguments.scale, only)
        sizes = size_cases(folder, arguments.scale) if "size" in only else {}
    print(
        "saved",
        save(
            "files",
            comparisons,
            {"scale": arguments.scale, "bytes_per_value": sizes},
            arguments.save,
        ),
    )


if __name__ == "__main__":
    main()
