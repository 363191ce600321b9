"""Reading hostile bytes takes time and memory proportional to their size, or raises an error.

Numbers in messages, file tables and JSON are set to huge or negative values in files of every kind,
written without checksums by the reference if it writes them; the bytes around them remain valid.
All operations are run on a table with such a file. Each returns a value or an error of this
library, within a multiple of the size of the table in memory of Python, NumPy and Arrow. The memory
of the process is limited, and CPU time is bounded far above that of any operation.
"""

import contextlib
import ctypes
import functools
import gc
import random
import resource
import shutil
import signal
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import LanceletError
from lancelet.scan.indexing.segments import IndexUnusableWarning
from tests.kit.mutations import (
    Mutation,
    mutate_bytes,
    mutate_data_file,
    mutate_json,
    mutate_manifest,
    mutate_message,
)
from tests.kit.sharded_rows import SHARD, sharded_rows

ANSWER_BYTES = 24 << 20
"""What any answer may take, of a table of a few kilobytes."""
BYTES_PER_BYTE = 400
"""What it may take for each byte of the table; a byte may be a run of so many values."""
LIMIT_BYTES = 4 << 30
CPU_SECONDS = 20
ROWS = 700
LIVING: list[Any] = []
"""What lives on: pools, as a buffer goes back to its own some time, and writers that left."""
VERSIONS = ("legacy", "2.0", "2.1", "2.2", "2.3")


def rows(count: int = ROWS) -> pa.Table:
    """Return columns that are stored in many ways."""
    numbers = range(count)
    words = [None if n % 9 == 4 else f"word {n % 40} of {n % 7}" for n in numbers]
    vectors = np.random.default_rng(3).random(count * 8, np.float32)
    return pa.table(
        {
            "k": numbers,
            "same": [7] * count,
            "runs": pa.array([n // 100 for n in numbers], pa.int16()),
            "flag": [n % 3 == 0 for n in numbers],
            "s": words,
            "few": [f"a{n % 3}" for n in numbers],
            "long": ["x" * (n % 5 * 90) for n in numbers],
            "l": [[n % 5, n % 7] if n % 4 else [] for n in numbers],
            "r": [{"a": n, "b": f"{n % 6}"} for n in numbers],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 8),
        }
    )


def file_table(folder: Path, version: str) -> None:
    columns = rows()
    if version == "legacy":
        columns = columns.drop_columns(["l"])
    lance.write_dataset(columns, str(folder), data_storage_version=version)


SCALAR_KINDS = {
    "k": ("BTREE", "ZONEMAP", "BLOOMFILTER"),
    "runs": ("BITMAP",),
    "l": ("LABEL_LIST",),
    "s": ("NGRAM", "FM", "INVERTED"),
}


def indexed_table(folder: Path, kind: str) -> None:
    dataset = lance.write_dataset(rows(), str(folder), max_rows_per_file=400)
    if kind.startswith("IVF"):
        quantized = {"num_sub_vectors": 4} if "PQ" in kind else {}
        dataset.create_index("v", kind, num_partitions=2, **quantized)
        return
    column = next(column for column, kinds in SCALAR_KINDS.items() if kind in kinds)
    if kind == "FM":
        dataset.create_scalar_index(column, lance.indices.IndexConfig("fm", {}))
    else:
        dataset.create_scalar_index(column, kind)


def changed_table(folder: Path) -> None:
    """Write a table with deletions in both forms, stable row ids, a tag and a branch."""
    dataset = lance.write_dataset(
        rows(6000).select(["k", "s"]),
        str(folder),
        max_rows_per_file=5500,
        enable_stable_row_ids=True,
    )
    dataset.create_scalar_index("k", "BTREE")
    dataset.delete("k < 5200 OR k % 7 = 5")
    dataset.update({"s": "'new'"}, where="k = 5999")
    dataset.delete("k = 5998")
    dataset.tags.create("first", 2)
    dataset.create_branch("side")


def sharded_table(folder: Path) -> None:
    """Write a table with a shard of flushed rows, and of rows in its log."""
    uri = str(folder)
    lance.write_dataset(sharded_rows(range(20)), uri).initialize_mem_wal(unsharded=True)
    with lance.dataset(uri).mem_wal_writer(str(SHARD)) as shard:
        shard.put(sharded_rows(range(20, 30)))
    LIVING.append(lance.dataset(uri).mem_wal_writer(str(SHARD)))
    LIVING[-1].put(sharded_rows(range(30, 33)))


def shard_rows(dataset: lancelet.LanceDataset) -> object:
    """Replay the log of a shard, and read its rows and those that it flushed."""
    if "k" in dataset.schema.names:
        return None
    with dataset.mem_wal_writer(str(SHARD)) as shard:
        return shard.lsm_scanner().to_table()


QUESTIONS: dict[str, Callable[[lancelet.LanceDataset], object]] = {
    "rows": lambda d: d.to_table(limit=ROWS, with_row_id=True),
    "count": lambda d: d.count_rows(),
    "some": lambda d: d.take([0, 3, d.count_rows() - 1]),
    "key": lambda d: d.to_table(filter="k = 77") if "k" in d.schema.names else None,
    "range": lambda d: d.count_rows("k > 40 AND k < 90") if "k" in d.schema.names else 0,
    "runs": lambda d: d.count_rows("runs IN (2, 3)") if "runs" in d.schema.names else 0,
    "labels": lambda d: d.count_rows("array_has(l, 3)") if "l" in d.schema.names else 0,
    "words": lambda d: d.to_table(filter="contains(s, 'word 7')"),
    "text": lambda d: d.to_table(full_text_query="word", limit=5),
    "nearest": lambda d: (
        d.to_table(nearest={"column": "v", "q": np.zeros(8, np.float32), "k": 3})
        if "v" in d.schema.names
        else None
    ),
    "tag": lambda d: d.checkout_version("first").count_rows(),
    "branch": lambda d: d.checkout_version(("side", None)).count_rows(),
    "shard": shard_rows,
    "log": lambda d: [each and str(each.operation) for each in d.get_transactions(9)],
    "versions": lambda d: d.versions(),
    "check": lambda d: d.check(level="indices"),
}


def ask(uri: Path) -> dict[str, object]:
    """Return the answer to each question, or the error by which there is none."""
    found: dict[str, object] = {}
    for name, question in QUESTIONS.items():
        try:
            found[name] = question(lancelet.dataset(str(uri)))
        except LanceletError as error:
            found[name] = error
    return found


class TooLongError(BaseException):
    """An answer took more processor time than any could need."""


@contextlib.contextmanager
def bounded() -> Iterator[Callable[[], int]]:
    """Bound memory and processor time; yield what says how much memory was held at once."""
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    LIVING.append(pool)
    before_pool = pa.default_memory_pool()
    with Path("/proc/self/statm").open() as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)

    def late(*_: object) -> None:
        raise TooLongError

    handler = signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    pa.set_memory_pool(pool)
    tracemalloc.start(1)
    try:
        yield lambda: tracemalloc.get_traced_memory()[1] + pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before_pool)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


TARGETS: dict[str, tuple[Callable[[Path], None], str, tuple[Mutation, ...]]] = {
    **{
        f"data file {version}": (
            functools.partial(file_table, version=version),
            "data/*.lance",
            (mutate_bytes,) if version == "legacy" else (mutate_data_file, mutate_bytes),
        )
        for version in VERSIONS
    },
    **{
        f"index {kind}": (
            functools.partial(indexed_table, kind=kind),
            "_indices/*/*",
            (mutate_data_file, mutate_bytes),
        )
        for kind in (
            *(kind for kinds in SCALAR_KINDS.values() for kind in kinds),
            "IVF_FLAT",
            "IVF_PQ",
            "IVF_SQ",
            "IVF_RQ",
            "IVF_HNSW_SQ",
        )
    },
    "manifest": (changed_table, "_versions/*.manifest", (mutate_manifest, mutate_bytes)),
    "transaction": (changed_table, "_transactions/*.txn", (mutate_message,)),
    "deletions": (changed_table, "_deletions/*", (mutate_bytes,)),
    "tag": (changed_table, "_refs/tags/*", (mutate_json,)),
    "branch": (changed_table, "_refs/branches/*", (mutate_json,)),
    "shard": (sharded_table, "_mem_wal/*/manifest/*.binpb", (mutate_message,)),
    "log": (sharded_table, "_mem_wal/*/wal/*.arrow", (mutate_bytes,)),
    "flushed table": (sharded_table, "_mem_wal/*/*_gen_1/**/*.*", (mutate_bytes,)),
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Callable[[str], Path]:
    # Threads would have arenas of their own, which are address space that nobody uses.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(-8, 1)

    @functools.cache
    def made(target: str) -> Path:
        folder = tmp_path_factory.mktemp("hostile") / "t"
        TARGETS[target][0](folder)
        answers = ask(folder)
        kept = {"tag", "branch", "text"}
        errors = {name for name, each in answers.items() if isinstance(each, LanceletError)}
        assert errors <= kept, {name: answers[name] for name in errors}
        return folder

    return made


def trial(original: Path, place: Path, target: str, seed: int) -> None:
    """Change a file, ask everything, and judge the answers by what they took."""
    _, pattern, mutations = TARGETS[target]
    draw = random.Random(f"{target} {seed}")
    files = [each for each in sorted(original.glob(pattern)) if each.is_file()]
    chosen = draw.choice(files)
    shutil.copytree(original, place)
    data = chosen.read_bytes()
    changed = draw.choice(mutations)(data, draw)
    (place / chosen.relative_to(original)).write_bytes(changed)
    table_bytes = sum(each.stat().st_size for each in place.rglob("*") if each.is_file())
    with bounded() as peak, warnings.catch_warnings():
        warnings.simplefilter("ignore", IndexUnusableWarning)
        ask(place)
        held = peak()
    allowed = ANSWER_BYTES + BYTES_PER_BYTE * table_bytes
    assert held <= allowed, (target, seed, held, allowed)
    shutil.rmtree(place)
    gc.collect()


@pytest.mark.parametrize("target", TARGETS)
def test_the_cost_of_a_read_is_bounded_by_its_size(tables, tmp_path, target):
    trial(tables(target), tmp_path / "t", target, 0)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_cost_of_a_read_is_bounded_by_its_size_at_length(tables, tmp_path, target):
    for seed in range(1, 400):
        trial(tables(target), tmp_path / "t", target, seed)


def test_every_kind_of_file_is_fuzzed(request):
    """`make fuzz` goes on from here for as long as is asked for, led by what is executed."""
    program = request.config.rootpath / "fuzz" / "run.py"
    listed = subprocess.run(
        [sys.executable, program, "--list"], capture_output=True, check=True, text=True
    )
    assert set(TARGETS) <= set(listed.stdout.splitlines())
