"""Single rows of lists, read by plans and by the readers of columns.

Goal: plans find the rows of lists in the levels of chunks, as the readers of columns do. Method:
read the same rows of the same file by plans and without them, and compare with the written rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.file.selection import OpenFields

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


def _without_plans(path: Path) -> LanceFileReader:
    reader = LanceFileReader(path)
    reader._reader._opened = OpenFields()
    reader._reader._planned = lambda fields: [None] * len(fields)  # type: ignore[method-assign]
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
    general = _without_plans(path).take_rows(rows).to_table()
    assert planned.equals(general)
    assert planned["v"].to_pylist() == table["v"].take(pa.array(rows)).to_pylist()
