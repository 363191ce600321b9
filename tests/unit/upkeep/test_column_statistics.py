"""Statistics of columns against the values themselves."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.upkeep.column_statistics import Source, column_statistics, stored_statistics

_counter = itertools.count()


@settings(deadline=None, max_examples=25)
@given(
    values=st.lists(st.none() | st.integers(-100, 100), min_size=1, max_size=30),
    texts=st.lists(st.none() | st.text(max_size=80), min_size=1, max_size=30),
    version=st.sampled_from(["2.0", "2.1", "2.2"]),
    deletes=st.booleans(),
)
def test_statistics_are_those_of_the_live_values(values, texts, version, deletes) -> None:
    count = min(len(values), len(texts))
    rows = pa.table(
        {
            "id": range(count),
            "i": pa.array(values[:count], pa.int16()),
            "t": pa.array(texts[:count], pa.string()),
        }
    )
    uri = f"memory://column-statistics-{next(_counter)}/t"
    dataset = lancelet.write_dataset(rows, uri, max_rows_per_file=7, data_storage_version=version)
    if deletes:
        dataset.delete("id % 5 = 1")
    live = dataset.to_table()
    for found in column_statistics(dataset.snapshot, ["i", "t"], distinct=True):
        present = [value for value in live[found.name].to_pylist() if value is not None]
        assert found.num_rows == live.num_rows
        assert found.null_count == live.num_rows - len(present)
        assert found.minimum == min(present, default=None)
        assert found.maximum == max(present, default=None)
        # Two values can share a register.
        assert abs(found.distinct - len(set(present))) <= 2
    again = column_statistics(dataset.snapshot, ["i", "t"])
    assert [(each.minimum, each.maximum, each.distinct) for each in again] == [
        (each.minimum, each.maximum, None)
        for each in column_statistics(dataset.snapshot, ["i", "t"], distinct=True)
    ]


def test_nothing_is_read_where_files_have_statistics(tmp_path: Path) -> None:
    rows = pa.table({"i": range(20_000), "t": ["x" * 100] * 20_000})
    dataset = lancelet.write_dataset(rows, tmp_path, max_rows_per_file=10_000)
    of_i, of_t = column_statistics(dataset.snapshot)
    assert (of_i.minimum, of_i.maximum, of_i.rows_read) == (0, 19_999, 0)
    assert (of_t.minimum, of_t.rows_read) == ("x" * 100, 20_000)
    dataset.delete("i = 19999")
    (of_i,) = column_statistics(dataset.snapshot, ["i"])
    assert (of_i.maximum, of_i.rows_read) == (19_998, 9_999)


def test_types_without_order_and_nan_are_left_out_of_bounds(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "f": pa.array([float("nan"), 2.5, None, float("inf")]),
            "n": pa.array([float("nan")] * 4, pa.float32()),
            "l": [[1], None, [], [2]],
            "s": [{"x": Decimal("1.5")}, None, {"x": None}, {"x": Decimal("-2.5")}],
            "b": [True, False, None, True],
            "d": pa.array(["u", "v", None, "u"]).dictionary_encode(),
        }
    )
    dataset = lancelet.write_dataset(rows, tmp_path)
    found = {each.name: each for each in column_statistics(dataset.snapshot)}
    assert (found["f"].minimum, found["f"].maximum, found["f"].null_count) == (2.5, np.inf, 1)
    assert (found["n"].minimum, found["n"].maximum) == (None, None)
    assert (found["l"].minimum, found["l"].null_count) == (None, 1)
    assert (found["b"].minimum, found["b"].maximum) == (False, True)
    assert (found["d"].minimum, found["d"].maximum) == ("u", "v")
    (nested,) = column_statistics(dataset.snapshot, ["s.x"])
    assert (nested.minimum, nested.maximum, nested.null_count) == (
        Decimal("-2.5"),
        Decimal("1.5"),
        2,
    )


@pytest.mark.parametrize("data_type", [pa.duration("ns"), pa.float16(), pa.timestamp("ns")])
@pytest.mark.parametrize("deletes", [False, True])
def test_types_that_arrow_does_not_order_have_bounds(tmp_path: Path, data_type, deletes) -> None:
    values = pa.array([3, 1, None, 7, 9], pa.int64())
    values = values.cast(pa.float32()) if data_type == pa.float16() else values
    column = values.cast(data_type)
    dataset = lancelet.write_dataset(pa.table({"id": range(5), "c": column}), tmp_path)
    if deletes:
        dataset.delete("id = 4")
    (found,) = column_statistics(dataset.snapshot, ["c"], distinct=True)
    last = 3 if deletes else 4
    assert (found.minimum, found.maximum) == (column[1].as_py(), column[last].as_py())
    assert (found.null_count, found.distinct) == (1, last)


def test_the_number_of_distinct_maps_is_not_reported(tmp_path: Path) -> None:
    maps = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8()))
    dataset = lancelet.write_dataset(pa.table({"m": maps, "n": [1, 1]}), tmp_path)
    found = column_statistics(dataset.snapshot, distinct=True)
    assert [(each.null_count, each.distinct) for each in found] == [(1, None), (0, 1)]


def test_many_distinct_values_are_estimated_closely(tmp_path: Path) -> None:
    rows = pa.table(
        {"i": [i % 50_000 for i in range(100_000)], "t": [f"{i}" for i in range(100_000)]}
    )
    dataset = lancelet.write_dataset(rows, tmp_path)
    of_i, of_t = column_statistics(dataset.snapshot, distinct=True)
    assert of_i.distinct == pytest.approx(50_000, rel=0.08)
    assert of_t.distinct == pytest.approx(100_000, rel=0.08)


def test_an_empty_table_has_no_bounds(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(pa.table({"i": pa.array([], pa.int32())}), tmp_path)
    (found,) = column_statistics(dataset.snapshot, distinct=True)
    assert (found.num_rows, found.null_count, found.minimum, found.distinct) == (0, 0, None, 0)


@pytest.mark.parametrize("stable", [False, True])
def test_an_index_provides_statistics_missing_in_files(tmp_path: Path, stable: bool) -> None:
    rows = pa.table({"i": [*range(400), None], "t": [f"{number:090}" for number in range(401)]})
    dataset = lancelet.write_dataset(
        rows, tmp_path, max_rows_per_file=150, enable_stable_row_ids=stable
    )
    dataset.delete("i < 3 OR i = 399 OR i = 200")
    read = column_statistics(dataset.snapshot)
    assert all(each.rows_read for each in read)
    for column in "it":
        dataset.create_scalar_index(column, "BTREE")
    told = column_statistics(dataset.snapshot)
    assert [(each.minimum, each.maximum, each.null_count, each.rows_read) for each in told] == [
        (each.minimum, each.maximum, each.null_count, 0) for each in read
    ]
    assert (told[0].minimum, told[0].maximum, told[0].null_count) == (3, 398, 1)
    dataset.delete("true")
    assert column_statistics(dataset.snapshot)[0].minimum is None


def test_an_index_that_lacks_rows_provides_no_statistics(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(pa.table({"i": [3, 4]}), tmp_path)
    dataset.create_scalar_index("i", "BTREE")
    dataset.insert(pa.table({"i": [9]}))
    assert column_statistics(dataset.snapshot)[0].maximum == 9


def test_stored_statistics_require_no_reads_and_name_their_source():
    table = lancelet.write_dataset(
        pa.table({"a": [1, None, 3, 9] * 5000, "long": ["x" * 100] * 20_000}),
        "memory://stored-statistics",
    )
    source, found = stored_statistics(table.snapshot, "a")
    assert (source, found.null_count, found.maximum, found.rows_read) == (Source.ZONES, 5000, 9, 0)
    assert stored_statistics(table.snapshot, "long") is None  # the bounds are truncated
    table.delete("a = 9")
    source, found = stored_statistics(table.snapshot, "a")
    assert (source, found.maximum) == (Source.ZONES_WITH_DELETED, 9)
    assert (found.null_count, found.num_rows) == (5000, 20_000)
    table.create_scalar_index("a", "BTREE")
    source, found = stored_statistics(table.snapshot, "a")
    assert (source, found.maximum, found.num_rows) == (Source.INDEX, 3, 15_000)
