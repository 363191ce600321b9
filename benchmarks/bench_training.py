"""Compare loaders for training: samples per second, per CPU second, and time to the first batch.

python benchmarks/bench_training.py [--only features ...] [--loaders lancelet ...] [--seconds 1.5]
                                    [--scale 1] [--folder FOLDER]    keeps the files for later runs

    features    rows of 16 float32, batches of 1,024
    vectors     rows of 768 float32, batches of 256
    images      rows with bytes of the size of a JPEG of 20 KB and a label, batches of 64
    tokens      sequences of 50 to 500 int32 tokens, batches of 256
    decoded     rows with a JPEG of 224 x 224 pixels and a label, batches of 64, decoded by Pillow

All loaders read the same rows from files in the page cache and yield the same batches: tensors of
features, vectors and labels; byte strings or tensors of bytes of images (values and offsets from
workers of lancelet); values and offsets of tokens, or an array per sequence from formats that store
samples one by one; pixels of decoded images. Each loader has a process of its own. It reads in that
process (0 workers) and in 2 workers of a PyTorch loader or the loader of Grain:

    lancelet         `LanceDataset` of `lancelet.torch.data`, which also reads ahead by threads
    lancelet ragged  the same for images in its process, with values and offsets of a batch
    lancelet 2.0     the same for tokens in files of version 2.0, which are not compressed, like the
                     Arrow files that `datasets` converts its data to before the measurement
    pylance take     `take` per batch, from a map-style dataset with a sampler of batches
    pylance          its iterable dataset, in order only
    datasets         Hugging Face, map-style in Arrow format with a sampler of batches
    datasets stream  Hugging Face, streamed Parquet, in order only
    mds              `StreamingDataset` of MosaicML Streaming; its shuffle `py1e` is in blocks
    webdataset       tar files; shuffles the files and a buffer of 1,000 samples
    grain            ArrayRecord files, read by the loader of Grain
    ray              Ray Data on 2 processors, Parquet; shuffles a buffer of 1,000 samples

The formats of MDS, WebDataset and Grain hold at most 50,000 samples. Samples per second exclude the
first batch, except with Ray Data, which reads ahead several seconds before it. CPU time is compared
without workers, whose time includes their start.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from compare import commit, save
from torch.utils.data import DataLoader, Dataset

SHAPES: Final = {
    "features": (4_000_000, 1024),
    "vectors": (200_000, 256),
    "images": (60_000, 64),
    "tokens": (1_000_000, 256),
    "decoded": (4_000, 64),
}
"""Rows at scale 1, and rows of a batch."""
LOADERS: Final = {
    "lancelet": "lancelet",
    "lancelet 2.0": "lancelet",
    "lancelet ragged": "lancelet",
    "pylance take": "lance",
    "pylance": "lance",
    "datasets": "datasets",
    "datasets stream": "datasets",
    "mds": "streaming",
    "webdataset": "webdataset",
    "grain": "grain",
    "ray": "ray",
}
"""Loaders, each with the module it needs."""
IN_ORDER_ONLY: Final = ("pylance", "datasets stream")
DECODING: Final = ("lancelet", "pylance take", "datasets")
"""The loaders that decode images; the others would decode in the same way as `datasets`."""
_FILES: Final = 8
_SINGLE_SAMPLES_MAX: Final = 50_000
_ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(_ROOT / "src"))


def make(shape: str, rows: int) -> pa.Table:
    """Return the rows of a shape."""
    generator = np.random.default_rng(4)
    if shape in ("features", "vectors"):
        width = 16 if shape == "features" else 768
        values = generator.random(rows * width, np.float32)
        return pa.table({"x": pa.FixedSizeListArray.from_arrays(values, width)})
    if shape == "decoded":
        images = [_jpeg(generator) for _ in range(rows)]
        return pa.table({"image": pa.array(images), "label": generator.integers(0, 1000, rows)})
    if shape == "images":
        sizes = generator.integers(15_000, 25_000, rows)
        noise = generator.bytes(int(sizes.max()) + rows)
        images = [noise[n : n + size] for n, size in enumerate(sizes.tolist())]
        return pa.table({"image": pa.array(images), "label": generator.integers(0, 1000, rows)})
    ends = np.cumsum(generator.integers(50, 500, rows))
    tokens = pa.array(generator.integers(0, 50_000, int(ends[-1]), np.int32))
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.table({"tokens": pa.ListArray.from_arrays(offsets, tokens)})


def _jpeg(generator: np.random.Generator) -> bytes:
    """Return an image of smooth noise, which has about 20 KB."""
    from PIL import Image

    pixels = generator.integers(0, 256, (75, 75, 3), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC).save(data, "JPEG")
    return data.getvalue()


def pixels_of(table: Any) -> dict[str, Any]:
    """Convert rows of Arrow to a batch of decoded images."""
    from PIL import Image

    batch = tensors_of(table)
    images = [np.asarray(Image.open(io.BytesIO(each)).convert("RGB")) for each in batch["image"]]
    return {**batch, "image": torch.from_numpy(np.stack(images))}


def tensors_of(table: Any) -> dict[str, Any]:
    """Convert rows of Arrow to a batch without a Python object per number."""
    batch: dict[str, Any] = {}
    for name in table.column_names:
        values = table[name]
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if name == "image":
            batch[name] = values.to_pylist()
        elif name == "tokens":
            offsets = values.offsets.to_numpy()
            flat = values.values.to_numpy()[offsets[0] : offsets[-1]]
            # `torch.tensor` copies by threads, which is slow for small batches.
            batch[name] = torch.from_numpy(flat.copy()), torch.from_numpy(offsets - offsets[0])
        elif name == "x":
            rows = values.flatten().to_numpy().reshape(len(values), -1)
            batch[name] = torch.from_numpy(rows.copy())
        else:
            batch[name] = torch.from_numpy(values.to_numpy().copy())
    return batch


class Batches(Dataset):  # type: ignore[misc]
    """A map-style dataset of batches; an item is the batch of a list of rows."""

    def __init__(
        self,
        take: Callable[[Any], Any],
        count: int,
        rows: int,
        shuffled: bool,
        convert: Callable[[Any], Any] = tensors_of,
    ) -> None:
        self._take, self._rows, self._convert = take, rows, convert
        self._order = list(range(count))
        if shuffled:
            random.Random(7).shuffle(self._order)

    def __len__(self) -> int:
        return len(self._order) // self._rows

    def __getitem__(self, number: int) -> Any:
        if number >= len(self):
            raise IndexError(number)
        return self._convert(
            self._take(self._order[number * self._rows : (number + 1) * self._rows])
        )


def in_workers(dataset: Any, workers: int) -> Any:
    """Return a loader of whole batches."""
    return DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)


def _lancelet(
    folder: Path,
    rows: int,
    shuffled: bool,
    workers: int,
    *,
    table: str = "t.lance",
    is_ragged: bool = False,
) -> Iterable[Any]:
    from lancelet.torch.data import LanceDataset

    options: dict[str, Any] = {"shuffle": "rows" if shuffled else "none", "seed": 1}
    if folder.name == "decoded":
        options["decode"] = {"image": "image"}
    else:
        ragged = {"tokens": ["tokens"], "images": ["image"] if workers or is_ragged else []}
        options["ragged"] = ragged.get(folder.name, [])
    dataset = LanceDataset(str(folder / table), batch_size=rows, **options)
    return in_workers(dataset, workers) if workers else dataset


def _lancelet_2_0(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    return _lancelet(folder, rows, shuffled, workers, table="plain.lance")


def _lancelet_ragged(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    return _lancelet(folder, rows, shuffled, workers, is_ragged=True)


def _pylance_take(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    import lance

    table = lance.dataset(str(folder / "t.lance"))
    batches = Batches(table.take, table.count_rows(), rows, shuffled, _converter(folder))
    return _spawned(batches, workers) if workers else batches


def _converter(folder: Path) -> Callable[[Any], Any]:
    return pixels_of if folder.name == "decoded" else tensors_of


def _spawned(dataset: Any, workers: int) -> Any:
    """Return a loader for datasets of pylance, which are not safe after a fork."""
    return DataLoader(
        dataset,
        batch_size=None,
        num_workers=workers,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )


def _pylance(folder: Path, rows: int, _shuffled: bool, workers: int) -> Iterable[Any]:
    from lance.torch.data import LanceDataset

    dataset = LanceDataset(str(folder / "t.lance"), batch_size=rows, to_tensor_fn=_of_batch)
    return _spawned(dataset, workers) if workers else dataset


def _of_batch(batch: Any, *_: Any, **__: Any) -> Any:
    return tensors_of(pa.Table.from_batches([batch]))


def _datasets(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    table = _hugging_face(folder, streaming=False).with_format("arrow")
    batches = Batches(table.__getitem__, len(table), rows, shuffled, _converter(folder))
    return in_workers(batches, workers) if workers else batches


def _datasets_stream(folder: Path, rows: int, _shuffled: bool, workers: int) -> Iterable[Any]:
    table = _hugging_face(folder, streaming=True).with_format("arrow")
    if not workers:
        return _Again(lambda: map(tensors_of, table.iter(rows)))
    batches = table.batch(rows)
    return DataLoader(
        batches, batch_size=None, num_workers=workers, persistent_workers=True, collate_fn=_batched
    )


def _batched(row: pa.Table) -> Any:
    """Convert a row that contains the lists of a batch."""
    lists = {name: row[name].combine_chunks().flatten() for name in row.column_names}
    return tensors_of(pa.table(lists))


def _hugging_face(folder: Path, *, streaming: bool) -> Any:
    import datasets

    datasets.disable_progress_bars()
    return datasets.load_dataset(
        "parquet",
        data_files=str(folder / "*.parquet"),
        split="train",
        streaming=streaming,
        cache_dir=str(folder / "cache"),
    )


def _mds(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    streaming = _streaming()
    streaming.base.util.clean_stale_shared_memory()
    local = str(folder / "mds")
    dataset = streaming.StreamingDataset(local=local, batch_size=rows, shuffle=shuffled)
    return DataLoader(
        dataset,
        batch_size=rows,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate,
    )


def _streaming() -> Any:
    """Import MosaicML Streaming without its data sets of images, which require torchvision."""
    sys.modules.setdefault("streaming.vision", types.ModuleType("streaming.vision"))
    import streaming

    return streaming


def collate(samples: Sequence[Any]) -> dict[str, Any]:
    """Combine samples that were read one by one."""
    batch: dict[str, Any] = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        if name == "x":
            batch[name] = torch.from_numpy(np.stack(values))
        else:
            batch[name] = torch.tensor(values) if name == "label" else values
    return batch


def _webdataset(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    import webdataset

    tars = sorted(map(str, (folder / "tars").glob("*.tar")))
    dataset = webdataset.WebDataset(tars, shardshuffle=len(tars) if shuffled else False)
    dataset = dataset.shuffle(1000) if shuffled else dataset
    dataset = dataset.map(partial(_of_files, folder.name)).batched(rows, collation_fn=collate)
    return webdataset.WebLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )


def _of_files(shape: str, files: dict[str, Any]) -> dict[str, Any]:
    if shape == "images":
        return {"image": files["jpg"], "label": int(files["cls"])}
    return sample_of(shape, files["bin"])


def _grain(folder: Path, rows: int, shuffled: bool, workers: int) -> Iterable[Any]:
    import grain.python as grain

    source = grain.ArrayRecordDataSource(sorted(map(str, (folder / "records").glob("*"))))
    sampler = grain.IndexSampler(
        len(source), shard_options=grain.NoSharding(), shuffle=shuffled, num_epochs=None, seed=1
    )

    class Decode(grain.MapTransform):  # type: ignore[misc]
        def map(self, element: bytes) -> dict[str, Any]:
            return sample_of(folder.name, element)

    batch = grain.Batch(rows, drop_remainder=True)
    operations: list[Any] = [Decode(), batch]
    if folder.name in ("images", "tokens"):
        operations[1] = grain.Batch(rows, drop_remainder=True, batch_fn=collate)
    return grain.DataLoader(
        data_source=source, sampler=sampler, operations=operations, worker_count=workers
    )


def _ray(folder: Path, rows: int, shuffled: bool, _workers: int) -> Iterable[Any]:
    import ray.data

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=3 << 30,
        log_to_driver=False,
        logging_level="ERROR",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    table = ray.data.read_parquet(sorted(map(str, folder.glob("*.parquet"))))
    buffer = 1000 if shuffled else None
    return _Again(
        lambda: map(
            tensors_of,
            table.iter_batches(
                batch_size=rows, batch_format="pyarrow", local_shuffle_buffer_size=buffer
            ),
        )
    )


def sample_of(shape: str, data: bytes) -> dict[str, Any]:
    """Return the sample of the bytes that formats without columns store."""
    if shape == "images":
        return {"image": data[8:], "label": int.from_bytes(data[:8], "little")}
    if shape == "tokens":
        return {"tokens": np.frombuffer(data, np.int32)}
    return {"x": np.frombuffer(data, np.float32)}


class _Again:
    """The results of a function that returns an iterator, for each iteration."""

    def __init__(self, iterate: Callable[[], Iterator[Any]]) -> None:
        self._iterate = iterate

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()


def measure(
    loader: str, folder: Path, rows: int, seconds: float, workers: int, *, shuffled: bool
) -> dict[str, Any]:
    """Load for some seconds, with as many epochs as they allow."""
    load = globals()["_" + loader.replace(" ", "_").replace(".", "_")]
    began, cpu = time.perf_counter(), _cpu_seconds()
    loaded = load(folder, rows, shuffled, workers)
    batches = chain.from_iterable(repeat(loaded))
    if loader == "ray":
        began = time.perf_counter()  # its processes have started
    next(batches)
    first = time.perf_counter() - began
    if loader != "ray":
        began = time.perf_counter()
    cpu_first = _cpu_seconds()
    steps = 0
    for _ in batches:
        steps += 1
        if time.perf_counter() - began > seconds:
            break
    taken = time.perf_counter() - began
    cpu_taken = _cpu_seconds() - (cpu if workers else cpu_first)
    return {
        "samples_per_second": steps * rows / taken,
        # The CPU time of workers is known after they end, so it is reported without workers.
        "samples_per_cpu_second": None if workers else steps * rows / cpu_taken,
        "first_batch_ms": first * 1000,
    }


def _cpu_seconds() -> float:
    """Return the CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def prepare(shape: str, rows: int, folder: Path) -> None:
    """Write the rows once for all loaders."""
    import lance

    table = make(shape, rows)
    lance.write_dataset(table, folder / "t.lance", max_rows_per_file=-(-rows // _FILES))
    if shape == "tokens":
        lance.write_dataset(
            table,
            folder / "plain.lance",
            max_rows_per_file=-(-rows // _FILES),
            data_storage_version="2.0",
        )
    part = -(-rows // _FILES)
    for number in range(_FILES):
        group = 100 if shape in ("images", "decoded") else 10_000
        name = folder / f"{number}.parquet"
        pq.write_table(table.slice(number * part, part), name, row_group_size=group)
    if shape != "decoded":
        prepare_samples(shape, table.slice(0, _SINGLE_SAMPLES_MAX), folder)


def prepare_samples(shape: str, table: pa.Table, folder: Path) -> None:
    """Write rows one by one as MDS, tar and ArrayRecord files."""
    if shape == "images":
        labels = table["label"].to_pylist()
        images = table["image"].to_pylist()
        data = [n.to_bytes(8, "little") + each for n, each in zip(labels, images, strict=True)]
        samples = [{"image": i, "label": n} for i, n in zip(images, labels, strict=True)]
        files = [{"jpg": i, "cls": str(n).encode()} for i, n in zip(images, labels, strict=True)]
        kinds = {"image": "bytes", "label": "int"}
    else:
        name = table.column_names[0]
        arrays = [row.values.to_numpy() for row in table[name]]
        data = [each.tobytes() for each in arrays]
        samples = [{name: each} for each in arrays]
        files = [{"bin": each} for each in data]
        kinds = {name: "ndarray:int32" if shape == "tokens" else "ndarray:float32"}
    if find_spec("streaming") is not None:
        with _streaming().MDSWriter(out=str(folder / "mds"), columns=kinds) as mds:
            for sample in samples:
                mds.write(sample)
    part = -(-len(data) // _FILES)
    if find_spec("webdataset") is not None:
        import webdataset

        (folder / "tars").mkdir()
        pattern = f"{folder}/tars/%06d.tar"
        with webdataset.ShardWriter(pattern, maxcount=part, verbose=0) as tar:
            for number, each in enumerate(files):
                tar.write({"__key__": f"{number:09}", **each})
    if find_spec("array_record") is not None:
        from array_record.python.array_record_module import ArrayRecordWriter

        (folder / "records").mkdir()
        for number in range(_FILES):
            writer = ArrayRecordWriter(f"{folder}/records/{number}", "group_size:1")
            for each in data[number * part : (number + 1) * part]:
                writer.write(each)
            writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--only", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--loaders", nargs="*", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--prepare", action="store_true", help="only write the files")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        loader, folder, rows, order, workers = chosen.one
        found = measure(
            loader,
            Path(folder),
            int(rows),
            chosen.seconds,
            int(workers),
            shuffled=order == "shuffled",
        )
        print(json.dumps(found), flush=True)
        gc.collect()
        os._exit(0)  # threads of stopped loaders may abort the interpreter
    saved = Path(__file__).parent / "results"
    extra = {"scale": chosen.scale, "seconds": chosen.seconds, "commit": commit()}
    results = _earlier_results(saved / "training.json", chosen.scale)
    with tempfile.TemporaryDirectory() as scratch:
        for shape in chosen.only:
            folder = (chosen.folder or Path(scratch)) / f"{chosen.scale:g}" / shape
            rows, batch = SHAPES[shape]
            if not folder.exists():
                folder.mkdir(parents=True)
                prepare(shape, max(int(rows * chosen.scale), batch), folder)
            if chosen.prepare:
                continue
            for file in filter(Path.is_file, folder.rglob("*")):
                file.read_bytes()  # into the page cache
            for workers in (0, 2):
                for order in ("in order", "shuffled"):
                    for loader in _loaders(chosen.loaders, shape, order, workers):
                        found = _run(folder, batch, chosen.seconds, loader, order, workers)
                        found["load"] = os.getloadavg()[0]
                        results[f"{shape}, {order}, {workers} workers, {loader}"] = found
                        print(
                            f"{shape:9} {order:9} {workers} {loader:16}", _shown(found), flush=True
                        )
            save("training", [], {**extra, "loads": results}, saved)


def _loaders(chosen: Sequence[str], shape: str, order: str, workers: int) -> list[str]:
    """Return the loaders of a case that are installed."""
    return [
        loader
        for loader in chosen
        if find_spec(LOADERS[loader])
        and not (order == "shuffled" and loader in IN_ORDER_ONLY)
        and not (shape == "decoded" and loader not in DECODING)
        and not (loader == "lancelet 2.0" and shape != "tokens")
        and not (loader == "lancelet ragged" and (shape != "images" or workers))
        and not (loader == "ray" and not workers)  # all its work is in other processes
    ]


def _earlier_results(file: Path, scale: float) -> dict[str, Any]:
    """Return the results of earlier runs at the same scale, which this run updates."""
    if not file.exists():
        return {}
    found: dict[str, Any] = json.loads(file.read_text())
    is_same = found["scale"] == scale and "commit" in found
    return found["loads"] if is_same else {}


def _run(
    folder: Path, batch: int, seconds: float, loader: str, order: str, workers: int
) -> dict[str, Any]:
    """Measure a loader in a process of its own."""
    command = [sys.executable, __file__, "--seconds", str(seconds)]
    command += ["--one", loader, str(folder), str(batch), order, str(workers)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        return {"error": ended.stderr.strip().splitlines()[-1][:200]}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _shown(found: dict[str, Any]) -> str:
    if "error" in found:
        return found["error"]
    per_cpu = found["samples_per_cpu_second"]
    return (
        f"{found['samples_per_second']:12,.0f} samples/s  "
        f"{'' if per_cpu is None else f'{per_cpu:,.0f}':>12} per CPU s  "
        f"first {found['first_batch_ms']:8.1f} ms"
    )


if __name__ == "__main__":
    main()
