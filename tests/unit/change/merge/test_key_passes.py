"""Keys that exceed the memory limit are matched in several passes."""

import tempfile
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.change.merge.key_index import Keys
from lancelet.change.merge.key_passes import KeyPasses

TEXTS = st.lists(st.none() | st.text("abc", max_size=2), max_size=60)


def keys_of(values, kind):
    array = pa.array(values, pa.string())
    if kind == "number":
        array = pa.array([None if v is None else sum(map(ord, v)) for v in values], pa.int64())
    return Keys.of([array])


def found_by(passes, wanted):
    """Return the source row of each wanted key, from whichever pass has it."""
    found = np.full(len(wanted), -1)
    for each in passes.passes():
        which, rows = each.index.find(wanted)
        assert (found[which] == -1).all()
        found[which] = each.source_rows(rows)
    return found.tolist()


@given(parts=st.lists(TEXTS, max_size=4), wanted=TEXTS, kind=st.sampled_from(["text", "number"]))
def test_several_passes_match_one_index(parts, wanted, kind):
    results = []
    for limit in (1, 2000, 10**9):
        with closing(KeyPasses(limit)) as passes:
            for part in parts:
                passes.add(keys_of(part, kind))
            results.append(found_by(passes, keys_of(wanted, kind)))
            assert found_by(passes, keys_of(wanted, kind)) == results[-1]
    assert results[0] == results[1] == results[2]


def test_less_memory_means_more_passes():
    keys = Keys.of([pa.array(range(10_000))])
    numbers = []
    for limit in (10, 100_000, 10**9):
        with closing(KeyPasses(limit)) as passes:
            passes.add(keys)
            numbers.append(passes.num_passes)
            assert sum(len(each.index.keys) for each in passes.passes()) == 10_000
    assert numbers[0] == 64
    assert 1 < numbers[1] < 20
    assert numbers[2] == 1


@pytest.mark.parametrize("limit", [1, 10**9])
def test_nothing_is_left_behind(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(KeyPasses(limit)) as passes:
        passes.add(Keys.of([pa.array(range(100))]))
        assert len(list(tmp_path.iterdir())) == (limit == 1)
    assert list(tmp_path.iterdir()) == []
