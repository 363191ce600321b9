"""Queries over Lance tables return what Spark returns over the same rows in Parquet."""

import contextlib
import datetime as dt
import decimal
import io
import re
import sys
from collections import Counter
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.functions import col

import lancelet
from lancelet import spark as ls
from lancelet.errors import DatasetNotFoundError
from lancelet.spark.sql import query, reading
from lancelet.spark.sql.query import plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, StatementError

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "benchmarks")]
import tpcds  # noqa: E402 - beside this file
import tpch  # noqa: E402 - beside the benchmarks
import written_queries  # noqa: E402 - beside this file
from random_queries import SETTINGS, Queries, rows  # noqa: E402 - beside this file

SCALE = 0.0004


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The tables of TPC-H, and what they are called as Lance and as Parquet."""
    folder = tmp_path_factory.mktemp("tpch")
    names = {}
    for name, table in tpch.tables(SCALE):
        half = max(1, table.num_rows // 2)
        lancelet.write_dataset(table, f"{folder}/{name}.lance", max_rows_per_file=half + 1)
        pq.write_table(table, f"{folder}/{name}.parquet")
        spark.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(f"tpch_{name}")
        names[name] = f"lance.`{folder}/{name}.lance`"
    return names


FEW = (1, 2, 4, 13, 16, 18, 21, 22)
"""Queries with every construct of the others: joins, subqueries, outer joins, sets, views."""


@pytest.mark.parametrize(
    "number",
    [each if each in FEW else pytest.param(each, marks=pytest.mark.slow) for each in tpch.QUERIES],
)
def test_tpch(spark, warehouse, number):
    text = tpch.QUERIES[number]
    ours = ls.sql(spark, text.format(**warehouse))
    theirs = spark.sql(text.format(**{name: f"tpch_{name}" for name in warehouse}))
    assert ours.schema == theirs.schema
    assert ours.collect() == theirs.collect()


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    """The tables of TPC-DS, and what they are called in a namespace and as Parquet."""
    folder = tmp_path_factory.mktemp("tpcds")
    names = []
    for name, table in tpcds.tables():
        half = table.num_rows // 2 + 1
        lancelet.write_dataset(table, f"{folder}/{name}.lance", max_rows_per_file=half)
        pq.write_table(table, f"{folder}/{name}.parquet")
        spark.read.parquet(f"{folder}/{name}.parquet").createOrReplaceTempView(name)
        names.append(name)
    ls.catalog(spark, "tpcds", "dir", root=str(folder))
    yield {name: f"tpcds.{name}" for name in names}
    ls.detach(spark, "tpcds")


FEW = {5, 51, 87}


@pytest.mark.parametrize(
    "number",
    [each if each in FEW else pytest.param(each, marks=pytest.mark.slow) for each in tpcds.QUERIES],
)
def test_tpcds(spark, lake, number):
    text = tpcds.QUERIES[number]
    ours = ls.sql(spark, text.format(**lake))
    theirs = spark.sql(text.format(**{name: name for name in lake}))
    assert ours.schema == theirs.schema
    assert compared(ours) == compared(theirs)


@pytest.fixture(scope="module")
def pair(spark, tmp_path_factory):
    """Two tables of random rows: their names as Lance, and as Parquet."""
    # What Spark hands down to Parquet loses rows with NaN, so it evaluates conditions by itself.
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    folder = tmp_path_factory.mktemp("random")
    names = []
    for number, count in enumerate((90, 40)):
        table = rows(number, count)
        lance.write_dataset(table, f"{folder}/{number}.lance", max_rows_per_file=50)
        pq.write_table(table, f"{folder}/{number}.parquet")
        spark.read.parquet(f"{folder}/{number}.parquet").createOrReplaceTempView(f"random_{number}")
        names.append((f"lance.`{folder}/{number}.lance`", f"random_{number}"))
    yield [list(each) for each in zip(*names, strict=True)]
    spark.conf.unset("spark.sql.parquet.filterPushdown")


@pytest.fixture
def settings(spark):
    """Set settings, which are as before when the test is over."""
    before = {name: spark.conf.get(name) for name in SETTINGS}
    yield lambda values: [spark.conf.set(name, value) for name, value in values.items()]
    for name, value in before.items():
        spark.conf.set(name, value)


def compared(frame):
    """Return rows whatever their order, with NaN equal to itself."""
    return Counter(str(row) for row in frame.collect())


def check_random(spark, pair, settings, seed):
    ours, theirs = (Queries(seed, *names) for names in pair)
    settings(ours.settings())
    theirs.settings()
    text, plain = ours.query(), theirs.query()
    try:
        frame = spark.sql(plain)
        expected = compared(frame)
    except (PySparkException, Py4JJavaError):
        return False  # refused, or an error of Spark's own
    found = ls.sql(spark, text)
    assert compared(found) == expected, plain
    assert found.columns == frame.columns, plain
    assert [each.dataType for each in found.schema] == [each.dataType for each in frame.schema]
    return True


def test_random_queries_match_spark(spark, pair, settings):
    done = [check_random(spark, pair, settings, seed) for seed in range(10)]
    assert sum(done) > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 100))
def test_many_random_queries_match_spark(spark, pair, settings, first):
    for seed in range(first, first + 100):
        check_random(spark, pair, settings, seed)


def check_written(spark, pair, queries):
    for each in queries.strip().splitlines():
        text, plain = (each.replace("ONE", one).replace("TWO", two) for one, two in pair)
        try:
            frame = spark.sql(plain)
            expected = compared(frame)
        except PySparkException:
            with pytest.raises(PySparkException):
                ls.sql(spark, text).collect()
            continue
        found = ls.sql(spark, text)
        assert compared(found) == expected, each
        assert found.columns == frame.columns, each


def test_queries_that_were_read_wrongly(spark, pair, settings):
    settings({"spark.sql.ansi.enabled": "false"})
    check_written(spark, pair, written_queries.ONCE_WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_written_queries_match_spark(spark, pair, settings, ansi):
    zone = "UTC" if ansi == "true" else "America/New_York"
    settings({"spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": zone})
    check_written(spark, pair, written_queries.ALL)


@pytest.mark.slow
def test_words_of_the_grammar_are_names_too(spark, tmp_path):
    words = [row[0].lower() for row in spark.sql("SELECT keyword FROM sql_keywords()").collect()]
    count = 0
    for first in range(0, len(words), 20):
        few = words[first : first + 20]
        table = pa.table({**{word: [1, 2, None, 2] for word in few}, "zz": [1, 2, 3, 4]})
        uri = str(tmp_path / f"{first}.lance")
        lancelet.write_dataset(table, uri)
        pq.write_table(table, tmp_path / f"{first}.parquet")
        spark.read.parquet(str(tmp_path / f"{first}.parquet")).createOrReplaceTempView("words")
        for word in few:
            for text in (
                f"SELECT {word}, max(zz) k FROM T WHERE {word} = 2 GROUP BY {word} ORDER BY {word}",
                f"SELECT {word}.zz, {word} FROM T AS {word} WHERE {word}.{word} = 2",
            ):
                try:
                    expected = compared(spark.sql(text.replace("FROM T", "FROM words")))
                except PySparkException:
                    continue
                count += 1
                assert (
                    compared(ls.sql(spark, text.replace("FROM T", f"FROM lance.`{uri}`")))
                    == expected
                )
    assert count > 800


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Four versions of a table, with a tag and a branch."""
    uri = str(tmp_path_factory.mktemp("sql") / "t.lance")
    rows = pa.table({"id": range(10), "name": [f"n{i}" for i in range(10)], "x": [0.5] * 10})
    dataset = lance.write_dataset(rows, uri, max_rows_per_file=4)
    dataset.tags.create("loaded", 1)
    branch = dataset.create_branch("dev", 1)
    lance.write_dataset(rows.slice(0, 1), branch, mode="append")
    lance.write_dataset(rows.slice(0, 5), uri, mode="append")
    lance.dataset(uri).delete("id = 9")
    return uri


def one(frame):
    return frame.collect()[0][0]


def test_versions_are_named_in_the_text(spark, table):
    t = f"lance.`{table}`"
    assert one(ls.sql(spark, f"SELECT count(*) FROM {t}")) == 14
    assert one(ls.sql(spark, f"SELECT count(*) FROM {t} VERSION AS OF 2")) == 15
    assert one(ls.sql(spark, f"SELECT count(*) FROM {t} FOR VERSION AS OF 'loaded' AS v")) == 10
    assert one(ls.sql(spark, f"SELECT count(*) FROM {t}@dev d WHERE d.id = 0")) == 2
    early = lance.dataset(table).versions()[0]["timestamp"].astimezone(dt.UTC)
    moment = (early + dt.timedelta(microseconds=1)).strftime("%Y-%m-%d %H:%M:%S.%f+00:00")
    assert one(ls.sql(spark, f"SELECT count(*) FROM {t} TIMESTAMP AS OF '{moment}'")) == 10
    text = f"SELECT count(*) FROM {t} VERSION AS OF 1 a JOIN {t} b ON a.id = b.id"
    assert one(ls.sql(spark, text)) == 14


def test_columns_of_rows_are_read_when_they_are_named(spark, table):
    t = f"lance.`{table}`"
    text = f"SELECT *, _rowaddr FROM {t} WHERE id = 5"
    frame = ls.sql(spark, text)
    assert frame.columns == ["id", "name", "x", "_rowaddr"]
    assert frame.collect()[0][3] == (1 << 32) + 1
    assert ls.sql(spark, f"SELECT * FROM {t} WHERE _rowid = 2").columns == ["id", "name", "x"]
    assert one(ls.sql(spark, f"SELECT max(_rowid) FROM {t}")) == (3 << 32) + 4
    with pytest.raises(StatementError, match=r"several `\*`"):
        ls.sql(spark, f"SELECT *, _rowid FROM {t} JOIN (SELECT * FROM {t})")


def test_values_and_frames_are_parameters(spark, table):
    few = spark.createDataFrame([(3,), (4,)], "id long")
    join = f"lance.`{table}` t JOIN {{few}} USING (id)"
    text = f"SELECT t.name, '{{x}}{{few}}' FROM {join} WHERE id >= :low"
    found = ls.sql(spark, text, low=4, few=few).collect()
    assert [tuple(row) for row in found] == [("n4", "{x}{few}")] * 2


def test_statements_without_lance_tables_are_passed_to_spark(spark):
    assert one(ls.sql(spark, "SELECT '{' || :x || '}' /* lance.`/none` */", x="lance.`x`")) == (
        "{lance.`x`}"
    )
    assert one(ls.sql(spark, "VALUES (1); ")) == 1
    with pytest.raises(PySparkException):
        ls.sql(spark, "SELEC 1")


def test_queries_that_the_parser_does_not_know_run_all_the_same(spark, table):
    t = f"lance.`{table}`"
    assert one(ls.sql(spark, f"FROM {t} |> WHERE id = 3 |> SELECT name")) == "n3"
    assert one(ls.sql(spark, f"SELECT IDENTIFIER('na' || 'me') FROM {t} WHERE id = 3")) == "n3"
    text = f"SELECT * FROM (SELECT id, x FROM {t} WHERE id < 2) PIVOT (sum(x) FOR id IN (0, 1))"
    assert [tuple(row) for row in ls.sql(spark, text).collect()] == [(1.0, 1.0)]
    text = f"SELECT max(`(na)?(me)?`) FROM {t}"
    spark.conf.set("spark.sql.parser.quotedRegexColumnNames", "true")
    try:
        assert one(ls.sql(spark, text)) == "n8"
    finally:
        spark.conf.unset("spark.sql.parser.quotedRegexColumnNames")
    for name in ("spark.sql.ansi.doubleQuotedIdentifiers", "spark.sql.ansi.enabled"):
        spark.conf.set(name, "true")
    try:
        assert one(ls.sql(spark, f"""SELECT max("name") FROM {t} WHERE "name" < 'n4'""")) == "n3"
    finally:
        spark.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")
        spark.conf.unset("spark.sql.ansi.enabled")


def test_times_use_the_time_zone_of_the_session(spark, tmp_path):
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    table = pa.table({"at": pa.array([noon], pa.timestamp("us", "UTC"))})
    lancelet.write_dataset(table, tmp_path / "times")
    t = f"lance.`{tmp_path / 'times'}`"
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        # Without a zone the zone of the text is left out: midnight, and not 17 hours later.
        text = f"SELECT count(*) FROM {t} WHERE at > CAST('2024-01-01 00:00:00-17:00' AS TIMESTAMP)"
        assert one(ls.sql(spark, text)) == 1
        text = f"SELECT count(*) FROM {t} WHERE at > TIMESTAMP '2024-01-01 00:00:00-17:00'"
        assert one(ls.sql(spark, text)) == 0
    finally:
        spark.conf.unset("spark.sql.timestampType")
        spark.conf.unset("spark.sql.session.timeZone")


def test_names_of_an_attached_namespace(spark, tmp_path):
    root = str(tmp_path / "lake")
    ls.catalog(spark, "Lake", "dir", root=root)
    names = ls.sql  # noqa: F841 - the session keeps the namespace
    from lance_namespace import CreateNamespaceRequest

    from lancelet.namespace import DirectoryNamespace

    client = DirectoryNamespace(root=root)
    client.create_namespace(CreateNamespaceRequest(id=["db"]))
    for name in ("orders", "people"):
        lancelet.write_dataset(
            pa.table({"id": [1, 2], "s": [{"a": 1}, {"a": 2}]}),
            namespace_client=client,
            table_id=["db", name],
        )
    text = """SELECT lake.db.orders.id, db.people.s.a, orders.s.a
              FROM lake.db.orders, LAKE.db.people
              WHERE lake.db.orders.id = people.id AND people.id > 1"""
    assert [tuple(row) for row in ls.sql(spark, text).collect()] == [(2, 2, 2)]
    with pytest.raises(StatementError, match=r"did you mean orders\?\n.*line 1, column 15"):
        ls.sql(spark, "SELECT * FROM lake.db.order")
    ls.detach(spark, "lake")
    with pytest.raises(AnalysisException):
        ls.sql(spark, "SELECT * FROM lake.db.orders").collect()


def test_errors_point_at_the_place_before_anything_runs(spark, table, tmp_path):
    with pytest.raises(AnalysisException) as caught:
        ls.sql(spark, f"SELECT id,\n       nme FROM lance.`{table}`")
    assert "line 2, column 8" in caught.value.__notes__[0]
    assert "`name`" in str(caught.value), "columns that were not read are suggested too"
    with pytest.raises(AnalysisException, match="AMBIGUOUS") as caught:
        ls.sql(spark, f"SELECT a.id FROM lance.`{table}` a JOIN lance.`{table}` b\nON id = b.id")
    assert "line 2, column 4" in caught.value.__notes__[0]
    with pytest.raises(ParseException) as caught:
        ls.sql(spark, f"SELECT id\nFRM lance.`{table}`@dev WHERE id > :low", low=4)
    assert caught.value.__notes__ == [
        f"line 2, column 5:\nFRM lance.`{table}`@dev WHERE id > :low\n    ^"
    ]
    with pytest.raises(DatasetNotFoundError) as missing:
        ls.sql(spark, f"SELECT id FROM lance.`{tmp_path}/none`")
    assert "line 1, column 16" in missing.value.__notes__[0]
    with pytest.raises(StatementError, match="constant"):
        ls.sql(spark, f"SELECT id FROM lance.`{table}` VERSION AS OF :v", v=1)


def test_a_statement_reads_one_version_of_a_table(spark, table):
    text = f"SELECT 1 FROM lance.`{table}` a, lance.`{table}` b WHERE a.id = 1 AND b.id = 1"
    plan = plan_query(Session(spark), Source(text))
    one, two = plan.reads
    assert one.opened is two.opened
    assert one.use == two.use
    assert one.use.filter == "`id` = 1"
    assert one.use.columns == ("id",)


def test_extremes_come_from_statistics_of_files(spark, tmp_path, monkeypatch):
    count = 9000
    rows = pa.table(
        {
            "id": range(count),
            "name": [None if i % 7 == 0 else f"n{i:05}" for i in range(count)],
            "day": pa.array([i % 100 for i in range(count)], pa.date32()),
            "x": [float("nan") if i % 2 else i / 2 for i in range(count)],
        }
    )
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(rows, uri)
    lancelet.write_dataset(rows, uri, mode="append")
    asked = []
    plan_tasks = reading.plan_tasks

    def planned(snapshot, wanted, names):
        asked.append(wanted.fragments)
        return plan_tasks(snapshot, wanted, names)

    monkeypatch.setattr(reading, "plan_tasks", planned)
    text = "SELECT count(*), count(name), min(id), max(id), min(name), max(day) FROM lance.`{}`"
    first = ls.sql(spark, text.format(uri)).collect()[0]
    day = dt.date(1970, 4, 10)
    assert tuple(first) == (2 * count, 2 * (count - 1286), 0, count - 1, "n00001", day)
    assert asked == []
    lancelet.dataset(uri).delete("id = 8999 AND _rowaddr < 10000")
    again = ls.sql(spark, text.format(uri)).collect()[0]
    assert tuple(again) == (2 * count - 1, 2 * (count - 1286) - 1, 0, count - 1, "n00001", day)
    assert asked == [(0,)]
    x = f"SELECT min(x), max(x), count(x) FROM lance.`{uri}`"
    assert str(ls.sql(spark, x).collect()[0][:]) == str((0.0, float("nan"), 2 * count - 1))
    filtered = f"SELECT min(id), max(name) FROM lance.`{uri}` WHERE day = DATE '1970-01-03'"
    assert tuple(ls.sql(spark, filtered).collect()[0]) == (2, "n08902")


def test_values_computed_by_the_driver_are_unchanged(spark, tmp_path, monkeypatch):
    """Spark has nothing to add where one row of each group is known."""
    uri = str(tmp_path / "t.lance")
    price = pa.array([decimal.Decimal(i) / 4 for i in range(12)], pa.decimal128(9, 2))
    keys = pa.array([i % 3 for i in range(12)], pa.int32())
    rows = pa.table({"k": keys, "big": [1 << 61] * 12, "price": price})
    lancelet.write_dataset(rows, uri, max_rows_per_file=5)
    expected = {
        "SELECT count(*) + 1 AS c, sum(price), avg(k) FROM T WHERE k < 2": [
            (9, decimal.Decimal("10.00"), 0.5)
        ],
        "SELECT k, max(price) FROM T GROUP BY k ORDER BY sum(k), max(price) DESC LIMIT 2": [
            (0, decimal.Decimal("2.25")),
            (1, decimal.Decimal("2.50")),
        ],
        "SELECT c FROM (SELECT k, count(*) AS c FROM T GROUP BY 1) WHERE k = 1": [(4,)],
    }
    for template, found in expected.items():
        text = template.replace("FROM T", f"FROM lance.`{uri}`")
        assert "HashAggregate" not in ls.sql(spark, f"EXPLAIN {text}").collect()[0][0]
        assert ls.sql(spark, text).collect() == found
    text = f"SELECT k, sum(price) FROM lance.`{uri}` GROUP BY k"
    with monkeypatch.context() as patch:
        patch.setattr(reading, "LOCAL_ROWS", 2)
        plan = ls.sql(spark, f"EXPLAIN {text}").collect()[0][0]
    assert "MapInArrow" in plan
    assert "HashAggregate" in plan
    too_large = f"SELECT sum(big) FROM lance.`{uri}`"
    with pytest.raises(PySparkException, match="overflow"):
        ls.sql(spark, too_large).collect()


def test_many_groups_are_not_taken_for_few(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "FILTERED_BYTES", 0)
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(pa.table({"k": range(400_000), "n": [1] * 400_000}), uri)
    groups = f"SELECT k, sum(n) AS n FROM lance.`{uri}` GROUP BY k"
    text = f"EXPLAIN SELECT * FROM range(900000) r JOIN ({groups}) g ON r.id = g.k"
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "1000000")
    try:
        plan = ls.sql(spark, text).collect()[0][0]
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    assert "BroadcastHashJoin" not in plan


def test_spark_knows_how_wide_rows_are(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "SMALL_BYTES", 0)
    uri = str(tmp_path / "t.lance")
    rows, width = 20_000, 160
    pixels = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * rows * width, pa.float32()), width)
    lancelet.write_dataset(pa.table({"k": range(rows), "v": pixels}), uri)
    size = rows * width * 4

    def estimate(columns):
        text = f"SELECT {columns} FROM lance.`{uri}`"
        plan = ls.sql(spark, f"EXPLAIN COST {text}").collect()[0][0]
        found = re.search(r"MapInArrow.*sizeInBytes=([0-9.]+) ([KM])iB", plan)
        return float(found[1]) * {"K": 1 << 10, "M": 1 << 20}[found[2]]

    assert 0.8 * size < estimate("v") < 1.2 * size
    assert estimate("k") < 8 * rows * 2
    joined = ls.scan(spark, uri).join(spark.range(rows * 2), col("k") == col("id"), "right")
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        joined.explain()
    assert "BroadcastHashJoin" not in shown.getvalue()


def test_keys_that_are_left_of_a_table_filter_the_other(spark, tmp_path, monkeypatch):
    one, two = str(tmp_path / "one.lance"), str(tmp_path / "two.lance")
    lancelet.write_dataset(pa.table({"k": range(100), "s": [f"s{i}" for i in range(100)]}), one)
    count = 20_000
    rows = pa.table({"k": [i % 100 for i in range(count)], "v": range(count), "g": [1.5] * count})
    lancelet.write_dataset(rows, two)
    filters = []
    frame_of = query.frame_of

    def framed(spark, opened, use):
        filters.append(use.filter)
        return frame_of(spark, opened, use)

    monkeypatch.setattr(query, "frame_of", framed)

    def run(text):
        filters.clear()
        return sorted(
            map(tuple, ls.sql(spark, text.format(f"lance.`{one}`", f"lance.`{two}`")).collect())
        )

    some = [(v,) for v in range(count) if v % 100 in {7, 30}]
    text = "SELECT v FROM {0} a JOIN {1} b ON a.k = b.k WHERE a.s IN ('s7', 's30')"
    assert run(text) == some
    assert filters == ["`s` IN ('s7', 's30')", "`k` IN (7, 30)"]
    assert run("SELECT v FROM {1} b, {0} a WHERE b.v < 10 AND a.k = b.k AND s = 'none'") == []
    assert filters[1] == "(`v` < 10) AND (false)"
    # What stands on the side that a join keeps whole is not left out.
    kept = run("SELECT v, s FROM {1} b LEFT JOIN {0} a ON a.k = b.k AND s = 's7' WHERE v < 9")
    assert kept == [(v, "s7" if v == 7 else None) for v in range(9)]
    assert filters[1] == "`v` < 9"
    assert len(run("SELECT v FROM {1} b ANTI JOIN {0} a ON a.k = b.k AND s = 's7'")) == count - 200
    assert filters[1] is None
    assert run("SELECT v FROM {1} b SEMI JOIN {0} a ON a.k = b.k AND s = 's7'") == some[::2]
    assert filters[1] == "`k` IN (7)"
    # Many keys are no filter.
    assert len(run("SELECT v FROM {1} b JOIN {0} a ON a.k = b.k AND a.k < 50")) == count // 2
    assert filters[1] is None
