"""Single values of packed columns, read in the general way and by the kernel for a few rows.

Goal: both give what was written. Method: read the same rows of the same file again and again: what
the first read learns of the pages is what the kernel needs, which reads from then on.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lancelet
from lancelet import kernels
from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices
from lancelet.encodings.pages import planned
from lancelet.file import LanceFileReader, LanceFileWriter

READS = 4
"""So often, for nothing is prepared before rows were read a few times."""

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.timestamp("us"), pa.date32()]


def _values(rng: np.random.Generator, data_type: pa.DataType, count: int) -> pa.Array:
    bits = min(data_type.bit_width - 1, int(rng.integers(1, 40)))
    numbers = rng.integers(0, 1 << bits, count)
    whole = pa.int32() if data_type == pa.date32() else pa.int64()
    return pa.array(numbers).cast(whole).cast(data_type)


def _taken(reader: LanceFileReader, rows: Int64s) -> pa.Array:
    inner = reader._reader
    (array,) = inner.read(inner.schema.fields, RowIndices(rows))
    return array


def _write(path: Path, table: pa.Table, version: str) -> None:
    with LanceFileWriter(path, table.schema, version=version) as writer:
        for batch in table.to_batches(max_chunksize=1500):
            writer.write_batch(batch)


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([1, 700, 1024, 5000]),
    data_type=st.sampled_from(TYPES),
    version=st.sampled_from(["2.1", "2.2"]),
)
def test_values_do_not_depend_on_how_they_are_taken(
    tmp_path: Path, seed: int, count: int, data_type: pa.DataType, version: str
) -> None:
    rng = np.random.default_rng(seed)
    table = pa.table({"v": _values(rng, data_type, count)})
    path = tmp_path / f"{seed}-{count}-{data_type}.lance"
    _write(path, table, version)
    rows = np.unique(rng.integers(0, count, rng.integers(1, 30)))
    expected = table["v"].take(pa.array(rows)).combine_chunks()
    reader = LanceFileReader(path)
    assert reader.take_rows(rows).to_table()["v"].combine_chunks() == expected
    for _ in range(READS):
        assert _taken(reader, rows) == expected


def test_the_kernel_is_used_after_pages_are_cached(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    numbers = np.random.default_rng(1).integers(0, 1 << 21, 5000)
    _write(path, pa.table({"v": numbers}), "2.2")
    reader = LanceFileReader(path)
    with mock.patch.object(planned.kernels, "take_rows", wraps=kernels.take_rows) as asked:
        for _ in range(READS):
            assert _taken(reader, np.array([7])).to_pylist() == [numbers[7]]
    assert asked.called


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_values_of_compressed_chunks_are_taken_in_any_order(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "prices.lance"
    prices = np.round(np.random.default_rng(2).random(5000) * 1000, 2)
    if not path.exists():
        lancelet.write_dataset(pa.table({"v": prices}), path)
    rows = data.draw(st.lists(st.integers(0, 4999), min_size=1, max_size=12))
    if data.draw(st.booleans()):
        rows = sorted(rows)
    dataset = lancelet.dataset(path)
    for _ in range(READS):
        assert dataset.take(rows)["v"].to_pylist() == prices[rows].tolist()


def test_prices_are_compressed(tmp_path: Path) -> None:
    path = tmp_path / "prices.lance"
    prices = np.round(np.random.default_rng(2).random(5000) * 1000, 2)
    with LanceFileWriter(path, pa.schema([("v", pa.float64())])) as writer:
        writer.write_batch(pa.record_batch({"v": prices}))
    (column,) = LanceFileReader(path).metadata().columns
    assert "lz4" in str(column.pages[0].encoding).lower()
