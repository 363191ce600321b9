"""Single values of packed columns, read the short way and the long way.

Goal: `MiniBlockPages` picks values of bare blocks with one kernel, where a column has no levels
and no dictionary. Method: read the same rows of the same file twice, the second time with the
kernel declined, and by slicing the values that were written.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancelet.encodings.miniblock import read
from lancelet.file import LanceFileReader, LanceFileWriter

TYPES = [pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.timestamp("us"), pa.date32()]


def _values(rng: np.random.Generator, data_type: pa.DataType, count: int) -> pa.Array:
    bits = min(data_type.bit_width - 1, int(rng.integers(1, 40)))
    numbers = rng.integers(0, 1 << bits, count)
    whole = pa.int32() if data_type == pa.date32() else pa.int64()
    return pa.array(numbers).cast(whole).cast(data_type)


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
def test_values_are_the_same_in_whatever_way_they_are_picked(
    tmp_path: Path, seed: int, count: int, data_type: pa.DataType, version: str
) -> None:
    rng = np.random.default_rng(seed)
    table = pa.table({"v": _values(rng, data_type, count)})
    path = tmp_path / f"{seed}-{count}-{data_type}.lance"
    _write(path, table, version)
    rows = np.unique(rng.integers(0, count, rng.integers(1, 30)))
    short = LanceFileReader(path).take_rows(rows).to_table()
    with mock.patch.object(read, "inline_block_bits", return_value=None):
        # What is kept of the file was made for the short way, but for another kind of reading.
        long = LanceFileReader(path, verify="off").take_rows(rows).to_table()
    assert short.combine_chunks().equals(long.combine_chunks())
    assert short["v"].combine_chunks() == table["v"].take(pa.array(rows)).combine_chunks()


def test_the_short_way_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    numbers = np.random.default_rng(1).integers(0, 1 << 21, 5000)
    _write(path, pa.table({"v": numbers}), "2.2")
    with (
        mock.patch.object(read.kernels, "pick_packed_chunks", side_effect=AssertionError),
        pytest.raises(AssertionError),
    ):
        LanceFileReader(path).take_rows([7]).to_table()
