"""Compare the native Zstandard and LZ4 kernels with libraries, in whole writes and scans.

python benchmarks/bench_compression.py

The same tables are written and scanned with the kernels, and with the `zstandard` package and the
LZ4 codec of Arrow in their place. The codec of Arrow is called per chunk and does not validate the
size of its output, so it could not be used for untrusted files.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lancelet
from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels import native, reference
from lancelet.kernels.arguments import plain_sizes, slices_of_sizes

ROWS = 1_000_000
TEXTS = 200_000
NAMES = (
    "zstd_decompress_chunks",
    "zstd_encode_prefixes",
    "lz4_decompress_chunks",
    "lz4_compress_chunks",
)
ARROW_LZ4 = pa.Codec("lz4_raw")


def arrow_decompress(
    slices: ByteSlices, out_sizes: Int64s | None = None, *, max_sizes: Int64s | None = None
) -> ByteSlices:
    """Decompress LZ4 blocks by the codec of Arrow, one call per block."""
    blocks, sizes = plain_sizes(slices, out_sizes, max_sizes, kernel="lz4_decompress_chunks")
    source = pa.py_buffer(blocks.source)
    parts = [
        ARROW_LZ4.decompress(source.slice(position, size), plain) if plain else b""
        for position, size, plain in zip(
            blocks.position.tolist(), blocks.size.tolist(), sizes.tolist(), strict=True
        )
    ]
    return slices_of_sizes(np.frombuffer(b"".join(parts), np.uint8), sizes)


IMPLEMENTATIONS = {
    "kernels": {name: getattr(native, name) for name in NAMES},
    "libraries": {name: getattr(reference, name) for name in NAMES}
    | {"lz4_decompress_chunks": arrow_decompress},
}


def use(implementation: str) -> None:
    for name, function in IMPLEMENTATIONS[implementation].items():
        setattr(kernels, name, function)


def tables() -> dict[str, pa.Table]:
    """Return tables with the compression that the writer chooses, and with each one requested."""
    rng = np.random.default_rng(0)
    words = np.array(
        ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(5000)]
    )
    sentences = [" ".join(row) for row in words[rng.integers(0, 5000, (TEXTS, 12))]]
    urls = [
        f"https://example.com/{a}/{b}?id={c}"
        for a, b, c in zip(
            words[rng.integers(0, 50, TEXTS)],
            words[rng.integers(0, 5000, TEXTS)],
            rng.integers(0, 10**6, TEXTS),
            strict=True,
        )
    ]
    plain = {
        "prices": pa.table({"x": np.round(rng.lognormal(3, 1, ROWS), 2)}),
        "times": pa.table({"x": np.cumsum(rng.integers(0, 1000, ROWS))}),
        "ids": pa.table({"x": [f"user-{i:08d}" for i in rng.integers(0, 10**7, ROWS)]}),
        "sentences": pa.table({"x": sentences}),
        "urls": pa.table({"x": urls}),
    }
    found = dict(plain)
    for scheme in ("zstd", "lz4"):
        metadata = {b"lance-encoding:compression": scheme.encode()}
        for name, table in plain.items():
            field = table.schema.field(0).with_metadata(metadata)
            found[f"{name}, {scheme}"] = table.cast(pa.schema([field]))
    return found


def best_ms(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    print("table                write ms, kernels and libraries    scan ms, kernels and libraries")
    for name, table in tables().items():
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "t")
            times: dict[str, list[float]] = {}
            for what in ("write", "scan"):
                for implementation in (*IMPLEMENTATIONS, *IMPLEMENTATIONS):
                    use(implementation)
                    if what == "write":
                        shutil.rmtree(path, ignore_errors=True)

                    def work(what: str = what, path: str = path, table: pa.Table = table) -> None:
                        if what == "write":
                            lancelet.write_dataset(
                                table, path, mode="overwrite", durability="written"
                            )
                        else:
                            lancelet.dataset(path).to_table()

                    times.setdefault(f"{what} {implementation}", []).append(best_ms(work, 3))
                if what == "write":
                    # Both scans read the same file.
                    use("kernels")
                    shutil.rmtree(path)
                    lancelet.write_dataset(table, path)
            cells = []
            for what in ("write", "scan"):
                own, library = (min(times[f"{what} {each}"]) for each in IMPLEMENTATIONS)
                cells.append(f"{own:8.2f} {library:8.2f}  x{library / own:.2f}")
            print(f"{name:20s} {'          '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
