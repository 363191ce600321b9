"""Compare native kernels with their NumPy definitions and with a copy of the same bytes.

python benchmarks/bench_kernels.py [--set x86-64-v3] [--only fsst ...]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from lancelet import kernels
from lancelet.buffers import ByteSlices
from lancelet.kernels import native, reference

BYTES = 32 << 20


@dataclass(frozen=True)
class Case:
    """The arguments of a kernel, and the number of decoded bytes."""

    kernel: str
    detail: str
    arguments: tuple
    plain_bytes: int


def back_to_back(source: np.ndarray, sizes: np.ndarray) -> ByteSlices:
    return ByteSlices(source, np.cumsum(sizes) - sizes, sizes)


def fixed_width_cases(rng: np.random.Generator) -> Iterator[Case]:
    for bits, width in ((32, 13), (64, 21)):
        dtype = np.dtype(f"u{bits // 8}")
        values = rng.integers(0, 1 << width, BYTES // dtype.itemsize, dtype)
        packed = ByteSlices(*native.pack_chunks(values))
        counts = np.full(len(packed), 1024)
        detail = f"u{bits}, {width} bits"
        yield Case("pack_chunks", detail, (values,), values.nbytes)
        yield Case("unpack_chunks", detail, (packed, counts, bits), values.nbytes)
        blocks = native.pack_blocks(values, width)
        yield Case("unpack_blocks", detail, (blocks, width, len(values), bits), values.nbytes)
        index = rng.integers(0, 1024, len(packed))
        yield Case("pick_packed", detail, (packed, index, bits), index.nbytes)
    floats = rng.normal(size=BYTES // 8)
    chunks = np.full(len(floats) // 512, 512)
    data = floats.view(np.uint8)
    yield Case("split_bytes_chunks", "f64", (data, 8, chunks), data.nbytes)
    planes = back_to_back(native.split_bytes_chunks(data, 8, chunks), chunks * 8)
    yield Case("join_bytes_chunks", "f64", (planes, chunks, 8), data.nbytes)
    yield Case("zone_min_max", "f64", (floats, 8192), data.nbytes)
    validity = np.packbits(rng.random(len(floats)) < 0.9, bitorder="little")
    yield Case("zone_min_max", "f64, nulls", (floats, 8192, validity), data.nbytes)
    runs = np.repeat(rng.integers(0, 1000, BYTES // 64, np.int32), 16).view(np.uint8)
    chunks = np.full(runs.nbytes // 4 // 4096, 4096)
    yield Case("rle_encode_chunks", "i32, runs of 16", (runs, 4, chunks), runs.nbytes)
    stored, lengths, counts = native.rle_encode_chunks(runs, 4, chunks)
    slices = (back_to_back(stored, counts * 4), back_to_back(lengths, counts))
    yield Case("rle_decode_chunks", "i32, runs of 16", (*slices, chunks, 4), runs.nbytes)


def string_cases(rng: np.random.Generator) -> Iterator[Case]:
    words = [b"https://", b"www.", b"example", b".com/", b"item?id=", b"page", b"-", b"7", b"42"]
    picks = rng.integers(0, len(words), (300_000, 12))
    strings = [b"".join(words[k] for k in row) for row in picks.tolist()]
    offsets = np.cumsum([0, *map(len, strings)]).astype(np.int32)
    data = np.frombuffer(b"".join(strings), np.uint8)
    table = native.fsst_train(offsets, data)
    codes = native.fsst_encode(offsets, data, *table)
    yield Case("fsst_encode", "urls", (offsets, data, *table), data.nbytes)
    yield Case("fsst_decode", "urls", (*codes, *table, 32), data.nbytes)
    chunks, counts = variable_chunks(*codes, rows=128)
    yield Case("fsst_decode_chunks", "urls", (chunks, counts, 4, *table, 32), data.nbytes)
    chunks, counts = variable_chunks(offsets, data, rows=64)
    yield Case("concat_variable", "urls", (chunks, counts, 4, 32), data.nbytes)
    rows = rng.integers(0, len(strings), 100_000)
    yield Case("take_variable", "urls", (offsets, data, rows), len(rows) * 56)
    yield Case("xxh64_many", "urls", (offsets, data), data.nbytes)
    blocks = back_to_back(data, np.full(data.nbytes // 32768, 32768))
    packed = native.lz4_compress_chunks(blocks, sized=True)
    yield Case("lz4_decompress_chunks", "urls", (packed,), int(blocks.size.sum()))


def byte_cases(rng: np.random.Generator) -> Iterator[Case]:
    data = rng.integers(0, 256, BYTES, np.uint8)
    yield Case("crc32c_blocks", "64 KiB", (data, 1 << 16), data.nbytes)
    slices = back_to_back(data, np.full(BYTES // 4096, 4096))
    yield Case("join_slices", "4 KiB", (slices,), data.nbytes)
    position = rng.integers(0, BYTES - 8, 500_000)
    yield Case("take_fixed", "8 bytes, random", (data, position, 8), 8 * len(position))
    shape = kernels.ZipShape(0, 1)
    nulls = (rng.random(BYTES // 1024) < 0.1).astype(np.uint16)
    none = np.empty(0, np.uint16)
    zipped, _ = native.zip_fixed(none, nulls, data, shape, 1024)
    yield Case("zip_fixed", "1 KiB", (none, nulls, data, shape, 1024), data.nbytes)
    yield Case("unzip_fixed", "1 KiB", (ByteSlices.whole(zipped), shape, 1024), data.nbytes)


def variable_chunks(
    offsets: np.ndarray, data: np.ndarray, *, rows: int
) -> tuple[ByteSlices, np.ndarray]:
    parts, counts = [], []
    for first in range(0, len(offsets) - 1, rows):
        own = offsets[first : first + rows + 1]
        head = (own - own[0] + 4 * len(own)).astype("<u4").tobytes()
        parts.append(head + data[own[0] : own[-1]].tobytes())
        counts.append(len(own) - 1)
    sizes = np.array([len(part) for part in parts], np.int64)
    return back_to_back(np.frombuffer(b"".join(parts), np.uint8), sizes), np.array(counts)


def seconds(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--set", default=kernels.instruction_sets()[-1])
    parser.add_argument("--only", nargs="*", help="parts of kernels' names")
    arguments = parser.parse_args()
    kernels.use_instruction_set(arguments.set)
    rng = np.random.default_rng(0)
    plain = rng.integers(0, 256, BYTES, np.uint8)
    copy = seconds(plain.copy, 9)
    print(f"{arguments.set}; copying 32 MiB: {BYTES / copy / 1e9:.1f} GB/s")
    print(f"{'kernel':<24} {'on':<18} {'native GB/s':>12} {'NumPy GB/s':>12} {'ratio':>8}")
    for cases in (fixed_width_cases, string_cases, byte_cases):
        for case in cases(rng):
            if arguments.only and not any(part in case.kernel for part in arguments.only):
                continue
            ours = getattr(native, case.kernel)
            defined = getattr(reference, case.kernel)
            fast = seconds(lambda: ours(*case.arguments), 7)
            slow = seconds(lambda: defined(*case.arguments), 1)
            rate = case.plain_bytes / 1e9
            print(
                f"{case.kernel:<24} {case.detail:<18} {rate / fast:>12.2f} "
                f"{rate / slow:>12.3f} {slow / fast:>7.0f}x"
            )


if __name__ == "__main__":
    main()
