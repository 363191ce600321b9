"""Compare reads of ten thousand small ranges of a local file with one `os.pread` for each.

python benchmarks/bench_io.py [--file-bytes 2147483648]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from compare import HEADER, compare, drop_from_page_cache

from lancelet.buffers import ByteRanges
from lancelet.io import ObjectReader, open_store
from lancelet.kernels import copy_slices

NUM_RANGES = 10_000


def take(reader: ObjectReader, ranges: ByteRanges) -> np.ndarray:
    """Read ranges and copy them out, as a decoder of plain values would."""
    out = np.empty(int(ranges.size.sum()), np.uint8)
    copy_slices(reader.read_ranges(ranges), out, np.cumsum(ranges.size) - ranges.size)
    return out


def open_and_take(path: Path, ranges: ByteRanges) -> np.ndarray:
    """Take with a new map; the system forgets no page that an old one holds."""
    store, name = open_store(path)
    with store.open_reader(name) as reader:
        return take(reader, ranges)


def pread(path: Path, ranges: ByteRanges) -> bytes:
    """Read ranges one by one."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pairs = zip(ranges.size.tolist(), ranges.position.tolist(), strict=True)
        return b"".join([os.pread(descriptor, size, position) for size, position in pairs])
    finally:
        os.close(descriptor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file-bytes", type=int, default=2 << 30)
    arguments = parser.parse_args()
    print(HEADER)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "data"
        generator = np.random.default_rng(1)
        with path.open("wb") as file:
            part = generator.integers(0, 256, 16 << 20, np.uint8)
            for _ in range(arguments.file_bytes // len(part)):
                file.write(part)
        for size in (8, 4096):
            positions = np.sort(generator.integers(0, arguments.file_bytes - size, NUM_RANGES))
            ranges = ByteRanges(positions, np.full(NUM_RANGES, size))
            assert bytes(open_and_take(path, ranges)) == pread(path, ranges)
            compare(
                f"open, take {NUM_RANGES} x {size} B cold",
                lambda ranges=ranges: open_and_take(path, ranges),
                lambda ranges=ranges: pread(path, ranges),
                prepare=lambda: drop_from_page_cache(path),
                rounds=3,
            )
            compare(
                f"open, take {NUM_RANGES} x {size} B warm",
                lambda ranges=ranges: open_and_take(path, ranges),
                lambda ranges=ranges: pread(path, ranges),
            )
            store, name = open_store(path)
            with store.open_reader(name) as reader:
                compare(
                    f"take {NUM_RANGES} x {size} B warm",
                    lambda ranges=ranges, reader=reader: take(reader, ranges),
                    lambda ranges=ranges: pread(path, ranges),
                )


if __name__ == "__main__":
    main()
