"""The cache of remote objects on a local disk: reuse, sharing, verification and eviction."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet import training
from lancelet.buffers import ByteRanges
from lancelet.errors import InvalidInputError
from lancelet.io import block_cache
from lancelet.io.block_cache import BLOCK_BYTES, BlockCache
from lancelet.io.memory import MemoryStore
from lancelet.io.metered import IoMeter, metered
from lancelet.io.open import open_folder


def content(size, seed=1):
    return random.Random(seed).randbytes(size)


def cached(store, cache):
    """Return the store through the cache, and the meter of the requests that the cache sends."""
    meter = IoMeter()
    return block_cache._CachedStore(metered(store, meter), cache), meter


def read(store, path, *ranges):
    with store.open_reader(path) as reader:
        slices = reader.read_ranges(ByteRanges.of(*ranges))
        return [slices.slice_bytes(index).tobytes() for index in range(len(slices))]


@pytest.fixture
def data():
    return content(5 * BLOCK_BYTES // 2)


@pytest.fixture
def inner(data, request):
    store = MemoryStore(f"block-cache-{request.node.name}")
    store.put("t.lance/data/a.lance", data)
    store.put("t.lance/_versions/1.manifest", data)
    return store


RANGES = [(3, 20), (BLOCK_BYTES - 5, 10), (2 * BLOCK_BYTES - 1, BLOCK_BYTES // 2 + 1), (0, 0)]


def test_ranges_are_read_once_and_by_later_processes(tmp_path, inner, data):
    wanted = [data[at : at + size] for at, size in RANGES]
    for expected_reads in (True, False, False):
        # A new cache object has the knowledge of a new process.
        store, meter = cached(inner, BlockCache(str(tmp_path), 100 << 20))
        assert read(store, "t.lance/data/a.lance", *RANGES) == wanted
        assert (meter.counts.read_bytes > 0) == expected_reads
    assert read(store, "t.lance/data/a.lance", *RANGES) == wanted
    with store.open_reader("t.lance/data/a.lance") as reader:
        assert reader.read_tail(100).tobytes() == data[-100:]
        assert reader.size == len(data)


def test_manifests_are_not_cached(tmp_path, inner, data):
    store, _ = cached(inner, BlockCache(str(tmp_path), 100 << 20))
    assert read(store, "t.lance/_versions/1.manifest", (0, 9)) == [data[:9]]
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_damaged_blocks_are_fetched_again(tmp_path, inner, data, damage):
    store, _ = cached(inner, BlockCache(str(tmp_path), 100 << 20))
    read(store, "t.lance/data/a.lance", (0, len(data)))
    for file in filter(os.path.isfile, tmp_path.rglob("*")):
        stored = bytearray(file.read_bytes())
        stored[100] ^= 1
        kept = {"flip": len(stored), "cut": 1000, "empty": 0}[damage]
        file.write_bytes(stored[:kept])
    again, meter = cached(inner, BlockCache(str(tmp_path), 100 << 20))
    assert read(again, "t.lance/data/a.lance", (0, len(data))) == [data]
    assert meter.counts.read_bytes >= len(data)
    last, meter = cached(inner, BlockCache(str(tmp_path), 100 << 20))
    assert read(last, "t.lance/data/a.lance", (50, 100)) == [data[50:150]]
    assert meter.counts.read_bytes == 0


def test_the_folder_stays_within_its_limit_and_recent_blocks_stay(tmp_path, request):
    limit = 8 * BLOCK_BYTES
    inner = MemoryStore(f"block-cache-{request.node.name}")
    for number in range(30):
        inner.put(f"data/{number}.lance", content(BLOCK_BYTES, number))
    cache = BlockCache(str(tmp_path), limit)
    store, _ = cached(inner, cache)
    for number in range(30):
        assert read(store, f"data/{number}.lance", (0, 50)) == [content(BLOCK_BYTES, number)[:50]]
        total = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
        assert total <= limit + BLOCK_BYTES
    recent, meter = cached(inner, BlockCache(str(tmp_path), limit))
    read(recent, "data/29.lance", (0, 50))
    assert meter.counts.read_bytes == 0


def test_reads_do_not_depend_on_a_writable_folder(tmp_path, inner, data):
    (tmp_path / "file").write_bytes(b"not a folder")
    store, _ = cached(inner, BlockCache(str(tmp_path / "file"), 100 << 20))
    assert read(store, "t.lance/data/a.lance", (5, 10)) == [data[5:15]]


def test_options_of_the_cache_are_validated(tmp_path):
    for options, match in (
        ({"local_cache": str(tmp_path), "local_cache_bytes": "1 GB"}, "number of bytes"),
        ({"local_cache": str(tmp_path), "local_cache_bytes": "5"}, "number of bytes"),
        ({"local_cache_bytes": "5000000"}, "requires local_cache"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            lancelet.dataset("memory://block-cache-options/t", storage_options=options)


def test_training_reads_a_table_through_the_cache(tmp_path):
    rows = pa.table({"id": range(5000), "v": np.random.default_rng(1).random(5000)})
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows, uri, max_rows_per_file=1000)
    options = {"local_cache": str(tmp_path / "cache"), "local_cache_bytes": str(1 << 30)}
    table = lancelet.dataset(uri, storage_options=options)
    plan = training.plan(table, shuffle="rows", seed=1)
    wanted = [batch["id"].to_pylist() for batch in plan.loader(100)]
    assert sorted(itertools.chain.from_iterable(wanted)) == list(range(5000))
    blocks = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert len(blocks) >= 5
    # Another process has the content of the data files after they are lost.
    for file in (tmp_path / "t.lance" / "data").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    program = (
        "import sys, json, lancelet\n"
        "from lancelet import training\n"
        "table = lancelet.dataset(sys.argv[1], storage_options={'local_cache': sys.argv[2]})\n"
        "plan = training.plan(table, shuffle='rows', seed=1)\n"
        "print(json.dumps([batch['id'].to_pylist() for batch in plan.loader(100)]))\n"
    )
    command = [sys.executable, "-c", program, uri, str(tmp_path / "cache")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(wanted)
    copied = pickle.loads(pickle.dumps(table))
    assert copied.count_rows() == 5000


TRAIN_ON_S3 = """
import json, sys
import lancelet
from lancelet import training
options = {**json.loads(sys.argv[2]), "local_cache": sys.argv[3]}
table = lancelet.dataset(sys.argv[1], storage_options=options)
plan = training.plan(table, columns=["id", "picture"], shuffle="rows", seed=1)
print(json.dumps([i for batch in plan.loader(50) for i in batch["id"].to_pylist()]))
"""


def test_training_on_s3_continues_from_the_cache_in_later_processes(tmp_path, s3_server):
    s3_server.make_bucket("cached-training")
    chance = random.Random(1)
    rows = pa.table({"id": range(600), "picture": [chance.randbytes(9000) for _ in range(600)]})
    uri, options = "s3://cached-training/t.lance", s3_server.storage_options
    table = lancelet.write_dataset(rows, uri, storage_options=options, max_rows_per_file=200)
    store = open_folder("s3://cached-training/t.lance/data", options)
    paths = [file.path for part in table.get_fragments() for file in part.data_files()]
    stored = {path: read(store, path, (0, store.open_reader(path).size))[0] for path in paths}

    def train():
        cache = str(tmp_path / "cache")
        command = [sys.executable, "-c", TRAIN_ON_S3, uri, json.dumps(options), cache]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    first = train()
    assert sorted(json.loads(first.stdout)) == list(range(600))
    for path in paths:
        store.delete(path)
    assert train().stdout == first.stdout
    # A damaged block is not used: it is requested again, here from the missing object.
    blocks = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    damaged = max(blocks, key=lambda file: file.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    failed = train()
    assert failed.returncode
    assert "NotFoundError" in failed.stderr
    for path, data in stored.items():
        store.put(path, data)
    assert train().stdout == first.stdout
    for path in paths:
        store.delete(path)
    assert train().stdout == first.stdout
