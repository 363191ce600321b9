"""Batches of one size from batches of any: the same rows, in the same order."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancelet.file.batches import rebatch


@given(st.lists(st.integers(0, 20), max_size=10), st.integers(1, 15))
def test_rebatching_keeps_rows_and_gives_every_batch_its_size(sizes, size):
    table = pa.table({"x": pa.array(range(sum(sizes)), pa.int64())})
    batches, start = [], 0
    for length in sizes:
        batches += table.slice(start, length).combine_chunks().to_batches() or []
        start += length
    found = list(rebatch(batches, size))
    assert pa.Table.from_batches(found, table.schema).equals(table)
    assert all(batch.num_rows == size for batch in found[:-1])
    assert all(0 < batch.num_rows <= size for batch in found)


def test_batches_of_the_right_size_are_not_copied():
    batch = pa.record_batch({"x": pa.array([1, 2, 3, 4])})
    parts = list(rebatch([batch], 2))
    address = batch.column(0).buffers()[1].address
    assert [part.column(0).buffers()[1].address for part in parts] == [address, address]


def test_large_rows_end_batches_before_their_size():
    batches = [pa.record_batch({"x": [b"a" * 100] * rows}) for rows in (1, 1, 1, 30, 2)]
    found = list(rebatch(batches, 20, bytes_max=250))
    assert [batch.num_rows for batch in found] == [3, 20, 10, 2]
    assert pa.Table.from_batches(found) == pa.Table.from_batches(batches)
