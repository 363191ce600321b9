"""INSERT, `format("lance")` and `write` follow one set of rules for names, types and values."""

import datetime as dt
import decimal

import lance
import pytest

from lancelet import spark as ls

COLUMNS = """
id BIGINT NOT NULL, i INT, tiny TINYINT, d DOUBLE, f FLOAT, p DECIMAL(9, 2), s STRING, b BOOLEAN,
day DATE, a ARRAY<BIGINT>, n STRUCT<x: INT, y: STRING>, m MAP<STRING, BIGINT>, v ARRAY<FLOAT>
"""
STORED = [
    ("ID", "7", "id", 7),
    ("I", "CAST(8 AS BIGINT)", "i", 8),
    ("i", "1.75D", "i", 1),
    ("i", "CAST(-1.75 AS DECIMAL(5, 2))", "i", -1),
    ("Tiny", "CAST(-9 AS BIGINT)", "tiny", -9),
    ("d", "9007199254740993L", "d", 9007199254740992.0),
    ("f", "0.1D", "f", pytest.approx(0.1)),
    ("p", "CAST(1.235 AS DECIMAL(9, 3))", "p", decimal.Decimal("1.24")),
    ("P", "7", "p", decimal.Decimal("7.00")),
    ("S", "7", "s", "7"),
    ("s", "true", "s", "true"),
    ("s", "DATE '2024-02-29'", "s", "2024-02-29"),
    ("Day", "DATE '2024-02-29'", "day", dt.date(2024, 2, 29)),
    ("a", "array(1, NULL)", "a", [1, None]),
    ("n", "named_struct('Y', 'z', 'X', 1L)", "n", {"x": 1, "y": "z"}),
    ("m", "map('k', 1)", "m", [("k", 1)]),
    ("v", "array(0.5D, 2D)", "v", [0.5, 2.0]),
    ("i", "NULL", "i", None),
]
REJECTED = [
    ("i", "3000000000L", "fit"),
    ("i", "CAST('NaN' AS DOUBLE)", "fit"),
    ("tiny", "300", "fit"),
    ("p", "99999999999L", "fit"),
    ("a", "array(99999999999999999999BD)", "fit"),
    ("v", "array(1D)", "dimension"),
    ("i", "'1'", "type int"),
    ("i", "true", "type int"),
    ("b", "1", "type boolean"),
    ("day", "'2024-02-29'", "type date"),
    ("s", "X'61'", "type string"),
    ("n", "named_struct('x', 1)", "type struct"),
    ("n", "named_struct('x', 1, 'z', 'a')", "type struct"),
    ("other", "1", "other"),
]


def by_format(spark, query, uri):
    spark.sql(query).write.format("lance").mode("append").save(uri)


def by_insert(spark, query, uri):
    ls.sql(spark, f"INSERT INTO lance.`{uri}` BY NAME {query}")


def by_function(spark, query, uri):
    ls.write(spark.sql(query), uri, mode="append")


@pytest.fixture(params=[by_format, by_insert, by_function], ids=["format", "INSERT", "write"])
def write(request, spark, tmp_path):
    """Write the rows of a query to a new table in one of the ways."""
    uri = str(tmp_path / "t.lance")
    ls.sql(spark, f"CREATE TABLE lance.`{uri}` ({COLUMNS}) TBLPROPERTIES ('vector.v' = 2)")

    def run(query):
        request.param(spark, query, uri)
        return lance.dataset(uri).to_table().to_pylist()[-1]

    run.uri = uri
    run.has_session = request.param is not by_format
    return run


def test_values_are_stored_as_in_spark(write):
    """Names ignore case, and missing columns are null."""
    pending = list(STORED)
    while pending:
        chosen = {}
        for case in pending:
            chosen.setdefault(case[2], case)
        pending = [case for case in pending if case is not chosen[case[2]]]
        given = {case[0]: case[1] for case in reversed(chosen.values())}
        given |= {} if "id" in chosen else {"id": "1L"}
        row = write("SELECT " + ", ".join(f"{value} AS {name}" for name, value in given.items()))
        expected = dict.fromkeys(row) | {"id": 1} | {case[2]: case[3] for case in chosen.values()}
        assert row == expected


@pytest.mark.parametrize(("name", "value", "message"), REJECTED)
def test_values_that_do_not_fit_change_nothing(write, name, value, message):
    with pytest.raises(Exception, match=message):
        write(f"SELECT 1L AS id, {value} AS {name}")
    assert lance.dataset(write.uri).version == 1


@pytest.mark.parametrize("query", ["SELECT 1 AS i", "SELECT CAST(NULL AS BIGINT) AS id"])
def test_a_column_that_must_not_be_null_gets_a_value(write, query):
    with pytest.raises(Exception, match=r"null|NULL"):
        write(query)
    assert lance.dataset(write.uri).version == 1


def test_names_are_exact_in_a_case_sensitive_session(write, spark):
    """Spark does not pass this setting to `format("lance")`, which prefers exact names."""
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        if write.has_session:
            with pytest.raises(Exception, match="`ID`"):
                write("SELECT 1L AS ID")
        else:
            assert write("SELECT 1L AS ID")["id"] == 1
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_relative_paths_are_those_of_the_program(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ls.write(spark.range(3), "t.lance")
    ls.sql(spark, "INSERT INTO lance.`t.lance` VALUES (7)")
    assert ls.scan(spark, "t.lance").count() == 4
    assert lance.dataset(str(tmp_path / "t.lance")).count_rows() == 4
