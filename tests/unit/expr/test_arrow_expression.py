# ruff: noqa: E501  # a table reads best with a case on each line
"""Expressions of pyarrow as filters, and filters as expressions of pyarrow."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lancelet.errors import ExpressionError, UnsupportedError
from lancelet.expr.arrow_expression import from_arrow, to_arrow
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.expr.parse import parse

F = pc.field

MEANINGS = {
    "a > 5": F("a") > 5,
    "a.b = 'x'": F("a", "b") == "x",
    "`a.b` < 1.5e0": F("a.b") < 1.5,
    "a = 1 AND (b <> 2 OR NOT c)": (F("a") == 1) & ((F("b") != 2) | ~F("c")),
    "a IS NULL": F("a").is_null(),
    "a IS NOT NULL": F("a").is_valid(),
    "a IS NULL OR isnan(a)": F("a").is_null(nan_is_null=True),
    "(a IN (1, 2)) IS TRUE": F("a").isin([1, 2]),
    "(a IN (1)) IS TRUE OR a IS NULL": F("a").isin([1, None]),
    "(a IN (2)) IS TRUE": pc.is_in(F("a"), value_set=pa.array([2, None]), skip_nulls=True),
    "CAST(a AS BIGINT) > 1": F("a").cast(pa.int64()) > 1,
    "arrow_cast(a, 'LargeUtf8') = 'x'": F("a").cast(pa.large_string()) == "x",
    "a + 1 > 2 * b": F("a") + 1 > pc.multiply(pc.scalar(2), F("b")),
    "- a > b / 2": pc.negate(F("a")) > F("b") / 2,
    "s LIKE 'x%'": pc.match_like(F("s"), "x%"),
    "s ILIKE 'x%'": pc.match_like(F("s"), "x%", ignore_case=True),
    "starts_with(s, 'x')": pc.starts_with(F("s"), "x"),
    "s ILIKE '%x\\_y'": pc.ends_with(F("s"), "x_y", ignore_case=True),
    "contains(s, 'x')": pc.match_substring(F("s"), "x"),
    "regexp_like(s, 'x', 'i')": pc.match_substring_regex(F("s"), "x", ignore_case=True),
    "lower(s) = upper(t)": pc.utf8_lower(F("s")) == pc.utf8_upper(F("t")),
    "length(s) > 2": pc.utf8_length(F("s")) > 2,
    "year(ts) = 2020": pc.year(F("ts")) == 2020,
    "coalesce(a, b) > 1": pc.coalesce(F("a"), F("b")) > 1,
    "array_element(l, 0 + 1) = 1": pc.list_element(F("l"), 0) == 1,
    "CASE WHEN c IS NULL THEN NULL ELSE CASE WHEN c THEN a ELSE b END END > 1": pc.if_else(F("c"), F("a"), F("b")) > 1,
    "a AND NOT b": pc.and_not_kleene(F("a"), F("b")),
    "a <> b": pc.xor(F("a"), F("b")),
    "d > 1.50": F("d") > Decimal("1.50"),
    "b = X'6162'": F("b") == b"ab",
    "dt = DATE '2020-01-02'": F("dt") == dt.date(2020, 1, 2),
    "ts > TIMESTAMP '2020-01-02 00:00:00'": F("ts") > dt.datetime(2020, 1, 2),  # noqa: DTZ001
    "ts > TIMESTAMP(9) '1970-01-01 00:00:00.000000001'": F("ts") > pa.scalar(1, pa.timestamp("ns")),
    "du > INTERVAL '1.000000000 seconds'": F("du") > pa.scalar(1, pa.duration("s")),
    "t = TIME '00:00:01'": F("t") == pa.scalar(1, pa.time32("s")),
    "TRUE": pc.scalar(True),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expression"), MEANINGS.items(), ids=lambda value: str(value)[:40]
)
def test_an_expression_of_pyarrow_is_this_filter(text, expression):
    assert str(from_arrow(expression)) == text
    parse(text)


def test_long_lists_pass_whole():
    found = from_arrow(F("a").isin(list(range(100_000))))
    assert len(found.operand.values) == 100_000


@pytest.mark.parametrize("expression", [pc.field(0) > 1, pc.struct_field(F("a"), [0]) == 1])
def test_columns_are_given_by_name(expression):
    with pytest.raises((ExpressionError, UnsupportedError)):
        from_arrow(expression)


def test_functions_without_a_counterpart_are_named():
    with pytest.raises(UnsupportedError, match="binary_join_element_wise"):
        from_arrow(pc.binary_join_element_wise(F("a"), F("b"), "-") == "x")


SCHEMA = pa.schema([("a", pa.int32()), ("f", pa.float64()), ("s", pa.string()), ("v", pa.list_(pa.float32(), 2))])  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["a > 1", "not (a <= 1)", "f > 1.5", "f >= 2", "f <= 1.5", "f <> 2", "s = 'x' or a is null",
     "a in (1, 2) and f is not null", "a not in (1, 2)", "s >= 'b'", "true"],
)  # fmt: skip
def test_a_filter_for_pyarrow_keeps_the_same_rows(text):
    nan = float("nan")
    table = pa.table(
        [
            [1, 2, None, 4, 2],
            [nan, 1.5, 2.0, None, -0.0],
            ["x", None, "b", "a", "z"],
            [[0.0, 1.0]] * 5,
        ],
        schema=SCHEMA,
    )
    bound = compile_filter(text, SCHEMA)
    translated = to_arrow(bound)
    kept = evaluate_filter(bound, table.to_batches()[0])
    table = table.append_column("row", pa.array(range(5)))
    assert table.filter(translated)["row"].to_pylist() == table.filter(kept)["row"].to_pylist()


@pytest.mark.parametrize("text", ["a + 1 > 2", "lower(s) = 'x'", "f = 'NaN'", "a in (1, null)"])
def test_filters_with_another_meaning_in_pyarrow_are_not_translated(text):
    assert to_arrow(compile_filter(text, SCHEMA)) is None
