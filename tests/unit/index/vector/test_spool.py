"""Rows grouped by partition are equal for memory and file buffers."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.index.vector.spool import Spool


def added(spool, batches):
    for numbers, labels, codes in batches:
        spool.add(numbers, labels, codes)
    return [(numbers.tolist(), codes["code"].tolist()) for numbers, codes in spool.parts()]


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.integers(1, 5),
    st.integers(1, 900),
    st.integers(0, 1000),
)
def test_each_partition_has_its_rows_in_order(sizes, partitions, run_bytes, seed):
    random = np.random.default_rng(seed)
    numbers = random.permutation(sum(sizes)).astype(np.uint64)
    labels = random.integers(0, partitions, len(numbers))
    codes = random.integers(0, 256, (len(numbers), 3)).astype(np.uint8)
    edges = np.cumsum([0, *sizes])
    batches = [
        (numbers[first:stop], labels[first:stop], {"code": codes[first:stop]})
        for first, stop in pairwise(edges)
    ]
    with Spool(partitions, run_bytes) as spool:
        found = added(spool, batches)
    assert len(found) == partitions
    for partition, (own, stored) in enumerate(found):
        places = np.flatnonzero(labels == partition)
        places = places[np.argsort(numbers[places])]
        assert own == numbers[places].tolist()
        assert stored == codes[places].tolist()


def test_temporary_files_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Spool(2, run_bytes=1) as spool:
        spool.add(np.arange(9, dtype=np.uint64), np.zeros(9, np.int64), {"code": np.ones((9, 2))})
        assert list(tmp_path.rglob("0.*"))
        assert sum(len(numbers) for numbers, _ in spool.parts()) == 9
    assert list(tmp_path.iterdir()) == []


def test_no_rows_make_no_partitions():
    with Spool(3) as spool:
        assert list(spool.parts()) == []
