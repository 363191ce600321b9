"""Sorted scans with a limit and upserts through an index give what they give without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet as ours
from lancelet.dataset.scan.builder import ColumnOrdering

NUM_ROWS = 2000


def table(start: int = 0, rows: int = NUM_ROWS) -> pa.Table:
    keys = np.random.default_rng(start).integers(0, 500, rows)
    values = pa.array(keys, mask=keys % 50 == 7)
    names = pa.array([f"n{key:03}" for key in keys.tolist()])
    return pa.table({"k": values, "name": names, "f": keys / 2, "i": range(start, start + rows)})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> ours.LanceDataset:
    path = tmp_path_factory.mktemp("order") / "t"
    made = ours.write_dataset(table(), path, max_rows_per_file=700)
    for column in ("k", "name", "f"):
        made.create_scalar_index(column, "BTREE")
    made.delete("k < 3 OR k > 496 OR i % 7 = 0")
    made.insert(table(NUM_ROWS, 300))
    return made


@settings(max_examples=40, deadline=None)
@given(
    column=st.sampled_from(["k", "name", "f"]),
    ascending=st.booleans(),
    nulls_first=st.booleans(),
    limit=st.integers(0, 80),
    offset=st.integers(0, 20),
)
def test_the_first_rows_of_an_order(
    dataset: ours.LanceDataset,
    column: str,
    ascending: bool,
    nulls_first: bool,
    limit: int,
    offset: int,
) -> None:
    ordering = ColumnOrdering(column, ascending=ascending, nulls_first=nulls_first)
    wanted = {"order_by": [ordering], "limit": limit, "offset": offset, "columns": ["i", column]}
    found = dataset.scanner(**wanted)
    assert found.to_table() == dataset.scanner(**wanted, use_scalar_index=False).to_table()
    if limit > 0 and limit + offset < 60 and not nulls_first and column != "f":
        assert "ScalarIndexQuery: first rows" in found.explain_plan()


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP"])
def test_an_upsert_finds_its_rows_by_an_index(tmp_path: Path, kind: str) -> None:
    rows = pa.table({"k": np.arange(60_000)[::-1].copy(), "v": np.zeros(60_000, np.int64)})
    source = pa.table({"k": [5, 59_999, 70_000, None], "v": [1, 2, 3, 4]})
    found = []
    for uses in (True, False):
        made = ours.write_dataset(rows, tmp_path / str(uses), max_rows_per_file=20_000)
        made.create_scalar_index("k", kind)
        made.insert(pa.table({"k": [70_000, 80_000], "v": [7, 8]}))
        made.delete("k = 59999")
        merged = made.merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
        did = merged.use_index(uses).execute(source)
        assert (did["num_updated_rows"], did["num_inserted_rows"]) == (2, 2)
        found.append(made.to_table().sort_by("k"))
    assert found[0] == found[1]
