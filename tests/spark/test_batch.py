"""Reading and writing whole tables through `format("lance")`."""

import time

import lance
import pyarrow as pa
import pytest

import lancelet


@pytest.fixture
def uri(tmp_path):
    return str(tmp_path / "t.lance")


def save(frame, uri, mode="append", **options):
    frame.write.format("lance").mode(mode).options(**options).save(uri)


def load(spark, uri, **options):
    return spark.read.format("lance").options(**options).load(uri)


def test_rows_that_spark_wrote_are_read_by_everybody(spark, uri):
    frame = spark.range(1000).selectExpr("id", "concat('row ', id) name")
    save(frame, uri)
    expected = [{"id": i, "name": f"row {i}"} for i in range(1000)]
    assert lance.dataset(uri).to_table().sort_by("id").to_pylist() == expected
    assert lancelet.dataset(uri).to_table().sort_by("id").to_pylist() == expected
    assert [row.asDict() for row in load(spark, uri).orderBy("id").collect()] == expected


def test_spark_reads_what_the_reference_wrote(spark, uri):
    rows = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"]})
    lance.write_dataset(rows, uri)
    lance.dataset(uri).delete("id = 1")
    assert load(spark, uri).orderBy("id").collect() == [(2, None), (3, "c")]


def test_views_take_rows_by_sql_and_give_them_back(spark, uri):
    save(spark.range(3).selectExpr("id", "if(id >= 0, 'a', null) as name"), uri)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING lance OPTIONS (path '{uri}')")
    spark.sql("INSERT INTO v VALUES (10, 'b'), (11, NULL)")
    spark.sql("INSERT INTO v (name, id) VALUES ('c', 12)")
    assert lance.dataset(uri).count_rows() == 6
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING lance OPTIONS (path '{uri}')")
    assert spark.sql("SELECT id FROM v WHERE name = 'c'").collect() == [(12,)]
    assert spark.sql("SELECT count(*) FROM v").collect() == [(6,)]
    spark.sql("INSERT OVERWRITE v SELECT id, name FROM v WHERE id > 10")
    found = lance.dataset(uri).to_table().sort_by("id").to_pydict()
    assert found == {"id": [11, 12], "name": [None, "c"]}


def test_a_catalog_table_requires_a_path(spark):
    with pytest.raises(Exception, match="missing path of a table"):
        spark.sql("CREATE TABLE no_path USING lance")


def test_every_type_of_spark_comes_back_in_any_zone(spark, uri):
    zone = spark.conf.get("spark.sql.session.timeZone")
    expressions = [
        "true as a", "1Y as b", "2S as c", "3 as d", "4L as e", "1.5F as f", "2.5D as g",
        "12.34BD as h", "'text' as i", "X'00ff' as j", "DATE '2024-02-29' as k",
        "TIMESTAMP '2024-02-29 12:00:00 Europe/Berlin' as l",
        "TIMESTAMP_NTZ '2024-02-29 12:00:00' as m", "INTERVAL '1 02:03:04' DAY TO SECOND as n",
        "array(1, null) as o", "map('k', 1.5D) as p", "named_struct('x', 1, 'y', array('z')) as q",
        "cast(null as string) as r", "parse_json('{\"a\": [1, null]}') as s",
    ]  # fmt: skip
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        frame = spark.range(1).selectExpr(*expressions)
        save(frame, uri)
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        back = load(spark, uri)
        same = [name for name in back.columns if name != "s"]
        assert back.select(same).collect() == frame.select(same).collect()
        for name in same:
            assert back.schema[name].dataType == frame.schema[name].dataType
            assert back.schema[name].nullable == frame.schema[name].nullable
        variant = spark.read.format("lance").schema("s variant").load(uri)
        assert variant.selectExpr("to_json(s)").collect() == [('{"a":[1,null]}',)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    stored = lance.dataset(uri).schema
    assert stored.field("l").type == pa.timestamp("us", "UTC")
    assert stored.field("s").type == pa.json_()
    instant = lance.dataset(uri).to_table().column("l")[0].as_py()
    assert instant.isoformat() == "2024-02-29T11:00:00+00:00"


def test_vectors_keep_their_dimension_from_table_to_table(spark, uri, tmp_path):
    frame = spark.range(4).selectExpr("id", "array(cast(id as float), 2.0F) as v")
    save(frame, uri, **{"vector.v": 2})
    copy = str(tmp_path / "copy.lance")
    save(load(spark, uri), copy)
    assert lance.dataset(copy).schema.field("v").type == pa.list_(pa.float32(), 2)
    assert lance.dataset(copy).to_table() == lance.dataset(uri).to_table()


def test_a_failed_write_leaves_no_version_and_no_finished_files(spark, uri, tmp_path):
    data = tmp_path / "t.lance" / "data"
    failures = tmp_path / "failures"

    def fail_after_others(batches):
        for batch in batches:
            if batch.column("id")[0].as_py():
                deadline = time.monotonic() + 60
                while not list(data.glob("*.lance")) and time.monotonic() < deadline:
                    time.sleep(0.1)
                # The other task has written its file; wait until it has reported it.
                time.sleep(3)
                failures.touch()
                raise ValueError("no more rows")
            yield batch

    frame = spark.range(0, 4, 1, 2).mapInArrow(fail_after_others, "id long")
    with pytest.raises(Exception, match="no more rows"):
        save(frame, uri)
    assert failures.exists()
    assert not list((tmp_path / "t.lance").glob("_versions/*"))
    assert not list(data.glob("*.lance"))


def test_errors_of_options_and_schemas_come_before_any_task(spark, uri):
    save(spark.range(3), uri)
    with pytest.raises(Exception, match="did you mean filter"):
        load(spark, uri, fitler="id = 1").collect()
    with pytest.raises(Exception, match="should have type bigint but is string"):
        save(spark.range(3).selectExpr("cast(id as string) id"), uri)
