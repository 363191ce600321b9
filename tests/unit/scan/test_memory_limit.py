"""A scan with a memory limit returns the same rows and respects the limit.

What it takes is measured in a process of its own, as the growth of memory that is not of files.
Rows are wide and their column is stored in next to nothing, so that nobody can tell by the size of
a file how few of them fit.
"""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError, MemoryLimitError

ROWS = 900
LIMITS = (20_000, 1_000_000)


def table(start):
    random = np.random.default_rng(start)
    numbers = np.arange(start, start + ROWS)
    return pa.table(
        {
            "k": numbers,
            "v": pa.array(random.random(ROWS), mask=random.random(ROWS) < 0.1),
            "tied": random.integers(0, 5, ROWS),
            "wide": ["w" * (number % 300) for number in numbers],
            "tags": [[int(number % 3)] * (number % 4) for number in numbers],
            "text": [f"word{number % 10} fox" for number in numbers],
            "x": pa.FixedSizeListArray.from_arrays(random.random(4 * ROWS).astype(np.float32), 4),
        }
    )


@pytest.fixture(scope="module", params=["one fragment", "many", "indexed", "deleted"])
def dataset(request, tmp_path_factory):
    where = str(tmp_path_factory.mktemp("bounded"))
    most = 60 if request.param == "many" else 600
    found = lancelet.write_dataset(table(0), where, max_rows_per_file=most)
    if request.param == "indexed":
        found.create_scalar_index("k", "BTREE")
        found.create_scalar_index("tied", "BITMAP")
    if request.param == "deleted":
        found.delete("k % 7 = 0")
    found.create_scalar_index("text", "INVERTED")
    return found


SCANS = [
    {},
    {"columns": ["k", "tags"], "limit": 200, "offset": 300},
    {"columns": ["wide"], "filter": "v < 0.5"},
    {"columns": ["wide", "v"], "filter": "v < 0.01", "with_row_id": True},
    {"columns": {"twice": "k * 2"}, "filter": "tied = 3 AND k > 100", "limit": 50, "offset": 5},
    {"columns": [], "filter": "tied = 2", "with_row_address": True},
    {"columns": ["wide"], "filter": "k IN (3, 700, 899)"},
    {"columns": ["k"], "filter": "k > 10 AND k < 800 AND v IS NULL"},
    {"columns": ["k", "wide"], "order_by": ["tied"], "limit": 40, "offset": 7},
    {"columns": ["k"], "order_by": ["v"], "limit": 60, "filter": "tied < 4"},
    {"columns": ["wide"], "batch_size": 10},
    {"columns": ["k"], "full_text_query": "word3"},
    {"columns": ["k"], "nearest": {"column": "x", "q": np.zeros(4, np.float32), "k": 9}},
]


@pytest.mark.parametrize("scan", SCANS, ids=range(len(SCANS)))
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_changes_no_rows(dataset, scan, limit):
    expected = dataset.to_table(**scan)
    assert dataset.to_table(**scan, memory_limit=limit).equals(expected)
    batches = list(dataset.to_batches(**scan, memory_limit=limit))
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)
    if "filter" in scan and "limit" not in scan:
        found = dataset.count_rows(scan["filter"], memory_limit=limit)
        assert found == expected.num_rows


def test_a_limit_that_nothing_fits_reads_row_by_row(dataset):
    scan = {"columns": ["wide"], "limit": 9, "offset": 595, "filter": "v >= 0"}
    expected = dataset.to_table(**scan)
    assert dataset.to_table(**scan, memory_limit=1).equals(expected)


def test_batches_of_wide_rows_are_small(dataset):
    batches = list(dataset.to_batches(columns=["wide"], memory_limit=30_000))
    assert max(batch.nbytes for batch in batches) <= 30_000
    assert max(len(batch) for batch in dataset.to_batches(columns=["wide"])) >= 50


def test_a_strict_size_of_batches_holds(dataset):
    rows = dataset.to_batches(columns=["wide"], batch_size=90, strict_batch_size=True)
    bounded = dataset.scanner(
        columns=["wide"], batch_size=90, strict_batch_size=True, memory_limit=1000
    )
    assert [len(batch) for batch in bounded.to_batches()] == [len(batch) for batch in rows]


def test_a_sort_of_more_rows_than_fit_is_rejected(dataset):
    with pytest.raises(MemoryLimitError, match="the sort keys exceed the memory limit") as found:
        dataset.to_table(order_by=["v"], columns=["k"], memory_limit=20_000)
    assert found.value.facts["memory_limit"] == 20_000
    assert dataset.to_table(order_by=["v"], columns=["k"], memory_limit=5_000_000).num_rows


def test_a_limit_is_a_number_of_bytes(dataset):
    with pytest.raises(InvalidInputError, match="memory_limit must be at least 1"):
        dataset.scanner(memory_limit=0)
    with pytest.raises(TypeError):
        dataset.scanner(memory_limit="512 MB")


WIDE_ROWS = 8000
WIDE_BYTES = 40_000
LIMIT = 24 * 2**20
SLACK = 100 * 2**20
"""The additional memory of allocators, thread stacks and cached files."""

SCANNER = """
import json, sys, threading
import lancelet

def memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

path, scans = sys.argv[1], json.loads(sys.argv[2])
dataset = lancelet.dataset(path)
dataset.to_table(limit=5)
before = peak = memory()
done = threading.Event()

def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, memory())

watcher = threading.Thread(target=watch)
watcher.start()
rows = [sum(len(batch) for batch in dataset.to_batches(**scan)) for scan in scans]
done.set()
watcher.join()
print(json.dumps([rows, peak - before]))
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    where = str(tmp_path_factory.mktemp("wide"))
    text = "z" * WIDE_BYTES

    def batches():
        for start in range(0, WIDE_ROWS, 500):
            numbers = np.arange(start, start + 500)
            yield pa.record_batch(
                {"k": numbers, "v": numbers * 7919 % WIDE_ROWS, "c": [text] * 500}
            )

    schema = next(batches()).schema
    lancelet.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), where)
    return where


def test_memory_stays_within_the_limit(wide):
    half = WIDE_ROWS // 2
    scans = [
        {"columns": ["c"]},
        {"columns": ["c"], "filter": "v % 2 = 0"},
        {"columns": ["k"], "filter": "c != 'a'"},
        {"columns": ["c"], "order_by": ["v"], "limit": half},
    ]
    limited = [{**scan, "memory_limit": LIMIT} for scan in scans]
    done = subprocess.run(
        [sys.executable, "-c", SCANNER, wide, json.dumps(limited)],
        check=True,
        capture_output=True,
        text=True,
    )
    rows, grown = json.loads(done.stdout)
    assert rows == [WIDE_ROWS, half, WIDE_ROWS, half]
    assert grown < LIMIT + SLACK < half * WIDE_BYTES
