"""Ranges of numbers are compared while their column is decoded, with the result of all rows."""

from __future__ import annotations

import datetime as dt
import uuid

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.file.rows import RowReader
from lancelet.scan.value_ranges import value_ranges

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COUNT = 20_000


def rows(seed: int = 0) -> pa.Table:
    random = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {"n": pa.array(np.arange(COUNT))}
    for name in TYPES:
        limits = np.iinfo(name)
        values = random.integers(limits.min, limits.max, COUNT, name, endpoint=True)
        values[:9000] = random.integers(0, 100, 9000)
        values[100:102] = limits.min, limits.max
        columns[name] = pa.array(values)
    for name, bits in (("float32", np.uint32), ("float64", np.uint64)):
        factors = random.choice([1.0, 2.0**70], COUNT)
        numbers = (random.choice([0.0, -0.0, 0.5, -1.5, 3.0], COUNT) * factors).astype(name)
        numbers[::50], numbers[1::50], numbers[2::50] = np.nan, np.inf, -np.inf
        numbers[3::50] = (~np.zeros(1, bits)).view(name)  # NaN with a sign bit
        numbers[4::50] = np.nextafter(np.zeros(1, name), 1)
        numbers[5:15_000:2] = random.random(7498)
        columns[name] = pa.array(numbers, from_pandas=False)
    days = random.integers(-40_000, 40_000, COUNT).astype(np.int32)
    columns["day"] = pa.array(days, pa.date32())
    columns["time"] = pa.array(days.astype(np.int64) * 10**9, pa.timestamp("us", "UTC"))
    columns["nullable"] = pa.array(days.astype(np.int64), mask=days % 5 == 0)
    return pa.table(columns)


ROWS = rows()


@pytest.fixture(scope="module", params=["2.1", "2.3", "pylance"])
def dataset(request, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("ranges") / "t")
    if request.param == "pylance":
        lance.write_dataset(ROWS, path, max_rows_per_file=15_000)
        return lancelet.dataset(path)
    options = {"data_storage_version": request.param, "max_rows_per_file": 15_000}
    return lancelet.write_dataset(ROWS, path, max_page_bytes=20_000, **options)


def passing(text: str, table: pa.Table = ROWS) -> pa.Table:
    batch = table.combine_chunks().to_batches()[0]
    return table.filter(evaluate_filter(compile_filter(text, table.schema), batch))


@st.composite
def conditions(draw):
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">=", "!="]))
    name = draw(st.sampled_from([*TYPES, "nullable", "float32", "float64"]))
    if name.startswith("float"):
        constants = ["0.0", "-0.0", "0.5", "-1.5", "3.0", "0.25", "1e30", "-1e30", "1e-45"]
        return f"{name} {operator} {draw(st.sampled_from(constants))}"
    limits = np.iinfo(name if name != "nullable" else np.int64)
    constants = st.integers(-5, 105) | st.sampled_from([limits.min, limits.max])
    constant = max(limits.min, min(draw(constants), limits.max))
    if draw(st.booleans()):
        return f"{name} {operator} {constant}"
    listed = ", ".join(str(max(limits.min, draw(st.integers(-5, 105)))) for _ in range(3))
    is_not = draw(st.sampled_from(["", "NOT "]))
    return draw(
        st.sampled_from(
            [
                f"{name} {is_not}IN ({constant}, {listed})",
                f"({name} {operator} {constant} OR {name} = {listed.split(',')[0]})",
                f"NOT ({name} {operator} {constant} OR {name} IN ({listed}))",
                f"{name} {is_not}IN ({constant}, NULL)",
            ]
        )
    )


@settings(max_examples=100)
@given(parts=st.lists(conditions(), min_size=1, max_size=3))
def test_results_equal_those_of_decoded_values(dataset, parts):
    text = " AND ".join(parts)
    want = passing(text)
    assert dataset.count_rows(text) == len(want)
    columns = ["n", "nullable", "int64", "day"]
    assert dataset.to_table(columns, filter=text).equals(want.select(columns))
    assert dataset.to_table(filter=text).num_rows == len(want)  # NaN does not equal itself


@pytest.mark.parametrize(
    "text",
    [
        "day >= DATE '1970-01-01' AND day < DATE '2000-01-01'",
        "day = DATE '1989-03-02'",
        "time < TIMESTAMP '1970-01-01 00:00:00Z'",
        "int32 > 50 AND int32 < 40",
        "int16 >= 10 AND int16 <= 20 AND int64 < 50",
        "nullable >= 7",
    ],
)
def test_dates_times_and_empty_ranges(dataset, text):
    want = passing(text)
    assert dataset.count_rows(text) == len(want)
    assert dataset.to_table(["n"], filter=text).equals(want.select(["n"]))


@pytest.mark.parametrize("text", ["int32 < 50", "nullable < 50"])
def test_ranges_are_compared_without_decoding(dataset, monkeypatch, text):
    found = []
    for name in ("match", "select"):
        compare = getattr(RowReader, name)
        monkeypatch.setattr(
            RowReader,
            name,
            lambda *given, own=compare: found.append(own(*given)) or found[-1],
        )
    assert dataset.count_rows(text) == len(passing(text))
    assert found
    assert dataset.to_table(["n", "nullable"], filter=text).equals(
        passing(text).select(["n", "nullable"])
    )
    assert all(each is not None for each in found)


@pytest.mark.parametrize("deleted", ["n % 3 = 0", "n < 9000 OR n > 30000", "n = 20000"])
def test_deleted_rows_do_not_pass(tmp_path, deleted):
    dataset = lancelet.write_dataset(ROWS, tmp_path / "t")
    dataset.delete(deleted)
    left = passing(f"NOT ({deleted})")
    for text in ("int32 < 50", "int32 < 50 AND nullable > 7", "nullable = 3", "int64 > 1000"):
        want = passing(text, left)
        assert dataset.count_rows(text) == len(want)
        for columns in (["int32"], ["nullable", "n"], ["n"]):
            assert dataset.to_table(columns, filter=text).equals(want.select(columns))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_short_ranges_are_filtered_together(tmp_path_factory, data):
    count = 120_000
    zones = data.draw(st.lists(st.integers(0, 14), min_size=2, max_size=6, unique=True))
    values = np.arange(count) % 1000
    for zone in zones:
        start = zone * 8192 + data.draw(st.integers(0, 8000))
        values[start : start + data.draw(st.integers(1, 3000))] = 5000
    nulls = np.arange(count) % 3 == 0 if data.draw(st.booleans()) else None
    table = pa.table(
        {
            "n": np.arange(count),
            "k": pa.array(values, mask=nulls),
            "s": pa.array(np.where(values == 5000, "many", "few"), mask=nulls),
        }
    )
    path = tmp_path_factory.mktemp("ranges") / "t"
    dataset = lancelet.write_dataset(
        table, path, max_page_bytes=data.draw(st.sampled_from([1 << 13, 1 << 16, 1 << 20]))
    )
    if data.draw(st.booleans()):
        deleted = data.draw(st.sampled_from(["n % 7 = 0", "k = 5000 AND n % 2 = 0"]))
        dataset.delete(deleted)
        table = passing(f"NOT coalesce({deleted}, false)", table)
    for text in ("k = 5000", "k = 5000 AND s = 'many'", "s = 'many'", "k > 999 AND n % 5 = 1"):
        want = passing(text, table)
        assert dataset.count_rows(text) == len(want)
        assert dataset.to_table(filter=text).equals(want)
        assert dataset.to_table(["s"], filter=text).equals(want.select(["s"]))


def test_overlaid_rows_are_not_compared(tmp_path):
    dataset = lancelet.write_dataset(ROWS, tmp_path / "t")
    dataset.update({"int32": "49"}, where="n = 10001")
    assert dataset.count_rows("int32 = 49 AND n = 10001") == 1


def test_damage_is_found(tmp_path):
    dataset = lancelet.write_dataset({"k": rows().column("int64")}, tmp_path / "t")
    (file,) = (tmp_path / "t" / "data").iterdir()
    data = bytearray(file.read_bytes())
    data[20_000] ^= 1
    file.write_bytes(data)
    with pytest.raises(OSError, match="checksum"):
        lancelet.dataset(dataset.uri, session=lancelet.Session()).count_rows("k >= 0")


def test_filters_that_are_no_ranges_are_evaluated():
    schema = pa.schema([("k", pa.int32()), ("f", pa.float64()), ("s", pa.string())])
    for text, column in [
        ("k IN (5, NULL)", "k"),
        ("k IN (1, 3, 5, 7, 9, 11, 13, 15, 17)", "k"),
        ("k = 5 OR k IS NULL", "k"),
        ("k + 1 = 5", "k"),
        ("f < cast('nan' AS double)", "f"),
        ("s = 'a'", "s"),
        ("k IS NULL", "k"),
    ]:
        assert value_ranges(compile_filter(text, schema), schema.field(column).type) is None


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("k >= 3 AND k < 9", [(3, 8)]),
        ("k IN (5, 7, 6, -1)", [(-1, -1), (5, 7)]),
        ("k != 5", [(-(1 << 31), 4), (6, (1 << 31) - 1)]),
        ("k NOT IN (5) AND k BETWEEN 4 AND 6", [(4, 4), (6, 6)]),
        ("NOT (k < 3 OR k > 4)", [(3, 4)]),
        ("k < 3 AND k > 4", []),
    ],
)
def test_ranges_of_filters(text, ranges):
    schema = pa.schema([("k", pa.int32())])
    found = value_ranges(compile_filter(text, schema), pa.int32())
    assert list(found.ranges) == ranges


def test_values_of_another_time_zone_are_compared_as_instants():
    zone = dt.timezone(dt.timedelta(hours=2))
    times = [dt.datetime(2024, 1, 1, hour, tzinfo=zone) for hour in range(24)] * 1000
    uri = f"memory://zones-{uuid.uuid4()}/t"
    dataset = lancelet.write_dataset({"t": pa.array(times, pa.timestamp("us", "UTC"))}, uri)
    assert dataset.count_rows("t < TIMESTAMP '2024-01-01 00:00:00Z'") == 2000


@pytest.mark.parametrize("other", ["", " AND n % 2 = 0"])
def test_several_ranges_of_deleted_rows_are_empty(tmp_path, other):
    # Too many bytes are between the ranges to read them together.
    digests = np.random.default_rng(0).bytes(20_000 * 100).hex()
    texts = [f"{number:05}{digests[number * 200 :][:200]}" for number in range(20_000)]
    table = pa.table({"s": texts, "n": np.arange(len(texts))})
    dataset = lancelet.write_dataset(table, tmp_path / "t")
    dataset.delete("n < 9000 OR n > 11000")
    text = f"s IN ('{texts[5]}', '{texts[19_000]}'){other}"
    assert dataset.to_table(filter=text).num_rows == 0
    assert dataset.count_rows(text) == 0
