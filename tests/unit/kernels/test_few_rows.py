"""Columns for the kernel that reads a few rows: whatever they are made of, it stays in its arrays.

What they hold is checked by the tests of files (`tests/unit/file/test_few_rows.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lancelet import kernels
from lancelet.kernels import (
    ChunkRun,
    ConstantRun,
    FewColumns,
    ItemRun,
    KnownColumn,
    KnownItems,
    KnownSymbols,
    MappedFile,
    ZippedRun,
)

pytestmark = pytest.mark.skipif(not kernels.NATIVE, reason="the definition reads nothing")

ROWS = np.array([0, 5, 9], np.int64)


def longs(*numbers):
    return np.array(numbers, np.int64)


def symbols(tables=1):
    codes = np.zeros(256 * tables, np.uint64)
    return KnownSymbols(codes, np.ones(256 * tables, np.uint8), np.arange(tables + 1))


CHUNKS = ChunkRun(
    first_value=longs(0, 8, 10),
    known=None,
    position=longs(0, 64),
    size=longs(64, 32),
    count=longs(8, 2),
    has_definition=False,
    size_bytes=2,
    compression=0,
    codec=0,
    bits=64,
    symbols=None,
    items=None,
)
ITEMS = ItemRun(longs(0, 10), longs(0), has_definition=False, item_bytes=8)
TEXTS = ZippedRun(
    rows=10,
    index_position=0,
    index_width=1,
    position=16,
    size=64,
    has_definition=False,
    length_bytes=1,
    codec=4,
    symbols=None,
)


def take(run, *, form=0, width=8, data=None):
    column = KnownColumn(form, width, is_text=False, first_row=longs(0, 10), runs=(run,))
    data = np.zeros(96, np.uint8) if data is None else data
    file = MappedFile.unverified(data, np.ones(1, np.uint8))
    return kernels.take_few(file, ROWS, kernels.prepare_few([column]), 1024)


def test_rows_are_found_in_what_columns_keep():
    data = np.arange(96, dtype=np.uint8)
    found = take(ITEMS, data=data)
    assert found is not None
    start = found.places[0][2]
    assert found.data[start : start + 24].tolist() == [*range(8), *range(40, 48), *range(72, 80)]


@pytest.mark.parametrize("handle", [None, 7, longs(1 << 40), [longs(7)], "columns"])
def test_nothing_but_columns_is_read(handle):
    file = MappedFile.unverified(np.zeros(96, np.uint8), np.ones(1, np.uint8))
    with pytest.raises(TypeError):
        kernels.take_few(file, ROWS, FewColumns(handle, 1), 1024)


@pytest.mark.parametrize(
    "run",
    [
        replace(CHUNKS, first_value=longs(0, 8)),
        replace(CHUNKS, size=longs(64)),
        replace(CHUNKS, count=longs()),
        replace(CHUNKS, known=np.ones(1, np.uint8)),
        replace(CHUNKS, size_bytes=3),
        replace(CHUNKS, codec=5),
        replace(CHUNKS, items=KnownItems(9, 8, np.zeros(64, np.uint8))),
        replace(CHUNKS, items=KnownItems(-2, 8, np.zeros(64, np.uint8))),
        replace(CHUNKS, items=KnownItems(1 << 61, 8, np.zeros(64, np.uint8))),
        replace(CHUNKS, items=KnownItems(2, 4, np.zeros(8, np.uint8), np.zeros(9, np.uint8))),
        replace(CHUNKS, items=KnownItems(2, 3, np.zeros(9, np.uint8), np.zeros(9, np.uint8))),
        replace(CHUNKS, codec=5, symbols=replace(symbols(2), first_chunk=longs(0, 1))),
        replace(CHUNKS, codec=5, symbols=replace(symbols(2), symbols=symbols().symbols)),
        replace(CHUNKS, codec=5, symbols=replace(symbols(), lengths=np.full(256, 9, np.uint8))),
        replace(ITEMS, first_row=longs(0)),
        replace(ITEMS, item_bytes=-1),
        replace(TEXTS, index_width=3),
        replace(TEXTS, length_bytes=0),
        replace(TEXTS, index_position=-1),
        replace(TEXTS, position=1 << 62),
        replace(TEXTS, rows=1 << 60),
        replace(TEXTS, codec=5),
    ],
)
def test_arrays_must_be_as_long_as_the_numbers_say(run):
    with pytest.raises(ValueError, match=r"a|are|has|does"):
        take(run)


def test_a_column_must_have_a_first_row_for_each_run():
    for column in (
        KnownColumn(0, 8, is_text=False, first_row=longs(0), runs=(ITEMS,)),
        KnownColumn(0, 8, is_text=False, first_row=longs(0), runs=()),
        KnownColumn(4, 8, is_text=False, first_row=longs(0, 10), runs=(ITEMS,)),
        KnownColumn(0, -8, is_text=False, first_row=longs(0, 10), runs=(ITEMS,)),
    ):
        with pytest.raises(ValueError, match="column"):
            kernels.prepare_few([column])


def test_numbers_that_make_no_sense_are_declined():
    rng = np.random.default_rng(0)
    odd = [-(1 << 62), -1, 0, 1, 7, 8, 9, 64, 95, 96, 97, 1 << 31, 1 << 40, (1 << 62) + 5]
    for _ in range(3000):
        numbers = {
            name: rng.choice(odd, len(getattr(CHUNKS, name)))
            for name in ("first_value", "position", "size", "count")
            if rng.random() < 0.5
        }
        run = replace(
            CHUNKS,
            **numbers,
            has_definition=bool(rng.random() < 0.3),
            compression=int(rng.integers(0, 4)),
            codec=int(rng.integers(0, 5)),
            bits=int(rng.choice([1, 8, 16, 32, 64, 65, -8])),
        )
        others = (
            ItemRun(rng.choice(odd, 2), rng.choice(odd, 1), has_definition=False, item_bytes=8),
            ConstantRun(np.zeros(int(rng.integers(0, 20)), np.uint8)),
            ConstantRun(None),
        )
        data = rng.integers(0, 256, 96).astype(np.uint8)
        take(run, data=data)
        take(others[rng.integers(3)], form=int(rng.integers(0, 4)), data=data)
        take(TEXTS, form=2, width=4, data=data)
