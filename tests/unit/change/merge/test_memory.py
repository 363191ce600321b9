"""Merges of streams larger than memory respect the memory limit.

Each program runs in a process of its own, measures the most memory that it ever took, and prints
by how much that exceeds what it had before.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
import numpy as np, pyarrow as pa
import lancelet

def most_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def stream(first, rows, width, seed):
    schema = pa.schema([("id", pa.int64()), ("bytes", pa.binary(width))])
    rng = np.random.default_rng(seed)
    step = max(1, (4 << 20) // (width + 8))
    ids = rng.permutation(rows) + first
    def batches():
        for start in range(0, rows, step):
            own = ids[start:start + step]
            data = pa.py_buffer(rng.bytes(width * len(own)))
            values = pa.FixedSizeBinaryArray.from_buffers(schema.field(1).type, len(own),
                                                         [None, data])
            yield pa.record_batch([pa.array(own), values], schema)
    return pa.RecordBatchReader.from_batches(schema, batches())

uri, what, rows, width, limit = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
table = lancelet.write_dataset(stream(0, 1000, width, 1), uri)
upsert = lambda t: t.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
upsert(table).execute(stream(0, 10, width, 2))
before = most_mib()
if what == "insert":
    table.insert(stream(5000, rows, width, 3))
    assert table.count_rows() == rows + 1000
else:
    if what == "wide":
        did = upsert(table).memory_limit(limit).execute(stream(500, rows, width, 3))
    else:
        table.insert(stream(5000, rows, width, 3))
        before = most_mib()
        did = upsert(table).memory_limit(limit).execute(stream(5000 + rows // 2, rows, width, 4))
        assert did["num_updated_rows"] == rows // 2
    assert did["num_inserted_rows"] == rows - did["num_updated_rows"]
print(most_mib() - before)
"""


def growth(tmp_path, *arguments):
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "t")]
    command += map(str, arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    return float(ended.stdout)


def test_an_inserted_stream_is_never_in_memory_whole(tmp_path):
    assert growth(tmp_path, "insert", 20_000, 20_000, 0) < 250


def test_a_merged_stream_waits_in_a_file(tmp_path):
    assert growth(tmp_path, "wide", 20_000, 20_000, 8 << 20) < 250


def test_millions_of_rows_are_merged_within_the_memory_limit(tmp_path):
    assert growth(tmp_path, "narrow", 5_000_000, 16, 256 << 20) < 1.3 * 256


@pytest.mark.slow
def test_ten_million_rows_are_merged_into_ten_million_within_500_mib(tmp_path):
    assert growth(tmp_path, "narrow", 10_000_000, 16, 256 << 20) < 500
