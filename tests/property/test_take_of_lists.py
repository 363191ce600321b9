"""Single rows of lists, read the short way and the long way.

Goal: `MiniBlockPages` finds rows of lists with one kernel where levels are packed, and by walking
decoded levels where they are not; a few of them are found by plans of their columns. Method: read
the same rows of the same file three times, without plans, with the kernel declined as well, and by
plans, and by slicing what a full read returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancelet.encodings.miniblock import read
from lancelet.file import LanceFileReader, LanceFileWriter

ITEM = pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])


def _items(rng: np.random.Generator) -> dict[str, object] | None:
    if rng.random() < 0.1:
        return None
    texts = [None if rng.random() < 0.2 else f"t{k}" for k in range(rng.integers(0, 4))]
    return {
        "x": None if rng.random() < 0.2 else int(rng.integers(100)),
        "y": None if rng.random() < 0.1 else texts,
    }


def _lists(rng: np.random.Generator, count: int, longest: int) -> list[object]:
    return [
        None if rng.random() < 0.1 else [_items(rng) for _ in range(rng.integers(0, longest))]
        for _ in range(count)
    ]


def _without_plans(path: Path, **options: Any) -> LanceFileReader:
    reader = LanceFileReader(path, **options)
    reader._reader._mapped_file = None
    return reader


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([1, 40, 900]),
    longest=st.sampled_from([1, 3, 40]),
    version=st.sampled_from(["2.1", "2.2"]),
    batches=st.integers(1, 3),
)
def test_rows_do_not_depend_on_the_search_path(
    tmp_path: Path, seed: int, count: int, longest: int, version: str, batches: int
) -> None:
    rng = np.random.default_rng(seed)
    table = pa.table({"v": pa.array(_lists(rng, count, longest), pa.list_(ITEM))})
    path = tmp_path / f"{seed}-{count}-{longest}.lance"
    with LanceFileWriter(path, table.schema, version=version) as writer:
        for batch in table.to_batches(max_chunksize=-(-count // batches)):
            writer.write_batch(batch)
    rows = np.unique(rng.integers(0, count, rng.integers(1, 30)))
    planned = LanceFileReader(path).take_rows(rows).to_table()
    short = _without_plans(path).take_rows(rows).to_table()
    assert short.equals(planned)
    with mock.patch.object(read, "packed_level_bits", return_value=None):
        # What is kept of the file was made for the short way, but for another kind of reading.
        long = _without_plans(path, verify="off").take_rows(rows).to_table()
    assert short.combine_chunks().equals(long.combine_chunks())
    assert short["v"].to_pylist() == table["v"].take(pa.array(rows)).to_pylist()


def test_the_short_way_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    table = pa.table({"v": pa.array([[1], [2, 3], None] * 500, pa.list_(pa.int64()))})
    with LanceFileWriter(path, table.schema) as writer:
        writer.write_batch(table)
    with (
        mock.patch.object(read.kernels, "take_row_levels", side_effect=AssertionError),
        pytest.raises(AssertionError),
    ):
        _without_plans(path).take_rows([7]).to_table()
