"""Ids are found in columns of ids, whatever their order."""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.views.rows import SortedIds


@pytest.mark.parametrize("runs", [1, 3, 500])
@pytest.mark.parametrize("count", [0, 1, 300])
def test_ids_are_found_where_they_are(runs, count):
    chance = np.random.default_rng(runs)
    column = chance.permutation(1000).astype(np.uint64)
    column = np.concatenate([np.sort(each) for each in np.array_split(column, runs)])
    ids = chance.permutation(2000)[:count].astype(np.uint64)
    indices, rows = SortedIds(ids).find([pa.array(column)])
    assert np.array_equal(column[indices], ids[rows])
    assert sorted(rows.tolist()) == np.flatnonzero(np.isin(ids, column)).tolist()


def test_no_ids_are_in_an_empty_column():
    indices, rows = SortedIds(np.array([3], np.uint64)).find([pa.array([], pa.uint64())])
    assert len(indices) == len(rows) == 0
