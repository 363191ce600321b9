"""Measure the cost of verification: the same reads with it off, sampled and full.

    python benchmarks/bench_verify.py [--scale 1.0]

A block is verified once per process, so everything is measured with empty caches ("first") and
with a reader that has read the rows before ("again"). Modes alternate, so that noise affects all.
A scan of a mapped file does not access uncompressed values, and verification then costs the first
access. Scans that sum the values ("used") are therefore measured too, first and without the file in
the page cache ("from disk": wall time, mostly of the disk).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import columns
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from compare import drop_from_page_cache, measure, save

from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.file.checksums import Checksums
from lancelet.io.cache import CACHE
from lancelet.kernels import crc32c_blocks

MODES = ("off", "sample", "full")
BLOCK_KIB = (4, 16, 64, 256)
HASHED_BYTES = 256 << 20
TAKEN_BLOCKS = 1000
ROUNDS = 15
DISK_ROUNDS = 5
FROM_DISK = "from disk"
Case = Callable[[str], object]


def cases(path: Path, num_rows: int) -> dict[str, Case]:
    """Return the reads to be measured, each a function of the mode."""
    random = np.random.default_rng(1)
    # Opened when first asked: the system forgets nothing of a file that is mapped.
    warm = cache(lambda mode: LanceFileReader(path, verify=mode))

    def scan(mode: str) -> pa.Table:
        CACHE.clear()
        return LanceFileReader(path, verify=mode).read_all(batch_size=65_536).to_table()

    def scan_again(mode: str) -> object:
        return warm(mode).read_all(batch_size=65_536).to_table()

    def scan_used(mode: str) -> object:
        return used(scan(mode))

    found: dict[str, Case] = {
        "scan, first": scan,
        "scan, again": scan_again,
        "scan, first, used": scan_used,
        f"scan, {FROM_DISK}, used": scan_used,
    }
    for count in (1, 100, 10_000):
        rows = np.sort(random.choice(num_rows, count, replace=False)).tolist()

        def first(mode: str, rows: list[int] = rows) -> object:
            CACHE.clear()
            return LanceFileReader(path, verify=mode).take_rows(rows).to_table()

        def again(mode: str, rows: list[int] = rows) -> object:
            return warm(mode).take_rows(rows).to_table()

        found[f"take {count}, first"] = first
        found[f"take {count}, {FROM_DISK}"] = first
        found[f"take {count}, again"] = again
    return found


def used(table: pa.Table) -> object:
    """Access every value."""
    for chunk in table["x"].chunks:
        values = chunk.flatten() if pa.types.is_fixed_size_list(chunk.type) else chunk
        if pa.types.is_string(values.type):
            pc.sum(pc.binary_length(values))
        else:
            pc.sum(values)
    return table


def costs(case: Case, path: Path, *, from_disk: bool) -> dict[str, float]:
    """Return the median time of each mode in milliseconds: of CPU, or from the disk of the wall."""
    samples: dict[str, list[float]] = {mode: [] for mode in MODES}
    for round_number in range((DISK_ROUNDS if from_disk else ROUNDS) + 1):
        for mode in MODES:
            if from_disk:
                CACHE.clear()
                drop_from_page_cache(path)
            timing = measure(lambda mode=mode: case(mode))
            if round_number:
                samples[mode].append(timing.wall_ms if from_disk else timing.cpu_ms)
    return {mode: statistics.median(times) for mode, times in samples.items()}


def block_costs() -> dict[str, dict[str, float]]:
    """Return, by block size, the bytes that a scan and a take hash, and the size of the table."""
    data = np.random.default_rng(1).integers(0, 256, HASHED_BYTES, np.uint8)
    found = {}
    print(f"{'block':<10} {'scan GB/s':>10} {'take of 1000, ms':>18} {'of the file':>12}")
    for kib in BLOCK_KIB:
        size = kib << 10
        blocks = np.random.default_rng(2).integers(0, HASHED_BYTES // size, TAKEN_BLOCKS)
        checksums = Checksums(size, 0, HASHED_BYTES, np.zeros(HASHED_BYTES // size, np.uint32))
        scan = measure(lambda size=size: crc32c_blocks(data, size)).wall_ms
        take = measure(
            lambda checksums=checksums, blocks=blocks, size=size: checksums.damaged_blocks(
                blocks, data, blocks * size
            )
        ).wall_ms
        found[f"{kib} KiB"] = {
            "scan_gb_per_s": HASHED_BYTES / scan / 1e6,
            "take_1000_ms": take,
            "share_of_file": 4 / size,
        }
        print(f"{kib:>6} KiB {HASHED_BYTES / scan / 1e6:>10.1f} {take:>18.2f} {4 / size:>12.4%}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--save", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()

    def rows(count: int) -> int:
        return max(20_000, int(count * arguments.scale))

    made = {
        "int64 21 bit": columns.int64_21_bits(rows(20_000_000)),
        "string comments": columns.comments(rows(2_000_000)),
        "vectors f32 x 768": columns.vectors(rows(100_000)),
    }
    blocks = block_costs()
    found: dict[str, dict[str, float]] = {}
    print(f"{'case':<40} {'off ms':>10} {'sample':>10} {'full':>10} {'full costs':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for name, column in made.items():
            path = Path(folder) / "f.lance"
            table = pa.table({"x": column})
            with LanceFileWriter(path, table.schema) as writer:
                for batch in table.to_batches(max_chunksize=65_536):
                    writer.write_batch(batch)
            for what, case in sorted(
                cases(path, table.num_rows).items(), key=lambda each: FROM_DISK not in each[0]
            ):
                taken = costs(case, path, from_disk=FROM_DISK in what)
                found[f"{what}, {name}"] = taken
                print(
                    f"{what + ', ' + name:<40} {taken['off']:>10.3f} {taken['sample']:>10.3f} "
                    f"{taken['full']:>10.3f} {taken['full'] / taken['off'] - 1:>11.1%}",
                    flush=True,
                )
    print("saved", save("verify", [], {"cpu_ms": found, "blocks": blocks}, arguments.save))


if __name__ == "__main__":
    main()
