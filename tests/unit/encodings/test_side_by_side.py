"""Bare columns that are read as one give what each of them gives alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.buffers import run
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.encodings.side_by_side import SideBySide
from lancelet.file import LanceFileReader, LanceFileWriter

ROWS = 150_000
"""Pages of 8 bytes a value hold 131,072 of these, so there are several."""


def table():
    rng = np.random.default_rng(3)
    numbers = {f"long {k}": rng.integers(0, 1 << (9 + k), ROWS) for k in range(3)}
    small = {f"int {k}": rng.integers(0, 1 << 11, ROWS, dtype=np.int32) for k in range(2)}
    return pa.table(
        {
            **numbers,
            "text": [f"text {k % 977}" for k in range(ROWS)],
            **small,
            "time": pa.array(rng.integers(0, 1 << 30, ROWS), pa.timestamp("us")),
            "or null": pa.array(numbers["long 0"], mask=rng.random(ROWS) < 0.2),
        }
    )


TABLE = table()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("bare") / "x.lance"
    with LanceFileWriter(str(path), TABLE.schema, version="2.2") as writer:
        for batch in TABLE.to_batches(max_chunksize=50_000):
            writer.write_batch(batch)
    return str(path)


class Columns:
    """The columns of a file that was just opened, and how much is read of it."""

    def __init__(self, path):
        inner = LanceFileReader(path)._reader
        self.readers = [column.reader for column in inner._select(inner.schema.fields).alone]
        self._fetch = inner.fetch
        self.rounds = []

    def fetch(self, ranges):
        self.rounds.append(len(ranges))
        return self._fetch(ranges)


def single_rows(data):
    rows = data.draw(st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=20))
    return np.array(sorted(rows), np.int64)


@settings(deadline=None, max_examples=20)
@given(st.data())
def test_bare_columns_are_read_as_each_alone(path, data):
    columns = Columns(path)
    side_by_side = SideBySide(columns.readers)
    for _ in range(data.draw(st.integers(1, 9))):
        rows = single_rows(data)
        found = run(side_by_side.read(RowIndices(rows)), columns.fetch)
        for array, expected in zip(found, TABLE.columns, strict=True):
            array.validate(full=True)
            assert array.equals(expected.combine_chunks().take(pa.array(rows)))


def test_bare_columns_are_put_together_after_a_few_reads(path):
    columns = Columns(path)
    side_by_side = SideBySide(columns.readers)
    rows = RowIndices(np.array([3, ROWS - 1]))
    for _ in range(4):
        run(side_by_side.read(rows), columns.fetch)
    columns.rounds.clear()
    found = run(side_by_side.read(rows), columns.fetch)
    assert [group.places for group in side_by_side._together] == [(0, 1, 2, 6), (4, 5)]
    assert len(columns.rounds) == 1
    expected = TABLE.take(pa.array(rows.rows))
    assert pa.Table.from_arrays(found, TABLE.column_names).equals(expected)


def test_a_page_that_is_not_known_is_left_to_its_column(path):
    columns = Columns(path)
    side_by_side = SideBySide(columns.readers)
    for _ in range(4):
        run(side_by_side.read(RowIndices(np.array([3]))), columns.fetch)
    assert side_by_side._together
    rows = np.array([3, ROWS - 1])
    found = run(side_by_side.read(RowIndices(rows)), columns.fetch)
    expected = TABLE.take(pa.array(rows))
    assert pa.Table.from_arrays(found, TABLE.column_names).equals(expected)


@pytest.mark.parametrize("rows", [RowRange(5, 9), RowIndices(np.empty(0, np.int64))])
def test_other_reads_are_those_of_the_columns(path, rows):
    columns = Columns(path)
    found = run(SideBySide(columns.readers).read(rows), columns.fetch)
    assert [len(array) for array in found] == [len(rows)] * TABLE.num_columns


def test_nothing_is_put_together_of_a_single_column(path):
    columns = Columns(path)
    side_by_side = SideBySide(columns.readers[:1])
    for _ in range(9):
        run(side_by_side.read(RowIndices(np.array([7]))), columns.fetch)
    assert side_by_side._together == ()
