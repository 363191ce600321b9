"""Source rows can be read repeatedly, from memory or a file, and leave no files."""

import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.change.merge.source import SourceRows
from lancelet.change.rows import RowStream

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def stream(sizes):
    def batches():
        start = 0
        for size in sizes:
            ids = list(range(start, start + size))
            yield pa.record_batch([pa.array(ids, pa.int64()), [f"t{i}" for i in ids]], SCHEMA)
            start += size

    return RowStream(SCHEMA, batches())


def ids_of(rows):
    return [i for placed in rows.batches() for i in placed.batch.column("id").to_pylist()]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@given(
    sizes=st.lists(st.integers(0, 40), max_size=6),
    limit=st.sampled_from([None, 0, 300, 10**6]),
    seed=st.integers(0, 99),
)
def test_rows_are_read_back_from_memory_and_disk(sizes, limit, seed):
    with SourceRows.read(stream(sizes), memory_limit=limit) as rows:
        total = sum(sizes)
        assert rows.num_rows == total
        assert ids_of(rows) == ids_of(rows) == list(range(total))
        wanted = np.random.default_rng(seed).integers(0, max(total, 1), 20 if total else 0)
        assert rows.take(wanted).column("id").to_pylist() == wanted.tolist()


def test_only_rows_beyond_the_limit_go_to_a_file(folder):
    with SourceRows.read(stream([100]), memory_limit=10**6) as rows:
        assert not rows.is_spilled
        assert list(folder.iterdir()) == []
    with SourceRows.read(stream([100]), memory_limit=100) as rows:
        assert rows.is_spilled
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []


def test_an_error_of_the_stream_leaves_no_file(folder):
    def broken():
        yield from stream([100]).batches
        raise KeyError

    with pytest.raises(KeyError):
        SourceRows.read(RowStream(SCHEMA, broken()), memory_limit=10)
    assert list(folder.iterdir()) == []


def test_batches_are_cut_and_know_their_place():
    with SourceRows.read(stream([3, 100_000])) as rows:
        placed = list(rows.batches())
    assert [each.first for each in placed] == [0, 3, 65539]
    assert placed[-1].stop == 100_003
