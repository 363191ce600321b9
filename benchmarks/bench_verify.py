"""What verification costs: the same reads with it off, sampled and full.

    python benchmarks/bench_verify.py [--scale 1.0]

A block is verified once in a process, so everything is measured as if the process had just started
("first": all that is known of files is forgotten) and with a reader that has read the rows before
("again"). Modes take turns, so that a noisy
machine is noisy for all of them. Values that are not compressed are not even touched by a scan of
a mapped file; there, what verification costs is what it costs to look at the bytes at all.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import columns
import numpy as np
import pyarrow as pa
from compare import measure, save

from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.file.checksums import Checksums
from lancelet.io.cache import CACHE
from lancelet.kernels import crc32c_blocks

MODES = ("off", "sample", "full")
BLOCK_KIB = (4, 16, 64, 256)
HASHED_BYTES = 256 << 20
TAKEN_BLOCKS = 1000
ROUNDS = 15
Case = Callable[[str], object]


def cases(path: Path, num_rows: int) -> dict[str, Case]:
    """Return the reads to be measured, each a function of the mode."""
    random = np.random.default_rng(1)
    warm = {mode: LanceFileReader(path, verify=mode) for mode in MODES}

    def scan(mode: str) -> object:
        CACHE.clear()
        return LanceFileReader(path, verify=mode).read_all(batch_size=65_536).to_table()

    def scan_again(mode: str) -> object:
        return warm[mode].read_all(batch_size=65_536).to_table()

    found: dict[str, Case] = {"scan, first": scan, "scan, again": scan_again}
    for count in (1, 100, 10_000):
        rows = np.sort(random.choice(num_rows, count, replace=False)).tolist()

        def first(mode: str, rows: list[int] = rows) -> object:
            CACHE.clear()
            return LanceFileReader(path, verify=mode).take_rows(rows).to_table()

        def again(mode: str, rows: list[int] = rows) -> object:
            return warm[mode].take_rows(rows).to_table()

        found[f"take {count}, first"] = first
        found[f"take {count}, again"] = again
    return found


def costs(case: Case) -> dict[str, float]:
    """Return the median CPU time of each mode, in milliseconds."""
    samples: dict[str, list[float]] = {mode: [] for mode in MODES}
    for round_number in range(ROUNDS + 1):
        for mode in MODES:
            timing = measure(lambda mode=mode: case(mode))
            if round_number:
                samples[mode].append(timing.cpu_ms)
    return {mode: statistics.median(times) for mode, times in samples.items()}


def block_costs() -> dict[str, dict[str, float]]:
    """Return, by the size of a block, what a scan and a take hash and what the table takes."""
    data = np.random.default_rng(1).integers(0, 256, HASHED_BYTES, np.uint8)
    found = {}
    print(f"{'block':<10} {'scan GB/s':>10} {'take of 1000, ms':>18} {'of the file':>12}")
    for kib in BLOCK_KIB:
        size = kib << 10
        blocks = np.random.default_rng(2).integers(0, HASHED_BYTES // size, TAKEN_BLOCKS)
        checksums = Checksums(size, 0, HASHED_BYTES, np.zeros(HASHED_BYTES // size, np.uint32))
        scan = measure(lambda size=size: crc32c_blocks(data, size)).wall_ms
        take = measure(
            lambda checksums=checksums, blocks=blocks, size=size: checksums.wrong_blocks(
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
            for what, case in cases(path, table.num_rows).items():
                taken = costs(case)
                found[f"{what}, {name}"] = taken
                print(
                    f"{what + ', ' + name:<40} {taken['off']:>10.3f} {taken['sample']:>10.3f} "
                    f"{taken['full']:>10.3f} {taken['full'] / taken['off'] - 1:>11.1%}",
                    flush=True,
                )
    print("saved", save("verify", [], {"cpu_ms": found, "blocks": blocks}, arguments.save))


if __name__ == "__main__":
    main()
