"""Columns with a collation: Spark compares them as it does those of its own tables.

Each query runs on a Lance table and on a view of the same rows and types.
"""

import pytest
from pyspark.errors import AnalysisException

import lancelet
from lancelet import spark as ls
from lancelet.spark.sql import reading
from lancelet.spark.sql.source import StatementError

COLUMNS = (
    "id BIGINT, s STRING COLLATE UTF8_LCASE, u STRING COLLATE UNICODE_CI, plain STRING, "
    "items ARRAY<STRING COLLATE UTF8_LCASE>, "
    "nested STRUCT<name: STRING COLLATE UTF8_LCASE, n: INT>, "
    "pairs MAP<STRING, STRING COLLATE UTF8_LCASE>"
)
TEXTS = ["xy", "xY", "XY", "ab", "AB", None, "Ab", "zz", "Éa", "éA"]
ROWS = [
    (
        number,
        text,
        text,
        text,
        [text, "Q"],
        (text, number),
        {"k": text},
    )
    for number, text in enumerate(TEXTS * 3)
]
QUERIES = [
    "SELECT id FROM {t} WHERE s = 'xY'",
    "SELECT id FROM {t} WHERE s <> 'AB'",
    "SELECT id FROM {t} WHERE NOT (s = 'AB')",
    "SELECT id FROM {t} WHERE s IN ('Xy', 'zZ')",
    "SELECT id FROM {t} WHERE s < 'B'",
    "SELECT id FROM {t} WHERE s BETWEEN 'A' AND 'AC'",
    "SELECT id FROM {t} WHERE s <=> 'xY' OR id = 5",
    "SELECT id FROM {t} WHERE s = u COLLATE UTF8_LCASE",
    "SELECT id FROM {t} WHERE s LIKE 'X%'",
    "SELECT id FROM {t} WHERE startswith(s, 'X')",
    "SELECT id FROM {t} WHERE s IS NULL OR s = 'ZZ'",
    "SELECT id FROM {t} WHERE u = 'ÉA'",
    "SELECT id FROM {t} WHERE plain = 'xY'",
    "SELECT id FROM {t} WHERE plain = 'xY' COLLATE UTF8_LCASE",
    "SELECT id FROM {t} WHERE nested.name = 'XY'",
    "SELECT id FROM {t} WHERE array_contains(items, 'Ab')",
    "SELECT id FROM {t} WHERE pairs['k'] = 'ab'",
    "SELECT count(DISTINCT s), count(s), count(*) FROM {t}",
    "SELECT count(*) FROM {t} WHERE s = 'XY'",
    "SELECT lower(s) AS s, count(*) FROM (SELECT s FROM {t}) GROUP BY s",
    "SELECT lower(s), count(*), count(DISTINCT u) FROM {t} GROUP BY s",
    "SELECT count(*) FROM (SELECT DISTINCT s FROM {t})",
    "SELECT lower(min(s)), lower(max(s)) FROM {t}",
    "SELECT lower(s) FROM {t} WHERE s IS NOT NULL ORDER BY s LIMIT 7",
    "SELECT a.id, b.id FROM {t} a JOIN {t} b ON a.s = b.s WHERE b.plain = 'zz'",
    "SELECT a.id FROM {t} a LEFT SEMI JOIN (SELECT s FROM {t} WHERE id = 1) b ON a.s = b.s",
    "SELECT id FROM {t} WHERE s IN (SELECT s FROM {t} WHERE id = 2)",
    "SELECT nested.name, count(*) > 0 FROM {t} WHERE id < 3 GROUP BY nested.name HAVING true",
]


@pytest.fixture
def path(spark, tmp_path):
    """A Lance table; the view `collated` has the same rows."""
    path = str(tmp_path / "t.lance")
    ls.sql(spark, f"CREATE TABLE lance.`{path}` ({COLUMNS})")
    frame = spark.createDataFrame(ROWS, spark.createDataFrame([], COLUMNS).schema)
    frame.write.format("lance").mode("append").save(path)
    frame.createOrReplaceTempView("collated")
    return path


def rows(frame):
    return sorted(map(repr, frame.collect()))


def types_of(frame):
    return [each.dataType.simpleString() for each in frame.schema]


def texts_of(path):
    return sorted(filter(None, lancelet.dataset(path).to_table()["s"].to_pylist()))


def test_collations_are_those_of_the_columns_on_every_way(spark, path, tmp_path):
    frame = spark.table("collated")
    other = str(tmp_path / "other.lance")
    ls.write(frame, other)
    ways = [
        ls.sql(spark, f"SELECT * FROM lance.`{path}`"),
        ls.sql(spark, f"SELECT * FROM lance.`{other}`"),
        ls.scan(spark, path),
        spark.read.format("lance").load(path),
        spark.readStream.format("lance").load(path),
    ]
    for way in ways:
        assert types_of(way) == types_of(frame)
    assert rows(ways[1]) == rows(frame)
    assert rows(ways[3].where("s = 'xY'")) == rows(frame.where("s = 'xY'"))
    assert rows(ways[2].where("nested.name = 'XY'")) == rows(frame.where("nested.name = 'XY'"))
    made = str(tmp_path / "made.lance")
    ls.sql(spark, f"CREATE TABLE lance.`{made}` AS SELECT * FROM lance.`{path}` WHERE s = 'AB'")
    assert types_of(ls.scan(spark, made)) == types_of(frame)
    assert ls.scan(spark, made).count() == 9


@pytest.mark.parametrize(
    "reads", ["by the driver", pytest.param("in tasks", marks=pytest.mark.slow)]
)
def test_queries_find_the_rows_that_spark_finds(spark, path, reads, monkeypatch):
    if reads == "in tasks":
        monkeypatch.setattr(reading, "SMALL_BYTES", 0)
        monkeypatch.setattr(reading, "FILTERED_BYTES", 0)
    for query in QUERIES:
        ours, theirs = query.format(t=f"lance.`{path}`"), query.format(t="collated")
        try:
            expected = rows(spark.sql(theirs))
        except AnalysisException:  # Spark 4.1 does not analyze BETWEEN on a collated column
            with pytest.raises(AnalysisException):
                rows(ls.sql(spark, ours))
            continue
        assert rows(ls.sql(spark, ours)) == expected, query


def test_changes_are_made_to_the_rows_that_spark_finds(spark, path):
    table = f"lance.`{path}`"
    ls.sql(spark, f"DELETE FROM {table} WHERE s = 'xY'")
    assert texts_of(path) == sorted(["ab", "AB", "Ab", "zz", "Éa", "éA"] * 3)
    ls.sql(spark, f"UPDATE {table} SET s = 'new' WHERE s IN ('AB')")
    assert texts_of(path) == sorted(["new"] * 9 + ["zz", "Éa", "éA"] * 3)
    ls.sql(spark, f"DELETE FROM {table} WHERE nested.name = 'ZZ'")
    assert texts_of(path) == sorted(["new"] * 9 + ["Éa", "éA"] * 3)
    assert types_of(ls.scan(spark, path)) == types_of(spark.table("collated"))


def test_merges_match_the_rows_that_spark_matches(spark, tmp_path):
    path = str(tmp_path / "m.lance")
    table = f"lance.`{path}`"
    ls.sql(spark, f"CREATE TABLE {table} (s STRING COLLATE UTF8_LCASE, n INT)")
    ls.sql(spark, f"INSERT INTO {table} VALUES ('a', 1), ('B', 2), ('c', 3)")
    values = "VALUES ('b', 20), ('D', 40) AS v (s, n)"
    brought = spark.sql(f"SELECT CAST(s AS STRING COLLATE UTF8_LCASE) AS s, n FROM {values}")
    brought.createOrReplaceTempView("brought")
    merge = "WHEN MATCHED THEN UPDATE SET n = b.n WHEN NOT MATCHED THEN INSERT *"
    ls.sql(spark, f"MERGE INTO {table} AS t USING brought AS b ON t.s = b.s {merge}")
    found = {(row.s, row.n) for row in ls.scan(spark, path).collect()}
    assert found == {("a", 1), ("B", 20), ("c", 3), ("D", 40)}
    done = ls.merge(spark.sql("SELECT s, n + 1 AS n FROM brought"), path, on="s")
    done.when_matched_update().when_not_matched_insert().execute()
    found = {(row.s, row.n) for row in ls.scan(spark, path).collect()}
    assert found == {("a", 1), ("b", 21), ("c", 3), ("D", 41)}
    ls.sql(
        spark,
        f"MERGE INTO {table} AS t USING brought AS b ON t.s = b.s WHEN MATCHED THEN DELETE",
    )
    assert ls.scan(spark, path).count() == 2


def test_collated_columns_are_added_and_their_types_stay(spark, path):
    table = f"lance.`{path}`"
    ls.sql(spark, f"ALTER TABLE {table} ADD COLUMNS (more STRING COLLATE UNICODE_CI)")
    assert types_of(ls.scan(spark, path))[-1] == "string collate UNICODE_CI"
    for change in ("s TYPE STRING", "plain TYPE STRING COLLATE UTF8_LCASE"):
        with pytest.raises(StatementError, match="collation"):
            ls.sql(spark, f"ALTER TABLE {table} ALTER COLUMN {change}")


def test_streams_that_match_keys_by_bytes_refuse_collated_keys(spark, path, tmp_path):
    stream = spark.readStream.format("lance").load(path)
    writer = stream.writeStream.format("lance").option("path", str(tmp_path / "out.lance"))
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).option("upsert_on", "s")
    with pytest.raises(Exception, match="has a collation"):
        writer.trigger(availableNow=True).start().awaitTermination()
