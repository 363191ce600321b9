"""Partial results of batches: exact, and merged text that Spark makes the same of."""

import decimal

import pyarrow as pa
import pytest
from sqlglot import exp

from lancelet.spark.sql.aggregates import aggregate_batch, find_aggregation
from lancelet.spark.sql.analysis import TableColumns, analyse
from lancelet.spark.sql.source import Source, parse_query
from lancelet.spark.types import arrow_schema, spark_schema

T = TableColumns(
    (
        pa.field("k", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("big", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("price", pa.decimal128(12, 2)),
        pa.field("wide", pa.decimal128(18, 0)),
        pa.field("code", pa.dictionary(pa.int8(), pa.string())),
    )
)


def found(text):
    tree = parse_query(text)
    use = analyse(Source(text), tree, {"t": T}, {})["t"]
    node = next(each for each in tree.find_all(exp.Table) if each.name == "t")
    return find_aggregation(node, T, use, num_rows=1000)


def partial(text, rows):
    aggregation = found(text)
    schema = arrow_schema(spark_schema(aggregation.schema(T)))
    batch = pa.record_batch(rows, schema=pa.schema([f for f in T.stored if f.name in rows]))
    return aggregate_batch(aggregation, batch, schema)


def test_batches_become_partial_results():
    made = partial(
        "SELECT k, count(*), count(n), sum(n), min(code), sum(price * (1 - price)) "
        "FROM t GROUP BY 1",
        {
            "k": ["a", "b", "a", None],
            "n": [1, None, 3, 4],
            "price": [decimal.Decimal("1.50"), decimal.Decimal("2.00"), None, None],
            "code": ["z", None, "y", "x"],
        },
    )
    assert made.to_pydict() == {
        "k": ["a", "b", None],
        "__lancelet_0": [2, 1, 1],
        "__lancelet_1": [2, 0, 1],
        "__lancelet_2": [4, None, 4],
        "__lancelet_3": ["y", None, "x"],
        "__lancelet_4": [decimal.Decimal("-0.7500"), decimal.Decimal("-2.0000"), None],
    }


def test_values_beyond_64_bits_are_passed_by_row():
    large = 2**62
    made = partial("SELECT sum(big), count(*) FROM t", {"big": [large, large, -large, None]})
    assert made.column(0).to_pylist() == [large, large, -large, None]
    assert made.column(1).to_pylist() == [1, 1, 1, 1]
    most = decimal.Decimal(10**18 - 1)
    made = partial("SELECT sum(wide * wide) FROM t", {"wide": [most, None, decimal.Decimal(2)]})
    assert made.column(0).to_pylist() == [decimal.Decimal((10**18 - 1) ** 2), None, 4]


def test_types_are_those_of_spark():
    aggregation = found("SELECT sum(price * (1 - price) * (1 + price)), avg(price) FROM t")
    texts = [text for _, _, text in aggregation.merged]
    assert texts[0] == "CAST(sum(__lancelet_0) AS DECIMAL(38, 6))"
    assert texts[1].endswith("AS DECIMAL(16, 6))")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT sum(x) FROM t",
        "SELECT max(x) FROM t",
        "SELECT x, count(*) FROM t GROUP BY x",
        "SELECT avg(big) FROM t",
        "SELECT sum(n * n) FROM t",
        "SELECT sum(DISTINCT n) FROM t",
        "SELECT count(DISTINCT n), count(*) FROM t",
        "SELECT count(DISTINCT n), count(DISTINCT k) FROM t",
        "SELECT count(DISTINCT n, k) FROM t",
        "SELECT sum(n) FILTER (WHERE n > 1) FROM t",
        "SELECT sum(n) OVER () FROM t",
        "SELECT my_sum(n), count(*) FROM t",
        "SELECT first(n), count(*) FROM t",
        "SELECT k, count(*) FROM t GROUP BY ROLLUP (k)",
        "SELECT count(*) FROM t WHERE rlike(k, 'a')",
        "SELECT count(*) FROM t JOIN u ON t.n = u.n",
        "SELECT n + 1, count(*) FROM t GROUP BY n + 1",
        "SELECT upper(k), count(*) FROM t GROUP BY k",
        "SELECT count(*), (SELECT 1) FROM t",
        "SELECT n FROM t",
        "SELECT DISTINCT count(*) FROM t GROUP BY k",
        "SELECT k, count(*) FROM t GROUP BY ALL",
    ],
)
def test_comparisons_with_other_semantics_stay_in_spark(text):
    assert found(text) is None
