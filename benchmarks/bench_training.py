"""Loading for training: samples a second, the first batch, and memory, beside other loaders.

python benchmarks/bench_training.py [--scale 0.1] [--seconds 10] [--only features images tokens]

    features    rows of sixteen numbers, batches of 1,024
    images      rows with a JPEG of some 20 KB and a label, batches of 64, not decoded
    tokens      sequences of 50 to 500 tokens, batches of 256

The same rows lie in a Lance table and in Parquet files with row groups of 10,000. Each loader
runs in a process of its own, after one that has the files in memory; it yields tensors of PyTorch
or, for images and tokens, what it makes of bytes and lists by itself. Loaders:

    lancelet            the plan of an epoch, `LanceDataset` of `lancelet.torch.data`
    pylance             its `LanceDataset`, and for a shuffle `SafeLanceDataset` in a `DataLoader`
    datasets            Hugging Face's over Parquet: streamed, and for a shuffle as a map

A shuffle is of all rows, not of a buffer. Processor time leaves out the worker that pylance's
shuffled loader has beside the process. Needs the groups `test` and `torch`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from compare import save

SHAPES: Final = {
    "features": (10_000_000, 1024),
    "images": (200_000, 64),
    "tokens": (2_000_000, 256),
}
"""Rows at scale 1, and rows of a batch."""
LOADERS: Final = ("lancelet", "pylance", "datasets")
_GROUP: Final = 10_000


def make(shape: str, rows: int) -> pa.Table:
    """Return the rows of a shape."""
    random = np.random.default_rng(4)
    if shape == "features":
        numbers = {f"f{n}": random.random(rows, np.float32) for n in range(15)}
        return pa.table({**numbers, "label": random.integers(0, 10, rows)})
    if shape == "images":
        sizes = random.integers(15_000, 25_000, rows)
        noise = random.bytes(int(sizes.max()) + rows)
        return pa.table(
            {
                "image": pa.array([noise[n : n + size] for n, size in enumerate(sizes.tolist())]),
                "label": random.integers(0, 1000, rows),
            }
        )
    ends = np.cumsum(random.integers(50, 500, rows))
    tokens = pa.array(random.integers(0, 50_000, int(ends[-1]), np.int32))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.table({"tokens": pa.ListArray.from_arrays(offsets, tokens)})


def batches_of(loader: str, folder: Path, rows: int, *, shuffled: bool) -> Iterable[Any]:
    """Return what yields the batches of an epoch."""
    load: Callable[[Path, int, bool], Iterable[Any]] = globals()[f"_{loader}"]
    return load(folder, rows, shuffled)


def _lancelet(folder: Path, rows: int, shuffled: bool) -> Iterable[Any]:
    from lancelet.torch.data import LanceDataset

    order = "rows" if shuffled else "none"
    made = {} if _is_plain(folder) else {"to_tensor_fn": _same}
    return LanceDataset(str(folder / "t.lance"), batch_size=rows, shuffle=order, seed=1, **made)


def _pylance(folder: Path, rows: int, shuffled: bool) -> Iterable[Any]:
    from lance.torch.data import (
        LanceDataset,
        SafeLanceDataset,
        get_safe_loader,
    )

    uri = str(folder / "t.lance")
    made = {} if _is_plain(folder) else {"to_tensor_fn": _same}
    if not shuffled:
        return LanceDataset(uri, batch_size=rows, **made)
    return get_safe_loader(
        SafeLanceDataset(uri), batch_size=rows, shuffle=True, num_workers=1, collate_fn=_same
    )


def _datasets(folder: Path, rows: int, shuffled: bool) -> Iterable[Any]:
    import datasets
    from torch.utils.data import DataLoader

    found = datasets.load_dataset(
        "parquet",
        data_files=str(folder / "*.parquet"),
        split="train",
        streaming=not shuffled,
        cache_dir=str(folder / "cache"),
    )
    if _is_plain(folder):
        found = found.with_format("torch")
    if not shuffled:
        return found.iter(batch_size=rows)
    return DataLoader(found, batch_size=rows, shuffle=True, collate_fn=_same)


def _is_plain(folder: Path) -> bool:
    return folder.name == "features"


def _same(batch: Any, *_: Any, **__: Any) -> Any:
    return batch


def measure(
    loader: str, folder: Path, rows: int, seconds: float, *, shuffled: bool
) -> dict[str, Any]:
    """Load for some seconds, or until the epoch ends."""
    made = batches_of(loader, folder, rows, shuffled=shuffled)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), time.process_time()
    steps, first = 0, 0.0
    for _ in made:
        steps += 1
        if steps == 1:
            first = time.perf_counter() - began
        if time.perf_counter() - began > seconds:
            break
    taken = time.perf_counter() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "samples_per_second": steps * rows / taken,
        "samples_per_cpu_second": steps * rows / (time.process_time() - cpu),
        "first_batch_ms": first * 1000,
        "grown_mb": grown / 1024,
    }


def prepare(shape: str, rows: int, folder: Path) -> None:
    """Write the rows once for all loaders."""
    import lance

    made = make(shape, rows)
    lance.write_dataset(made, folder / "t.lance", max_rows_per_file=max(rows // 8, 1))
    pq.write_table(made, folder / "t.parquet", row_group_size=_GROUP)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        loader, folder, rows, order = chosen.one
        shuffled = order == "shuffled"
        found = measure(loader, Path(folder), int(rows), chosen.seconds, shuffled=shuffled)
        print(json.dumps(found))
        return
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for shape in chosen.only:
            folder = Path(scratch) / shape
            folder.mkdir()
            rows, batch = SHAPES[shape]
            prepare(shape, max(int(rows * chosen.scale), batch), folder)
            run = partial(_run, folder, batch, chosen.seconds)
            for order in ("in order", "shuffled"):
                for loader in LOADERS:
                    found = results[f"{shape}, {order}, {loader}"] = run(loader, order)
                    print(f"{shape:9} {order:9} {loader:9}", _shown(found), flush=True)
    extra = {"scale": chosen.scale, "seconds": chosen.seconds, "loads": results}
    save("training", [], extra, Path(__file__).parent / "results")


def _run(folder: Path, batch: int, seconds: float, loader: str, order: str) -> dict[str, Any]:
    """Measure a loader in a process of its own, twice: the first has the files in memory."""
    command = [sys.executable, __file__, "--seconds", str(seconds)]
    command += ["--one", loader, str(folder), str(batch), order]
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(ended.stderr)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _shown(found: dict[str, Any]) -> str:
    return (
        f"{found['samples_per_second']:12,.0f} samples/s  {found['samples_per_cpu_second']:12,.0f} "
        f"per CPU s  first {found['first_batch_ms']:8.1f} ms  {found['grown_mb']:7.0f} MB"
    )


if __name__ == "__main__":
    main()
