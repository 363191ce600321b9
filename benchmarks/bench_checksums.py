"""What verification costs, by the size of a checksummed block.

python benchmarks/bench_checksums.py [--mebibytes 256] [--rows 1000]

A scan verifies every block once, a take those it touches, and again nothing. Small blocks make
first takes cheap and the table of checksums long; the choice is `CHECKSUM_BLOCK_BYTES`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from lancelet.buffers import ByteRanges, ByteSlices
from lancelet.file.checksums import ChecksumBuilder, Checksums, VerifiedBytes, Verify

CHUNK_BYTES = 2048
SPLIT_BYTES = 1 << 20
ROUNDS = 7


def milliseconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) * 1000)
    return statistics.median(times)


def checksums_of(data: np.ndarray, block_bytes: int) -> Checksums:
    builder = ChecksumBuilder(block_bytes)
    builder.update(data)
    return Checksums(block_bytes, data.nbytes, data.nbytes, builder.finish())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=256)
    parser.add_argument("--rows", type=int, default=1000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    data = rng.integers(0, 256, arguments.mebibytes << 20).astype(np.uint8)
    starts = np.arange(0, data.nbytes, SPLIT_BYTES)
    scan = [ByteRanges.of((start, SPLIT_BYTES)) for start in starts.tolist()]
    places = np.sort(rng.integers(0, data.nbytes - CHUNK_BYTES, arguments.rows))
    take = ByteRanges(places, np.full(len(places), CHUNK_BYTES))

    def fetch(ranges: ByteRanges) -> ByteSlices:
        return ByteSlices(data, ranges.position, ranges.size)

    print(
        f"{'block':>8} {'table':>9} {'scan ms':>9} {'GB/s':>6} {'first take ms':>14} {'again':>7}"
    )
    for kibibytes in (4, 8, 16, 32, 64):
        checksums = checksums_of(data, kibibytes * 1024)

        def verified(checksums: Checksums = checksums) -> VerifiedBytes:
            return VerifiedBytes(fetch, checksums, Verify.FULL)

        def scan_all() -> None:
            reader = verified()
            for ranges in scan:
                reader.read_ranges(ranges)

        known = verified()
        known.read_ranges(take)
        scanned = milliseconds(scan_all)
        first = milliseconds(lambda: verified().read_ranges(take))
        again = milliseconds(lambda: known.read_ranges(take))
        table = checksums.crcs.nbytes / data.nbytes
        print(
            f"{kibibytes:>4} KiB {table:>9.4%} {scanned:>9.1f} {data.nbytes / scanned / 1e6:>6.1f} "
            f"{first:>14.2f} {again:>7.2f}"
        )


if __name__ == "__main__":
    main()
