"""Filters of repeated values evaluate the items of dictionaries, with the result of all rows."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.file.rows import RowReader
from lancelet.scan.nodes.source import sources

COLORS = ["red", "green", "blue", "", "rouge", None, "Red"]
FILTERS = [
    "s = 'red'",
    "s != 'red'",
    "s IS NULL",
    "s IS NOT NULL",
    "s IS NULL OR s = 'blue'",
    "s LIKE 'r%'",
    "s NOT IN ('red', 'blue')",
    "length(s) > 3",
    "CASE WHEN s = 'red' THEN false WHEN s IS NULL THEN true ELSE length(s) = 4 END",
    "s = 'absent'",
    "b = X'01'",
    "s = 'green' AND b IS NULL",
    "s >= 'green' AND n < 5000",
    "n < 15000 AND s = 'red' AND b != X'01'",
    "s = 'red' OR n = 17",
    "n % 2 = 0 AND 100 / (n - 100) < 0 AND s = 'red'",
    "s = 'red' AND cast(n AS string) = '35'",
]


def rows(count: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    small = [bytes([value]) if value else None for value in range(3)]
    return pa.table(
        {
            "n": np.arange(count) + 1,
            "s": pa.array([COLORS[i] for i in random.integers(0, 7, count)], pa.string()),
            "b": pa.array([small[i] for i in random.integers(0, 3, count)], pa.binary()),
        }
    )


def expected(table: pa.Table, text: str) -> pa.Table:
    batch = table.combine_chunks().to_batches()[0]
    return table.filter(evaluate_filter(compile_filter(text, table.schema), batch))


def dictionary_columns(dataset) -> list[str]:
    source = next(iter(sources(dataset.snapshot, None)))
    fields = dataset.snapshot.schema.fields
    return [field.name for field in fields if source.reader.as_dictionary(field) is not None]


@pytest.fixture(scope="module", params=["2.1", "2.2", "2.3", "pylance"])
def dataset(request, tmp_path_factory):
    """Two fragments; the first has several pages with different dictionaries."""
    path = str(tmp_path_factory.mktemp("dictionaries") / "t")
    if request.param == "pylance":
        lance.write_dataset(rows(20_000), path, max_rows_per_file=12_000)
        return lancelet.dataset(path)
    options = {"data_storage_version": request.param, "max_rows_per_file": 12_000}
    return lancelet.write_dataset(rows(20_000), path, max_page_bytes=16_384, **options)


def test_repeated_values_are_stored_as_dictionaries(dataset):
    assert {"s"} <= set(dictionary_columns(dataset)) <= {"s", "b"}


@pytest.mark.parametrize("text", FILTERS)
def test_results_equal_those_of_all_rows(dataset, text):
    want = expected(rows(20_000), text)
    assert dataset.count_rows(text) == len(want)
    assert dataset.to_table(filter=text).equals(want)
    assert dataset.to_table(["s"], filter=text).equals(want.select(["s"]))
    assert dataset.to_table(["n"], filter=text).equals(want.select(["n"]))
    limited = dataset.to_table(filter=text, memory_limit=1 << 20, batch_size=999)
    assert limited.equals(want)


def test_indices_of_items_are_compared(dataset, monkeypatch):
    found = []
    select = RowReader.select
    monkeypatch.setattr(
        RowReader, "select", lambda *given: found.append(select(*given)) or found[-1]
    )
    text = "s = 'red' OR s = 'blue'"
    assert dataset.to_table(["s"], filter=text).equals(expected(rows(20_000), text).select(["s"]))
    assert found
    assert all(each is not None for each in found)


def test_deleted_rows_are_skipped(tmp_path):
    dataset = lancelet.write_dataset(rows(20_000), tmp_path / "t")
    dataset.delete("n % 3 = 0")
    table = expected(rows(20_000), "n % 3 != 0")
    for text in FILTERS:
        want = expected(table, text)
        assert dataset.count_rows(text) == len(want)
        assert dataset.to_table(filter=text).equals(want)


def test_values_that_would_raise_are_evaluated_only_where_they_remain(tmp_path):
    values = pa.array(["1", "2", "x"] * 4000)
    dataset = lancelet.write_dataset({"s": values, "n": range(12_000)}, tmp_path / "t")
    assert dictionary_columns(dataset) == ["s"]
    dataset.delete("s = 'x'")
    assert dataset.count_rows("cast(s AS int) = 1") == 4000


def test_random_functions_are_evaluated_for_each_row(tmp_path):
    dataset = lancelet.write_dataset({"s": ["a", "b"] * 10_000}, tmp_path / "t")
    assert 2000 < dataset.count_rows("s = 'a' AND random() < 0.5") < 8000


def test_measured_rows_are_those_that_pass_all_steps(tmp_path):
    dataset = lancelet.write_dataset(rows(20_000), tmp_path / "t")
    text = "n <= 10000 AND s = 'red'"
    plan = dataset.scanner(filter=text).analyze_plan()
    count = len(expected(rows(20_000), text))
    assert f"Filter: s = 'red', metrics=[output_rows={count}" in plan


@pytest.mark.parametrize("num_items", [40, 60, 126, 127, 128, 300, 20_000])
@pytest.mark.parametrize("module", [lance, lancelet])
def test_items_of_several_pages_are_numbered_within_the_index_type(tmp_path, module, num_items):
    """Each page has a dictionary of its own, and the index type holds the items of all."""
    parts = 3
    names = np.array([f"item {number:06d} of a page" for number in range(parts * num_items)])
    random = np.random.default_rng(num_items)
    batches = [
        pa.record_batch(
            {"s": names[part * num_items + random.integers(0, num_items, 60_000)]},
        )
        for part in range(parts)
    ]
    path = str(tmp_path / "t")
    for batch in batches:
        module.write_dataset(pa.table(batch), path, mode="append", data_storage_version="2.1")
    lancelet.dataset(path).optimize.compact_files()
    dataset = lancelet.dataset(path)
    values = pa.chunked_array([batch["s"] for batch in batches]).combine_chunks().to_pylist()
    for wanted in (names[0], names[-1], names[num_items], "absent"):
        text = f"s = '{wanted}'"
        assert dataset.count_rows(text) == values.count(wanted)
        assert dataset.to_table(filter=text)["s"].to_pylist() == [wanted] * values.count(wanted)
