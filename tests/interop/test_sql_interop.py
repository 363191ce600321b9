"""`LanceDataset.sql` gives what the reference gives, and a predicate has one meaning."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet

ROWS = 40
START = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001 - the time zone is the column's
TEXTS = ["abc", "a%b", "a_b", "Zoë", "", "a\\b", "ABC", r"a\%b"]


def nulls_at(remainder: int, divisor: int, values: list) -> list:
    return [None if row % divisor == remainder else value for row, value in enumerate(values)]


TABLE = pa.table(
    {
        "row": pa.array(range(ROWS), pa.int64()),
        "i": pa.array(nulls_at(3, 7, [row - 5 for row in range(ROWS)]), pa.int32()),
        "u": pa.array(range(ROWS), pa.uint64()),
        "f": pa.array(nulls_at(1, 9, [row * 0.1 for row in range(ROWS)]), pa.float32()),
        "x": pa.array(
            nulls_at(
                7, 8, [float("nan") if row % 11 == 4 else row * 0.25 - 3 for row in range(ROWS)]
            )
        ),
        "s": nulls_at(5, 6, [f"{TEXTS[row % 8]}{row % 3 or ''}" for row in range(ROWS)]),
        "b": nulls_at(2, 5, [row % 2 == 0 for row in range(ROWS)]),
        "z": pa.array(
            [START + dt.timedelta(hours=row) for row in range(ROWS)],
            pa.timestamp("us", "America/New_York"),
        ),
        "t": pa.array(
            [START + dt.timedelta(hours=7 * row) for row in range(ROWS)], pa.timestamp("ms")
        ),
        "d": [dt.date(2020, 1, 1) + dt.timedelta(days=row) for row in range(ROWS)],
        "dec": pa.array(
            nulls_at(1, 4, [Decimal(row) / 4 for row in range(ROWS)]), pa.decimal128(12, 2)
        ),
        "bin": [bytes([row, 0, 255 - row]) for row in range(ROWS)],
        "ls": pa.array(nulls_at(1, 6, [list(range(row % 4)) for row in range(ROWS)])),
        "st": pa.array(nulls_at(4, 5, [{"a": row, "b": f"v{row}"} for row in range(ROWS)])),
        "v": pa.array([[row, 1.5] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
        "h": pa.array(np.arange(ROWS, dtype=np.float16)),
        "dict": pa.array([["p", "q", None][row % 3] for row in range(ROWS)]).dictionary_encode(),
    }
)


@pytest.fixture(scope="module")
def uri(tmp_path_factory) -> str:
    uri = str(tmp_path_factory.mktemp("sql") / "t")
    lancelet.write_dataset(TABLE, uri, max_rows_per_file=16)
    return uri


def answer(dataset, statement: str) -> tuple[list[str], list]:
    """Return the names and the rows of a result; NaN as text, so that it is equal to itself."""
    batches = dataset.sql(statement).build().to_batch_records()
    rows = [repr(row) for batch in batches for row in batch.to_pylist()]
    return (batches[0].schema.names if batches else []), rows


PREDICATES = [
    "i / 2 = 1", "i % 3 = 1", "i + row > 10", "i > 2.5", "i = '3'", "i = u", "x = f",
    "i NOT IN (1, 2, 3, 4, 5, 6)", "i IN (1, NULL, 3, 4, 5, 6)", "i NOT IN (1, NULL, 3, 4, 5, 6)",
    "NOT (i IN (1, 2, 3, 4, 5) AND b)", "(i IN (1, 2, 3, 4, 5)) IS NULL", "NOT (i > 3)",
    "i IS DISTINCT FROM 3", "i IS NOT DISTINCT FROM NULL", "u - 2 < 0", "u > -1", "u > 5",
    "f = 0.1", "f > 0.3", "f <> 0.2", "f IN (0.1, 0.2, 0.3, 0.4, 0.5)", "f = 0.1::float",
    "x > 1e300", "x = 'NaN'", "x <> 0", "isnan(x)", "x NOT BETWEEN 0 AND 3", "x <= 'NaN'",
    "s LIKE 'a%'", r"s LIKE 'a\%b%'", r"s LIKE 'a\\b%'", "s ILIKE 'ABC%'", "s NOT LIKE '%b%'",
    "s LIKE '%_b_'", "s ~ '^a.*'", "s = ''", "s > 'a'", "s NOT IN ('abc', 'a%b1', 'x', 'y')",
    "s || 'x' = 'abcx'", "length(s) > 3", "starts_with(s, 'a')", "regexp_like(s, '^a')",
    "contains_tokens(s, 'abc')", "b", "NOT b", "b IS NOT TRUE", "b IS UNKNOWN", "b = (i > 3)",
    "z = '2020-01-01 12:00:00'", "z > timestamp '2020-01-02 00:00:00'",
    "extract(hour FROM z) = 12", "date_part('hour', z) = 7", "CAST(z AS VARCHAR) LIKE '%07:00%'",
    "CAST(z AS DATE) = '2020-01-02'", "t >= '2020-01-03'", "date_trunc('day', t) = '2020-01-03'",
    "d BETWEEN '2020-01-05' AND '2020-01-09'", "dec > 3.5", "dec IN (0.5, 0.75, 1, 2, 3)",
    "bin = X'0100FE'", "array_length(ls) = 2", "array_has(ls, 1)", "ls IS NULL", "ls = [0, 1]",
    "st.a > 4", "st['b'] = 'v3'", "st IS NULL", "h > 3", "dict <> 'p'",
    "dict IN ('p', 'z', 'y', 'w')",
    "coalesce(i, 0) = 0", "CASE WHEN i > 3 THEN true ELSE false END", "nullif(i, 3) IS NULL",
    "true", "false", "NULL", "1 = 1", "i > (SELECT avg(i) FROM dataset)",
]  # fmt: skip


@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_predicate_has_the_meaning_of_the_reference(uri: str, predicate: str) -> None:
    ours, theirs = lancelet.dataset(uri), lance.dataset(uri)
    plain = f"SELECT row FROM dataset WHERE {predicate}"
    assert answer(ours, plain) == answer(theirs, plain)
    assert answer(ours, f"{plain} ORDER BY row") == answer(ours, plain)
    counted = answer(ours, f"SELECT count(*) AS n FROM dataset WHERE {predicate}")
    assert counted[1] == [repr({"n": len(answer(ours, plain)[1])})]


STATEMENTS = [
    "SELECT * FROM dataset", "SELECT * FROM dataset LIMIT 3 OFFSET 35", "SELECT I FROM dataset",
    "SELECT i FROM dataset ORDER BY i DESC LIMIT 5", "SELECT i FROM dataset ORDER BY i LIMIT 5",
    "SELECT CAST(1.5 AS BIGINT), CAST(2.5 AS BIGINT), CAST(-1.5 AS INT)",
    "SELECT arrow_typeof(i), arrow_typeof(z), arrow_typeof(1.5) FROM dataset LIMIT 1",
    "SELECT initcap('hello world'), md5('a'), 7 / 2, 7 % 3, -7 / 2, 7.0 / 2",
    "SELECT approx_distinct(s), count(*), count(i), sum(i), avg(dec), min(s), max(z) FROM dataset",
    "SELECT encode(bin, 'hex') FROM dataset LIMIT 3", "SELECT to_timestamp('2020-01-01T00:00:00')",
    "SELECT first_value(i ORDER BY row DESC), array_agg(i ORDER BY row) FROM dataset",
    "SELECT s, count(*) AS c FROM dataset GROUP BY s ORDER BY c DESC, s",
    "SELECT b, sum(row) FROM dataset GROUP BY b HAVING sum(row) > 10 ORDER BY b",
    "SELECT row_number() OVER (ORDER BY row), lag(row) OVER (ORDER BY row) FROM dataset",
    "WITH c AS (SELECT row FROM dataset WHERE i > 3) SELECT count(*) FROM c",
    "SELECT a.row FROM dataset a JOIN dataset b ON a.i = b.i WHERE a.row > 10 ORDER BY a.row",
    "SELECT unnest(ls) FROM dataset ORDER BY 1", "SELECT DISTINCT dict FROM dataset ORDER BY dict",
    "SELECT v[1], ls[1], st['b'] FROM dataset",
    "SELECT row FROM dataset ORDER BY s NULLS FIRST, row",
    "SELECT substr(s, 2, 2), lpad(s, 8, '*'), position('b' in s) FROM dataset",
    "SELECT date_bin(interval '1 day', t), z AT TIME ZONE 'UTC', to_char(t, '%Y') FROM dataset",
    "SELECT grouping(b), b, count(*) FROM dataset GROUP BY ROLLUP(b) ORDER BY 1, 2",
    "SELECT string_agg(s, ',' ORDER BY row), bool_and(b), corr(row, u) FROM dataset",
]  # fmt: skip


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_gives_the_result_of_the_reference(uri: str, statement: str) -> None:
    assert answer(lancelet.dataset(uri), statement) == answer(lance.dataset(uri), statement)


ATOMS = st.sampled_from([predicate for predicate in PREDICATES if "SELECT" not in predicate])
CONDITIONS = st.recursive(
    ATOMS.map("({})".format),
    lambda inner: st.one_of(
        inner.map("(NOT {})".format),
        inner.map("({} IS NULL)".format),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(CONDITIONS)
def test_random_conditions_have_one_meaning(uri: str, condition: str) -> None:
    ours = lancelet.dataset(uri)
    expected = answer(lance.dataset(uri), f"SELECT row FROM dataset WHERE {condition}")
    assert answer(ours, f"SELECT row FROM dataset WHERE {condition}") == expected
    assert answer(ours, f"SELECT row FROM dataset WHERE {condition} ORDER BY row") == expected


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_time_zone_of_the_machine_does_not_matter(run_program, uri: str, zone: str) -> None:
    program = """
import os, sys, time
os.environ["TZ"] = sys.argv[2]
time.tzset()
import lancelet
dataset = lancelet.dataset(sys.argv[1])
for order in ("", " ORDER BY row"):
    where = "z = '2020-01-01 12:00:00' OR extract(hour FROM z) = 20"
    rows = dataset.sql(f"SELECT row FROM dataset WHERE {where}{order}").build().to_table()
    print(rows["row"].to_pylist())
"""
    expected = answer(
        lance.dataset(uri),
        "SELECT row FROM dataset WHERE z = '2020-01-01 12:00:00' OR extract(hour FROM z) = 20",
    )
    found = run_program(program, uri, zone).splitlines()
    rows = [int(text.split(": ")[1].rstrip("}")) for text in expected[1]]
    assert found == [str(rows), str(rows)]
