"""Typical programs for Delta, which run after their import and format were changed.

Each function of `PROGRAMS` is a program that a team might have, written from the documented
behavior of Delta's API; a few use what Lance does not have, and the error says what to use instead.
"""

import functools
import types

import deltalake
import lance
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import LongType, StringType, StructType
from pyspark.sql.utils import is_remote
from pyspark.sql.window import Window

import lancelet
from lancelet import spark as ls
from lancelet.spark import LanceTable as DeltaTable

FORMAT = "lance"
PROGRAMS = {"read": [], "write": [], "change": [], "merge": [], "define": [], "maintain": []}


def program(subject):
    def add(function):
        PROGRAMS[subject].append(function)
        return function

    return add


@pytest.fixture
def env(spark, tmp_path):
    """The session, `sql`, and `table()`, which returns the path of a table of five rows."""
    numbers = iter(range(1000))

    def table(rows=None):
        path = str(tmp_path / f"t{next(numbers)}.lance")
        given = rows or {"id": [1, 2, 3, 4, 5], "name": list("abcde"), "n": [10, 20, 30, 40, 50]}
        lancelet.write_dataset(pa.table(given), path)
        return path

    sql = functools.partial(ls.sql, spark)
    return types.SimpleNamespace(spark=spark, sql=sql, table=table, tmp=tmp_path)


@pytest.mark.parametrize("subject", PROGRAMS)
def test_programs_run(env, subject):
    for run in PROGRAMS[subject]:
        try:
            run(env)
        except BaseException as error:
            error.add_note(f"in the program `{run.__name__}`")
            raise


def rows(path):
    """Return the rows of a table by their id: the other columns in order."""
    found = [tuple(row.values()) for row in lance.dataset(path).to_table().to_pylist()]
    return {number: tuple(rest) for number, *rest in found}


def ids(path):
    return sorted(rows(path))


def frame(env, *values, schema="id long, name string, n long"):
    return env.spark.createDataFrame(list(values), schema)


# Reading


@program("read")
def read_by_path_and_filter(env):
    found = env.spark.read.format(FORMAT).load(env.table()).where("n > 20").select("id")
    assert sorted(row.id for row in found.collect()) == [3, 4, 5]


@program("read")
def read_an_old_version(env):
    path = env.table()
    DeltaTable.forPath(env.spark, path).delete("id < 4")
    old = env.spark.read.format(FORMAT).option("versionAsOf", 1).load(path)
    assert old.count() == 5
    assert env.sql(f"SELECT count(*) FROM lance.`{path}` VERSION AS OF 1").first()[0] == 5


@program("read")
def read_at_a_time(env):
    path = env.table()
    DeltaTable.forPath(env.spark, path).delete()
    late = env.spark.read.format(FORMAT).option("timestampAsOf", "2200-01-01").load(path)
    assert late.count() == 0
    first = DeltaTable.forPath(env.spark, path).history().where("version = 1").first().timestamp
    text = f"SELECT count(*) FROM lance.`{path}` TIMESTAMP AS OF '{first}'"
    assert env.sql(text).first()[0] == 5
    text = f"SELECT count(*) FROM lance.`{path}` TIMESTAMP AS OF current_timestamp() AS now"
    assert env.sql(text).first()[0] == 0


@program("read")
def read_by_the_name_of_a_catalog(env):
    ls.catalog(env.spark, "lake", "dir", root=str(env.tmp / "lake"))
    env.sql("CREATE TABLE lake.orders USING lance AS SELECT id, id * 2 AS n FROM range(3)")
    assert DeltaTable.forName(env.spark, "lake.orders").toDF().count() == 3
    assert env.sql("SELECT sum(n) FROM lake.orders WHERE id > 0").first()[0] == 6


@program("read")
def read_with_names_of_the_current_schema(env):
    ls.catalog(env.spark, "shop", "dir", root=str(env.tmp / "shop"))
    env.sql("CREATE NAMESPACE shop.db")
    env.sql("USE shop.db")
    try:
        env.sql("CREATE TABLE orders (id BIGINT, n INT)")
        env.sql("INSERT INTO orders VALUES (1, 2), (2, 3)")
        env.sql("UPDATE orders SET n = n + 1 WHERE id = 1")
        text = "WITH big AS (SELECT id FROM orders WHERE n > 2) SELECT count(*) FROM big"
        assert env.sql(text).first()[0] == 2
        assert [row.tableName for row in env.sql("SHOW TABLES").collect()] == ["orders"]
        text = "SELECT orders.id FROM orders JOIN VALUES (1L) AS v (id) ON orders.id = v.id"
        assert env.sql(text).count() == 1
        assert env.sql("DESCRIBE HISTORY orders").count() == 3
    finally:
        env.sql("USE default")
    assert env.sql("SELECT count(*) FROM shop.db.orders").first()[0] == 2


@program("read")
def join_a_table_with_a_view(env):
    path = env.table()
    frame(env, (2, "x", 0)).createOrReplaceTempView("others")
    text = f"SELECT t.name FROM lance.`{path}` t LEFT SEMI JOIN others o ON t.id = o.id"
    assert [row.name for row in env.sql(text).collect()] == ["b"]


@program("read")
def look_at_history_and_detail(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.delete("id = 1")
    assert [row.version for row in table.history().collect()] == [2, 1]
    assert table.history(1).select("operation").first()[0] == "Delete"
    detail = table.detail().select("location", "numFiles", "format", "version").first()
    assert tuple(detail) == (path, 1, "lance", 2)
    assert env.sql(f"DESCRIBE HISTORY lance.`{path}`").count() == 2
    assert DeltaTable.isDeltaTable(env.spark, path)
    assert not DeltaTable.isDeltaTable(env.spark, path + ".none")


@program("read")
def cache_the_result_of_a_query(env):
    path = env.table()
    env.sql(f"CACHE TABLE few AS SELECT id FROM lance.`{path}` WHERE n > 20")
    try:
        assert env.spark.table("few").count() == 3
        assert env.spark.catalog.isCached("few")
    finally:
        env.spark.sql("UNCACHE TABLE few")
        env.spark.catalog.dropTempView("few")


@program("read")
def read_the_change_feed(env):
    path = env.table()
    with pytest.raises(Exception, match="change_feed"):
        env.spark.read.format(FORMAT).option("readChangeFeed", "true").load(path).collect()


# Writing


@program("write")
def append_and_overwrite(env):
    path = env.table()
    frame(env, (6, "f", 60)).write.format(FORMAT).mode("append").save(path)
    assert ids(path) == [1, 2, 3, 4, 5, 6]
    frame(env, (7, "g", 70)).write.format(FORMAT).mode("overwrite").save(path)
    assert rows(path) == {7: ("g", 70)}


@program("write")
def overwrite_with_another_schema(env):
    path = env.table()
    other = env.spark.range(2).withColumn("kind", F.lit("new"))
    other.write.format(FORMAT).mode("overwrite").option("overwriteSchema", "true").save(path)
    assert rows(path) == {0: ("new",), 1: ("new",)}


@program("write")
def append_columns_that_are_named_and_typed_otherwise(env):
    path = env.table()
    other = frame(env, (6, 60, "f"), schema="ID int, N smallint, Name string")
    other.write.format(FORMAT).mode("append").save(path)
    ls.write(other.selectExpr("ID + 1 AS Id", "N"), path, mode="append")
    env.sql(f"INSERT INTO lance.`{path}` (ID, NAME) VALUES (8, 'h')")
    assert [rows(path)[i] for i in (6, 7, 8)] == [("f", 60), (None, 60), ("h", None)]


@program("write")
def append_a_value_that_does_not_fit(env):
    path = env.table({"id": pa.array([1], pa.int32())})
    wide = env.spark.createDataFrame([(1 << 40,)], "id long")
    with pytest.raises(Exception, match="do not fit"):
        wide.write.format(FORMAT).mode("append").save(path)
    with pytest.raises(Exception, match="does not fit"):
        ls.write(wide, path, mode="append")
    with pytest.raises(Exception, match="does not fit"):
        env.sql(f"INSERT INTO lance.`{path}` SELECT 1099511627776L")
    assert ids(path) == [1]


@program("write")
def append_new_columns_with_merge_schema(env):
    path = env.table()
    more = frame(env, (6, "f", 60, True), schema="id long, name string, n long, paid boolean")
    with pytest.raises(Exception, match="`paid` is not in the table"):
        more.write.format(FORMAT).mode("append").save(path)
    more.write.format(FORMAT).mode("append").option("mergeSchema", "true").save(path)
    other = more.withColumn("note", F.lit("x")).withColumn("id", F.lit(7))
    ls.write(other, path, mode="append", options={"mergeSchema": True})
    assert rows(path)[1] == ("a", 10, None, None)
    assert rows(path)[6] == ("f", 60, True, None)
    assert rows(path)[7] == ("f", 60, True, "x")


@program("write")
def replace_the_rows_of_a_condition(env):
    path = env.table()
    new = frame(env, (4, "new", 0), (9, "new", 0))
    new.write.format(FORMAT).mode("overwrite").option("replaceWhere", "id >= 4").save(path)
    assert ids(path) == [1, 2, 3, 4, 9]
    with pytest.raises(Exception, match="do not match the condition"):
        new.write.format(FORMAT).mode("overwrite").option("replaceWhere", "id > 4").save(path)
    env.sql(f"INSERT INTO lance.`{path}` REPLACE WHERE id >= 4 SELECT 5L, 'newer', 0L")
    assert ids(path) == [1, 2, 3, 5]


@program("write")
def replace_rows_of_days(env):
    days = env.spark.sql("SELECT id, DATE '2024-01-30' + CAST(id AS INT) AS day FROM range(4)")
    path = str(env.tmp / "days.lance")
    days.write.format(FORMAT).mode("append").save(path)
    where = "day >= '2024-02-01' AND day < '2024-03-01'"
    new = env.spark.sql("SELECT 9L AS id, DATE '2024-02-29' AS day")
    new.write.format(FORMAT).mode("overwrite").option("replaceWhere", where).save(path)
    assert ids(path) == [0, 1, 9]


@program("write")
def overwrite_partitions_dynamically(env):
    path = env.table()
    new = frame(env, (4, "new", 0)).write.format(FORMAT).mode("overwrite")
    with pytest.raises(Exception, match="replaceWhere"):
        new.option("partitionOverwriteMode", "dynamic").save(path)


@program("write")
def write_in_an_idempotent_way(env):
    path = env.table()
    new = frame(env, (6, "f", 60)).write.format(FORMAT).mode("append")
    with pytest.raises(Exception, match="Once"):
        new.option("txnAppId", "job").option("txnVersion", 1).save(path)
    for _ in range(2):
        ls.write(frame(env, (6, "f", 60)), path, mode="append", once=ls.Once("job", 1))
    assert ids(path) == [1, 2, 3, 4, 5, 6]


@program("write")
def write_small_files_with_a_note(env):
    path = str(env.tmp / "small.lance")
    writer = env.spark.range(0, 6, 1, 1).write.format(FORMAT).mode("append")
    writer.option("maxRecordsPerFile", 2).option("userMetadata", "a note").save(path)
    assert len(lance.dataset(path).get_fragments()) == 3


@program("write")
def insert_in_all_ways(env):
    path = env.table()
    table = f"lance.`{path}`"
    env.sql(f"INSERT INTO {table} VALUES (6, 'f', 60)")
    env.sql(f"INSERT INTO {table} BY NAME SELECT 'g' AS name, 7L AS id")
    env.sql(f"WITH v AS (SELECT 8L AS id) INSERT INTO {table} (id) SELECT id FROM v")
    assert ids(path) == [1, 2, 3, 4, 5, 6, 7, 8]
    env.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table} WHERE id = 3")
    assert rows(path) == {3: ("c", 30)}


@program("write")
def write_many_tables_in_threads(env):
    from concurrent.futures import ThreadPoolExecutor

    def write(number):
        ls.register(env.spark)
        path = str(env.tmp / f"thread{number}.lance")
        env.spark.range(number).write.format(FORMAT).mode("append").save(path)
        return env.spark.read.format(FORMAT).load(path).count()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, [3, 4])) == [3, 4]


@program("write")
def stream_from_a_table_into_another(env):
    path, copy = env.table(), str(env.tmp / "copy.lance")
    stream = env.spark.readStream.format(FORMAT).load(path).where("id > 2")
    writer = stream.writeStream.format(FORMAT).outputMode("append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(env.tmp / "checkpoint"))
    writer.option("path", copy).start().awaitTermination()
    assert ids(copy) == [3, 4, 5]


# Updates and deletes


@program("change")
def delete_by_text_and_by_expression(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.delete("id = 1 OR name = 'b'")
    assert ids(path) == [3, 4, 5]
    table.delete(F.col("n") == 30)
    table.delete(F.col("id").isin(5) & (F.length("name") == 1))
    assert ids(path) == [4]
    assert table.delete(F.col("id") == 99).first().num_affected_rows == 0
    table.delete()
    assert ids(path) == []


@program("change")
def update_by_text(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.update("n >= 40", {"name": "upper(name)", "n": "n + 1"})
    table.update(condition="id = 1", set={"n": "0"})
    assert rows(path)[5] == ("E", 51)
    assert rows(path)[1] == ("a", 0)


@program("change")
def update_by_expressions(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.update(
        condition=F.col("n") > 30,
        set={"name": F.concat(F.col("name"), F.lit("!")), "N": F.col("n") + F.lit(1)},
    )
    assert rows(path)[4] == ("d!", 41)
    done = table.update(F.expr("id < 3"), {"n": "id * 100", "name": F.lit("few")})
    assert done.first().num_updated_rows == 2
    assert rows(path)[2] == ("few", 200)
    table.update(set={"n": F.lit(7)})
    assert {row[1] for row in rows(path).values()} == {7}


@program("change")
def update_with_an_alias(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path).alias("t")
    table.update("t.id = 1", {"t.name": "concat(t.name, 'x')"})
    table.update(F.col("t.id") == 2, {"t.name": F.upper("t.name")})
    table.delete(F.col("t.id") == 3)
    assert rows(path) == {1: ("ax", 10), 2: ("B", 20), 4: ("d", 40), 5: ("e", 50)}


@program("change")
def update_and_delete_by_subqueries(env):
    path = env.table()
    frame(env, (2, "x", 0), (3, "y", 1)).createOrReplaceTempView("late")
    env.sql(f"UPDATE lance.`{path}` SET n = -1 WHERE id IN (SELECT id FROM late WHERE n = 0)")
    env.sql(f"WITH v AS (SELECT 5L AS id) DELETE FROM lance.`{path}` WHERE id IN (TABLE v)")
    env.sql(f"DELETE FROM lance.`{path}` t WHERE EXISTS (SELECT 1 FROM late l WHERE l.id = t.id)")
    assert ids(path) == [1, 4]


@program("change")
def update_columns_of_structs(env):
    path = str(env.tmp / "struct.lance")
    made = env.spark.sql("SELECT 1L AS id, named_struct('a', 1, 'b', 'x') AS s")
    made.write.format(FORMAT).mode("append").save(path)
    DeltaTable.forPath(env.spark, path).update(set={"s.a": "s.a + 1"})
    with pytest.raises(Exception, match="by SQL text"):
        DeltaTable.forPath(env.spark, path).update(set={"s.a": F.col("s.a") + 1})
    assert rows(path) == {1: ({"a": 2, "b": "x"},)}


@program("change")
def expressions_of_other_frames_are_rejected_with_a_hint(env):
    path = env.table()
    other = env.spark.range(3)
    with pytest.raises(AnalysisException) as caught:
        DeltaTable.forPath(env.spark, path).delete(other["id"] == 1)
    shown = "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "F.col('target.id')" in shown
    assert "__lancelet" not in shown
    assert len(ids(path)) == 5


# Merges


@program("merge")
def upsert_by_text(env):
    path = env.table()
    updates = frame(env, (5, "new", 0), (6, "f", 60))
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    assert (rows(path)[5], rows(path)[6]) == (("new", 0), ("f", 60))


@program("merge")
def upsert_by_expressions(env):
    path = env.table()
    updates = frame(env, (5, "new", 1), (6, "f", 60), (7, "no", -1))
    done = (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(updates.alias("s"), F.col("t.id") == F.col("s.id"))
        .whenMatchedUpdate(
            condition=F.col("s.n") > 0,
            set={"name": F.col("s.name"), "t.n": F.col("t.n") + F.col("s.n")},
        )
        .whenNotMatchedInsert(
            condition=F.col("s.n") > 0, values={"id": F.col("s.id"), "n": "s.n * 2"}
        )
        .execute()
    )
    assert done.first().asDict()["num_affected_rows"] == 2
    assert (rows(path)[5], rows(path)[6], 7 in rows(path)) == (("new", 51), (None, 120), False)


@program("merge")
def upsert_with_columns_of_the_source_frame(env):
    path = env.table()
    updates = frame(env, (1, "new", 1), schema="key long, name string, n long")
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(updates, F.col("t.id") == updates["key"])
        .whenMatchedUpdate(set={"name": updates["name"]})
        .execute()
    )
    assert rows(path)[1] == ("new", 10)


@program("merge")
def apply_changes_with_a_flag(env):
    path = env.table()
    schema = "id long, name string, n long, op string"
    changes = frame(env, (1, "", 0, "D"), (2, "u", 2, "U"), (9, "i", 9, "I"), schema=schema)
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(changes.alias("s"), "t.id = s.id")
        .whenMatchedDelete(condition="s.op = 'D'")
        .whenMatchedUpdate(set={"name": "s.name", "n": "s.n"})
        .whenNotMatchedInsert(
            condition="s.op <> 'D'", values={"id": "s.id", "name": "s.name", "n": "s.n"}
        )
        .execute()
    )
    assert rows(path)[2] == ("u", 2)
    assert ids(path) == [2, 3, 4, 5, 9]


@program("merge")
def apply_the_latest_change_of_each_key(env):
    path = env.table()
    schema = "id long, name string, n long, time int"
    changes = frame(env, (1, "x", 1, 1), (1, "y", 2, 2), (8, "z", 3, 1), schema=schema)
    order = Window.partitionBy("id").orderBy(F.desc("time"))
    latest = changes.withColumn("r", F.row_number().over(order)).where("r = 1").drop("r", "time")
    (
        DeltaTable.forPath(env.spark, path)
        .merge(latest.alias("s"), "target.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    assert (rows(path)[1], rows(path)[8]) == (("y", 2), ("z", 3))


@program("merge")
def synchronize_with_a_source(env):
    path = env.table()
    source = frame(env, (1, "a", 11), (6, "f", 60))
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(source.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate(condition="t.id = 2", set={"name": "'old'"})
        .whenNotMatchedBySourceDelete()
        .execute()
    )
    assert rows(path) == {1: ("a", 11), 2: ("old", 20), 6: ("f", 60)}


@program("merge")
def synchronize_by_expressions(env):
    path = env.table()
    source = frame(env, (1, "a", 11), (6, "f", 60))
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(source.alias("s"), F.expr("t.id = s.id"))
        .whenMatchedUpdateAll(F.col("s.n") > F.col("t.n"))
        .whenNotMatchedInsertAll()
        .whenNotMatchedBySourceUpdate(F.col("t.id") == 2, {"name": F.lit("old")})
        .whenNotMatchedBySourceDelete(F.col("t.id") > 3)
        .execute()
    )
    assert rows(path) == {1: ("a", 11), 2: ("old", 20), 3: ("c", 30), 6: ("f", 60)}


@program("merge")
def insert_only_new_rows(env):
    path = env.table()
    events = frame(env, (5, "again", 0), (6, "f", 60))
    (
        DeltaTable.forPath(env.spark, path)
        .alias("logs")
        .merge(events.alias("new"), "logs.id = new.id AND logs.n > 0")
        .whenNotMatchedInsertAll()
        .execute()
    )
    assert rows(path)[5] == ("e", 50)
    assert 6 in rows(path)


@program("merge")
def keep_the_history_of_rows(env):
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("current", pa.bool_())])
    path = str(env.tmp / "history.lance")
    lancelet.write_dataset(pa.table([[1, 2], ["x", "y"], [True, True]], schema=schema), path)
    table = DeltaTable.forPath(env.spark, path)
    updates = frame(env, (1, "moved"), (3, "z"), schema="id long, city string")
    moved = updates.alias("u").join(table.toDF().alias("c"), "id")
    moved = moved.where("c.current AND u.city <> c.city").selectExpr("NULL AS key", "id", "u.city")
    staged = moved.union(updates.selectExpr("id AS key", "id", "city"))
    (
        table.alias("c")
        .merge(staged.alias("s"), "c.id = s.key")
        .whenMatchedUpdate(condition="c.current AND c.city <> s.city", set={"current": "false"})
        .whenNotMatchedInsert(values={"id": "s.id", "city": "s.city", "current": "true"})
        .execute()
    )
    found = sorted(tuple(row) for row in table.toDF().collect())
    assert found == [(1, "moved", True), (1, "x", False), (2, "y", True), (3, "z", True)]


@program("merge")
def add_events_once(env):
    path = env.table()
    events = frame(env, (5, "again", 0), (6, "new", 60), (6, "twice", 61))
    table = DeltaTable.forPath(env.spark, path)
    merge = table.alias("log").merge(events.dropDuplicates(["id"]).alias("e"), "log.id = e.id")
    merge.whenNotMatchedInsertAll().execute()
    assert ids(path) == [1, 2, 3, 4, 5, 6]
    assert rows(path)[5] == ("e", 50)


@program("merge")
def add_to_the_numbers_of_matched_rows(env):
    path = env.table()
    merge = DeltaTable.forPath(env.spark, path).alias("t")
    merge = merge.merge(frame(env, (1, "x", 5), (9, "y", 7)).alias("s"), "t.id = s.id")
    merge = merge.whenMatchedUpdate(condition="s.n > 3", set={"n": "t.n + s.n"})
    merge.whenNotMatchedInsert(values={"id": "s.id", "name": "upper(s.name)", "n": "s.n"}).execute()
    assert rows(path)[1] == ("a", 15)
    assert rows(path)[9] == ("Y", 7)


@program("merge")
def merge_a_stream_by_its_keys(env):
    path = env.table()
    source = env.table({"id": [2, 8], "name": ["z", "z"], "n": [0, 0]})
    stream = env.spark.readStream.format(FORMAT).load(source)
    query = (
        stream.writeStream.format(FORMAT)
        .option("path", path)
        .option("upsert_on", "id")
        .option("checkpointLocation", str(env.tmp / "upserts"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert ids(path) == [1, 2, 3, 4, 5, 8]
    assert rows(path)[2] == ("z", 0)


@program("merge")
def merge_with_schema_evolution(env):
    path = env.table()
    schema = "id long, n long, paid boolean"
    updates = frame(env, (5, 0, True), (6, 60, False), schema=schema)
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(updates.alias("s"), "t.id = s.id")
        .withSchemaEvolution()
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    assert rows(path)[5] == ("e", 0, True)
    assert rows(path)[6] == (None, 60, False)
    more = updates.withColumn("note", F.lit("x"))
    (
        DeltaTable.forPath(env.spark, path)
        .alias("t")
        .merge(more.alias("s"), F.col("t.id") == F.col("s.id"))
        .withSchemaEvolution()
        .whenMatchedUpdate(set={"note": F.col("s.note")})
        .execute()
    )
    assert rows(path)[6] == (None, 60, False, "x")
    source = "(SELECT 1L AS id, 'sql' AS note, 3 AS extra) s"
    env.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO lance.`{path}` t USING {source} ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET note = s.note"
    )
    assert rows(path)[1] == ("a", 10, None, "sql")


@program("merge")
def merge_batches_of_a_stream(env):
    path, arrivals = env.table(), env.table({"id": [5, 6], "name": ["s", "s"], "n": [0, 0]})

    def upsert(batch, number):
        table = DeltaTable.forPath(batch.sparkSession, path).alias("t")
        merge = table.merge(batch.alias("s"), "t.id = s.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    if not is_remote():  # with Connect, the function runs on the server
        stream = env.spark.readStream.format(FORMAT).load(arrivals).writeStream
        stream = stream.option("checkpointLocation", str(env.tmp / "batches"))
        stream.foreachBatch(upsert).trigger(availableNow=True).start().awaitTermination()
        assert (rows(path)[5], rows(path)[6]) == (("s", 0), ("s", 0))


@program("merge")
def merge_in_sql(env):
    path = env.table()
    env.sql(
        f"""WITH v AS (SELECT * FROM VALUES (5L, 'new', 1L), (6L, 'f', 2L) AS v (id, name, n))
            MERGE INTO lance.`{path}` AS t USING v ON t.id = v.id AND t.n > 0
            WHEN MATCHED AND v.n > 5 THEN DELETE
            WHEN MATCHED THEN UPDATE SET t.name = v.name
            WHEN NOT MATCHED THEN INSERT (id, n) VALUES (v.id, v.n)"""
    )
    assert (rows(path)[5], rows(path)[6]) == (("new", 50), (None, 2))


@program("merge")
def a_merge_with_two_rows_for_one_is_rejected(env):
    path = env.table()
    twice = frame(env, (5, "x", 0), (5, "y", 0))
    for condition in ("t.id = s.id", F.col("t.id") == F.col("s.id")):
        table = DeltaTable.forPath(env.spark, path).alias("t")
        with pytest.raises(Exception, match="several rows of the source"):
            table.merge(twice.alias("s"), condition).whenMatchedUpdateAll().execute()
    assert rows(path)[5] == ("e", 50)


# Definitions


@program("define")
def create_a_table_with_the_builder(env):
    path = str(env.tmp / "built.lance")
    table = (
        DeltaTable.create(env.spark)
        .location(path)
        .addColumn("id", "BIGINT", nullable=False)
        .addColumn("name", dataType=StringType(), comment="a name")
        .addColumn("code", "VARCHAR(3)")
        .property("owner", "ann")
        .comment("people")
        .execute()
    )
    assert table.toDF().dtypes == [("id", "bigint"), ("name", "string"), ("code", "string")]
    made = lance.dataset(path)
    assert not made.schema.field("id").nullable
    assert made.config()["owner"] == "ann"
    with pytest.raises(Exception, match="longer than its column allows"):
        env.sql(f"INSERT INTO lance.`{path}` VALUES (1, 'a', 'long')")


@program("define")
def create_if_not_exists_and_replace(env):
    path = env.table()
    schema = StructType().add("id", LongType()).add("kind", StringType())
    for _ in range(2):
        DeltaTable.createIfNotExists(env.spark).location(path).addColumns(schema).execute()
    assert ids(path) == [1, 2, 3, 4, 5]
    DeltaTable.createOrReplace(env.spark).location(path).addColumns(schema).execute()
    assert lance.dataset(path).schema.names == ["id", "kind"]
    DeltaTable.replace(env.spark).location(path).addColumn("only", "INT").execute()
    assert lance.dataset(path).schema.names == ["only"]
    with pytest.raises(Exception, match="exists already"):
        DeltaTable.create(env.spark).location(path).addColumns(schema).execute()


@program("define")
def create_by_name(env):
    ls.catalog(env.spark, "named", "dir", root=str(env.tmp / "named"))
    made = DeltaTable.create(env.spark).tableName("named.people").addColumn("id", "INT").execute()
    assert made.toDF().columns == ["id"]
    assert env.sql("SHOW TABLES IN named").first().tableName == "people"


@program("define")
def clauses_without_an_equivalent(env):
    builder = DeltaTable.create(env.spark).location(str(env.tmp / "x.lance"))
    with pytest.raises(Exception, match="no partitions"):
        builder.partitionedBy("day")
    with pytest.raises(Exception, match="CREATE INDEX"):
        builder.clusterBy("day")
    with pytest.raises(Exception, match="compute the value"):
        builder.addColumn("day", "DATE", generatedAlwaysAs="CAST(time AS DATE)")
    for columns, message in {
        "id BIGINT GENERATED ALWAYS AS IDENTITY": "cannot be generated",
        "id BIGINT DEFAULT 3": "no default values",
        "id BIGINT, PRIMARY KEY (id)": "no constraints",
        "id BIGINT, CONSTRAINT positive CHECK (id > 0)": "no constraints",
    }.items():
        with pytest.raises(Exception, match=message):
            env.sql(f"CREATE TABLE lance.`{env.tmp}/x.lance` ({columns})")
    with pytest.raises(Exception, match="no partitions"):
        env.sql(f"CREATE TABLE lance.`{env.tmp}/x.lance` (id INT) PARTITIONED BY (id)")


@program("define")
def add_rename_and_drop_columns(env):
    path = env.table()
    env.sql(f"ALTER TABLE lance.`{path}` ADD COLUMNS (city STRING COMMENT 'where', zip INT)")
    env.sql(f"ALTER TABLE lance.`{path}` RENAME COLUMN n TO amount")
    env.sql(f"ALTER TABLE lance.`{path}` DROP COLUMN zip")
    env.sql(f"ALTER TABLE lance.`{path}` ALTER COLUMN id SET NOT NULL")
    assert lance.dataset(path).schema.names == ["id", "name", "amount", "city"]


@program("define")
def set_and_show_properties(env):
    path = env.table()
    env.sql(f"ALTER TABLE lance.`{path}` SET TBLPROPERTIES ('owner' = 'ann')")
    shown = env.sql(f"SHOW TBLPROPERTIES lance.`{path}`").collect()
    assert ("owner", "ann") in [tuple(row) for row in shown]
    text = env.sql(f"SHOW CREATE TABLE lance.`{path}`").first()[0]
    copy = str(env.tmp / "shown.lance")
    env.sql(text.replace(path, copy))
    assert lance.dataset(copy).schema == lance.dataset(path).schema
    assert lance.dataset(copy).config()["owner"] == "ann"


@program("define")
def clone_tables(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.delete("id > 2")
    shallow = table.clone(str(env.tmp / "shallow.lance"), isShallow=True)
    assert shallow.toDF().count() == 2
    old = table.cloneAtVersion(1, str(env.tmp / "old.lance"), properties={"kind": "copy"})
    assert old.toDF().count() == 5
    assert lance.dataset(str(env.tmp / "old.lance")).config()["kind"] == "copy"


@program("define")
def replace_a_table_by_a_clone(env):
    path, target = env.table(), env.table()
    env.sql(f"ALTER TABLE lance.`{path}` SET TBLPROPERTIES ('owner' = 'ann')")
    table = DeltaTable.forPath(env.spark, path)
    table.delete("id > 2")
    copy = table.clone(target, replace=True)
    assert ids(target) == [1, 2]
    assert lance.dataset(target).config()["owner"] == "ann"
    assert [row.version for row in copy.history().collect()] == [2, 1]
    table.cloneAtVersion(1, target, replace=True)
    assert ids(target) == [1, 2, 3, 4, 5]
    copy.restoreToVersion(2)
    assert ids(target) == [1, 2]
    with pytest.raises(Exception, match="drop the table first"):
        table.clone(target, isShallow=True, replace=True)
    env.sql(
        f"CREATE TABLE IF NOT EXISTS lance.`{target}` DEEP CLONE lance.`{path}` VERSION AS OF 1"
    )
    assert len(copy.history().collect()) == 4
    with pytest.raises(Exception, match="exists already"):
        table.clone(target)


@program("define")
def convert_a_delta_table(env):
    path = str(env.tmp / "delta")
    deltalake.write_deltalake(path, pa.table({"id": [1, 2], "part": ["a", "b"]}))
    deltalake.write_deltalake(path, pa.table({"id": [3], "part": ["b"]}), mode="append")
    deltalake.DeltaTable(path).delete("id = 2")
    table = DeltaTable.convertToLance(env.spark, f"delta.`{path}`")
    assert sorted(tuple(row) for row in table.toDF().collect()) == [(1, "a"), (3, "b")]
    assert deltalake.DeltaTable(path).to_pyarrow_table().num_rows == 2
    divided = str(env.tmp / "divided")
    rows = pa.table({"id": [1, 2], "part": ["a", "b"]})
    deltalake.write_deltalake(divided, rows, partition_by="part")
    table = DeltaTable.convertToDelta(env.spark, f"delta.`{divided}`")
    assert sorted(tuple(row) for row in table.toDF().collect()) == [(1, "a"), (2, "b")]


@program("define")
def convert_a_folder_of_parquet(env):
    path = str(env.tmp / "parquet")
    env.spark.range(4).selectExpr("id", "id % 2 AS part").write.partitionBy("part").parquet(path)
    target = str(env.tmp / "other.lance")
    other = DeltaTable.convertToLance(env.spark, f"parquet.`{path}`", target=target)
    assert other.toDF().count() == 4
    assert env.spark.read.parquet(path).count() == 4
    table = DeltaTable.convertToDelta(env.spark, f"parquet.`{path}`", "part INT")
    assert DeltaTable.isDeltaTable(env.spark, path)
    assert sorted(table.toDF().columns) == ["id", "part"]


@program("define")
def describe_a_table(env):
    path = env.table()
    columns = {row[0]: row[1] for row in env.sql(f"DESCRIBE TABLE lance.`{path}`").collect()}
    assert columns["n"] == "bigint"
    detail = DeltaTable.forPath(env.spark, path).detail().first()
    assert (detail.format, detail.location, detail.numFiles) == ("lance", path, 1)


# Maintenance


@program("maintain")
def compact_files(env):
    path = env.table()
    for number in (6, 7):
        env.sql(f"INSERT INTO lance.`{path}` VALUES ({number}, 'x', 0)")
    table = DeltaTable.forPath(env.spark, path)
    version = lance.dataset(path).version
    table.optimize().executeCompaction()
    assert len(lance.dataset(path).get_fragments()) == 1
    assert lance.dataset(path).version == version + 2, "ids are reserved in a version of their own"
    env.sql(f"INSERT INTO lance.`{path}` VALUES (8, 'x', 0)")
    table.optimize().where("id = 8").executeCompaction()
    env.sql(f"OPTIMIZE lance.`{path}`")
    env.sql(f"ANALYZE TABLE lance.`{path}` COMPUTE STATISTICS")
    with pytest.raises(Exception, match="CREATE INDEX"):
        table.optimize().executeZOrderBy("id")
    with pytest.raises(Exception, match="CREATE INDEX"):
        env.sql(f"OPTIMIZE lance.`{path}` ZORDER BY (id)")


@program("maintain")
def vacuum_old_versions(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.delete("id = 1")
    table.vacuum()
    table.vacuum(168)
    assert len(lance.dataset(path).versions()) == 2
    with pytest.raises(Exception, match="RETAIN 1 VERSIONS"):
        env.sql(f"VACUUM lance.`{path}` RETAIN 0 HOURS")
    assert env.sql(f"VACUUM lance.`{path}` RETAIN 0 HOURS DRY RUN").count()
    env.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        env.sql(f"VACUUM lance.`{path}` RETAIN 0 HOURS")
    finally:
        env.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert len(lance.dataset(path).versions()) == 1


@program("maintain")
def vacuum_keeps_tagged_versions(env):
    path = env.table()
    env.sql(f"CREATE TAG first ON lance.`{path}`")
    for number in (1, 2, 3):
        env.sql(f"DELETE FROM lance.`{path}` WHERE id = {number}")
    env.sql(f"VACUUM lance.`{path}` RETAIN 1 VERSIONS")
    assert [each["version"] for each in lance.dataset(path).versions()] == [1, 4]
    assert env.sql(f"SELECT count(*) FROM lance.`{path}` VERSION AS OF 'first'").first()[0] == 5


@program("maintain")
def restore_old_versions(env):
    path = env.table()
    table = DeltaTable.forPath(env.spark, path)
    table.delete("id = 1")
    table.restoreToVersion(1)
    assert len(ids(path)) == 5
    time = table.history().where("version = 2").first().timestamp
    table.restoreToTimestamp(str(time))
    assert len(ids(path)) == 4
    env.sql(f"RESTORE TABLE lance.`{path}` TO TIMESTAMP AS OF '{time}'")


@program("maintain")
def methods_without_an_equivalent(env):
    table = DeltaTable.forPath(env.spark, env.table())
    with pytest.raises(Exception, match="pylance"):
        table.generate("symlink_format_manifest")
    with pytest.raises(Exception, match="migrate"):
        table.upgradeTableProtocol(1, 3)
    with pytest.raises(AttributeError):
        table.nothing()
