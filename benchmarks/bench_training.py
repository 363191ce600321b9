"""Loading for training: samples a second, the first batch, and memory, beside other loaders.

python benchmarks/bench_training.py [--scale 10] [--seconds 10] [--only features images tokens]
                                    [--folder FOLDER]    keeps the files for the next run

    features    rows of sixteen numbers, batches of 1,024
    images      rows with a JPEG of some 20 KB and a label, batches of 64, not decoded
    tokens      sequences of 50 to 500 tokens, batches of 256

The same rows lie in a Lance table, in Parquet with row groups of 10,000 (images: 100), in MDS and
in tars; the last two, which store row by row, hold the first 200,000 at most. Each loader runs in a
process of its own, with the files in memory; it yields tensors of PyTorch or, for images and
tokens, what it makes of bytes and lists by itself. Loaders:

    lancelet            the plan of an epoch, `LanceDataset` of `lancelet.torch.data`
    pylance             its `LanceDataset`, and for a shuffle `SafeLanceDataset` in a `DataLoader`
    datasets            Hugging Face's over Parquet: streamed, and for a shuffle as a map
    mds                 `StreamingDataset` of MosaicML Streaming, in a `DataLoader` with two workers
    webdataset          `WebDataset` of tars, in a `WebLoader` with two workers

The shuffle of the first three is of all rows. That of MDS is its default `py1e`, within blocks of
262,144 rows; that of WebDataset is of the shards and of a buffer of 1,000 rows. The two get the
features of a row as one array, which is their quickest form. Loaders run for some seconds, an epoch
after another; workers stay. Samples a second are those after the first batch. Processor time is
that of a process and its workers from the start; memory is what the process alone grew by, with the
pages of files that it maps. Needs the groups `test` and `torch`; loaders of `mosaicml-streaming`
and `webdataset` take part where those are installed (the first asks for versions of other packages
that the groups do not have).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from compare import save

SHAPES: Final = {
    "features": (10_000_000, 1024),
    "images": (20_000, 64),
    "tokens": (500_000, 256),
}
"""Rows at scale 1, and rows of a batch. Ten times the images and tokens are 4 GB and 5 GB."""
LOADERS: Final = {
    "lancelet": "lancelet",
    "pylance": "lance",
    "datasets": "datasets",
    "mds": "streaming",
    "webdataset": "webdataset",
}
"""Loaders, each with the module it needs."""
_GROUPS: Final = {"features": 10_000, "images": 100, "tokens": 10_000}
_ROW_BY_ROW: Final = 200_000
_WORKERS: Final = 2


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
        return _Again(partial(found.iter, batch_size=rows))
    return DataLoader(found, batch_size=rows, shuffle=True, collate_fn=_same)


def _mds(folder: Path, rows: int, shuffled: bool) -> Iterable[Any]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    clean_stale_shared_memory()
    found = StreamingDataset(local=str(folder / "mds"), batch_size=rows, shuffle=shuffled)
    made = {} if _is_plain(folder) else {"collate_fn": _same}
    return DataLoader(found, batch_size=rows, num_workers=_WORKERS, persistent_workers=True, **made)


def _webdataset(folder: Path, rows: int, shuffled: bool) -> Iterable[Any]:
    import webdataset

    tars = sorted(map(str, (folder / "tars").glob("*.tar")))
    found = webdataset.WebDataset(tars, shardshuffle=len(tars) if shuffled else False)
    found = found.shuffle(1000) if shuffled else found
    if folder.name == "images":
        found = found.decode().to_tuple("jpg", "cls").batched(rows)
    elif folder.name == "tokens":
        found = found.to_tuple("bin").map_tuple(_int32s).batched(rows, collation_fn=None)
    else:
        found = found.to_tuple("x.bin", "y.txt").map_tuple(_float32s, int).batched(rows)
    return webdataset.WebLoader(
        found, batch_size=None, num_workers=_WORKERS, persistent_workers=True
    )


def _int32s(data: bytes) -> Any:
    return np.frombuffer(data, np.int32)


def _float32s(data: bytes) -> Any:
    return np.frombuffer(data, np.float32)


class _Again:
    """What a function yields, as often as it is iterated over."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        return self._make()


def _is_plain(folder: Path) -> bool:
    return folder.name == "features"


def _same(batch: Any, *_: Any, **__: Any) -> Any:
    return batch


def measure(
    loader: str, folder: Path, rows: int, seconds: float, *, shuffled: bool
) -> dict[str, Any]:
    """Load for some seconds, as many epochs as they hold."""
    made = batches_of(loader, folder, rows, shuffled=shuffled)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, cpu = time.perf_counter(), _cpu_seconds()
    batches = chain.from_iterable(repeat(made))
    next(batches)
    first = time.perf_counter() - began
    steps = 0
    for _ in batches:
        steps += 1
        if time.perf_counter() - began - first > seconds:
            break
    taken = time.perf_counter() - began - first
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    del batches, made
    gc.collect()  # ends the workers, whose time counts from then on
    return {
        "samples_per_second": steps * rows / taken,
        "samples_per_cpu_second": (steps + 1) * rows / (_cpu_seconds() - cpu),
        "first_batch_ms": first * 1000,
        "grown_mb": grown / 1024,
    }


def _cpu_seconds() -> float:
    """Return the processor time of this process and of its workers that have ended."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(each) for each in whose]
    return sum(each.ru_utime + each.ru_stime for each in used)


def prepare(shape: str, rows: int, folder: Path) -> None:
    """Write the rows once for all loaders."""
    import lance

    made = make(shape, rows)
    lance.write_dataset(made, folder / "t.lance", max_rows_per_file=max(rows // 8, 1))
    pq.write_table(made, folder / "t.parquet", row_group_size=_GROUPS[shape])
    prepare_row_by_row(shape, made.slice(0, _ROW_BY_ROW), folder)


def prepare_row_by_row(shape: str, made: pa.Table, folder: Path) -> None:
    """Write rows as MDS and as tars."""
    columns: list[Sequence[Any]]
    if shape == "features":
        numbers = [made[name].to_numpy() for name in made.schema.names[:-1]]
        columns = [np.stack(numbers, axis=1), made["label"].to_pylist()]
        kinds, names = {"x": "ndarray:float32:15", "y": "int"}, ("x.bin", "y.txt")
    elif shape == "images":
        columns = [made["image"].to_pylist(), made["label"].to_pylist()]
        kinds, names = {"image": "bytes", "label": "int"}, ("jpg", "cls")
    else:
        columns = [[row.values.to_numpy() for row in made["tokens"]]]
        kinds, names = {"tokens": "ndarray:int32"}, ("bin",)
    if find_spec("streaming") is not None:
        from streaming import MDSWriter

        with MDSWriter(out=str(folder / "mds"), columns=kinds) as mds:
            for row in zip(*columns, strict=True):
                mds.write(dict(zip(kinds, row, strict=True)))
    if find_spec("webdataset") is not None:
        import webdataset

        tars = folder / "tars"
        tars.mkdir()
        shard = made.num_rows // 8 + 1
        with webdataset.ShardWriter(f"{tars}/%06d.tar", maxcount=shard, verbose=0) as tar:
            for number, row in enumerate(zip(*columns, strict=True)):
                files = dict(zip(names, map(_bytes, row), strict=True))
                tar.write({"__key__": f"{number:09}", **files})


def _bytes(value: Any) -> Any:
    """Return what a tar holds of a value; a label of an image is a text."""
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return str(value).encode() if isinstance(value, int) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--prepare", action="store_true", help="only write the files")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        loader, folder, rows, order = chosen.one
        shuffled = order == "shuffled"
        found = measure(loader, Path(folder), int(rows), chosen.seconds, shuffled=shuffled)
        print(json.dumps(found), flush=True)
        os._exit(0)  # threads of loaders that were stopped half-way may abort the interpreter
    saved = Path(__file__).parent / "results"
    extra = {"scale": chosen.scale, "seconds": chosen.seconds}
    results = _results_of(saved / "training.json", extra)
    with tempfile.TemporaryDirectory() as scratch:
        for shape in chosen.only:
            folder = (chosen.folder or Path(scratch)) / f"{chosen.scale:g}" / shape
            rows, batch = SHAPES[shape]
            if not folder.exists():
                folder.mkdir(parents=True)
                prepare(shape, max(int(rows * chosen.scale), batch), folder)
            if chosen.prepare:
                continue
            run = partial(_run, folder, batch, chosen.seconds)
            for order in ("in order", "shuffled"):
                for loader in [name for name in LOADERS if find_spec(LOADERS[name])]:
                    found = results[f"{shape}, {order}, {loader}"] = run(loader, order)
                    print(f"{shape:9} {order:9} {loader:9}", _shown(found), flush=True)
    if not chosen.prepare:
        save("training", [], {**extra, "loads": results}, saved)


def _results_of(file: Path, extra: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured before in the same way, of which some is measured again."""
    if not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text())
    is_same = all(found[name] == value for name, value in extra.items())
    return found["loads"] if is_same else {}


def _run(folder: Path, batch: int, seconds: float, loader: str, order: str) -> dict[str, Any]:
    """Measure a loader in a process of its own, with its files in memory."""
    for file in filter(Path.is_file, folder.rglob("*")):
        file.read_bytes()
    command = [sys.executable, __file__, "--seconds", str(seconds)]
    command += ["--one", loader, str(folder), str(batch), order]
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
