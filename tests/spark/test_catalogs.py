"""Statements on catalogs of each kind: a folder, Glue by moto, Hive, Unity, Polaris and Iceberg."""

import contextlib
import pickle

import pytest
from lance_namespace import UnsupportedOperationError

import lancelet.spark as ls
from lancelet import surroundings
from lancelet.errors import AlreadyExistsError, CommitOutcomeUnknownError
from lancelet.spark.sql.names import attached, find_references, locate
from lancelet.spark.sql.source import Source
from tests.kit.catalog_servers import TOKEN
from tests.kit.catalogs import RENAMING, catalog
from tests.kit.faults import FaultySurroundings


class Lake:
    """A catalog `ext` of the session, and the full name of its namespace `sales`."""

    def __init__(self, spark, opened):
        self.spark, self.kind, self.opened = spark, opened.kind, opened
        self.first = ".".join(["ext", *opened.path()])
        self.db = f"{self.first}.sales"
        self.namespace = ".".join(opened.path("sales"))

    def __call__(self, text):
        text = text.replace("<db>", self.db).replace("<first>", self.first)
        return [tuple(row) for row in ls.sql(self.spark, text).collect()]


@pytest.fixture(params=["dir", "glue", "hive", "unity", "polaris", "iceberg"])
def lake(request, spark, tmp_path):
    with catalog(request.param, tmp_path) as opened:
        ls.catalog(spark, "ext", opened.namespace)
        found = Lake(spark, opened)
        found("CREATE NAMESPACE <db>")
        yield found
        spark.sql("USE default")
        ls.detach(spark, "ext")


def test_namespaces_are_created_shown_described_and_dropped(lake):
    lake("CREATE NAMESPACE IF NOT EXISTS <db>")
    lake("CREATE NAMESPACE <first>.spare COMMENT 'not used' WITH DBPROPERTIES ('owner' = 'ann')")
    shown = [row[0].rpartition(".")[2] for row in lake("SHOW NAMESPACES IN <first>")]
    assert [name for name in shown if name != "default"] == ["sales", "spare"]
    assert len(lake("SHOW NAMESPACES IN <first> LIKE 'SAL*|nothing'")) == 1
    described = dict(lake("DESCRIBE NAMESPACE <first>.spare"))
    assert described["Catalog Name"] == "ext"
    assert described["Namespace Name"].endswith("spare")
    assert described["Property owner"] == "ann"
    assert described["Property comment"] == "not used"
    lake("DROP NAMESPACE <first>.spare")
    assert len(lake("SHOW NAMESPACES IN <first> LIKE 'spare'")) == 0
    lake("DROP NAMESPACE IF EXISTS <first>.spare")


def test_tables_are_created_changed_and_dropped_by_name(lake):
    lake("CREATE TABLE <db>.orders (id BIGINT NOT NULL, name STRING) COMMENT 'first'")
    lake("INSERT INTO <db>.orders VALUES (1, 'a'), (2, 'b')")
    lake("UPDATE <db>.orders SET name = 'c' WHERE id = 1")
    lake("CREATE TABLE <db>.copies AS SELECT id * 10 AS id, name FROM <db>.orders")
    assert sorted(lake("SELECT * FROM <db>.copies")) == [(10, "c"), (20, "b")]
    assert sorted(lake("SHOW TABLES IN <db>")) == [
        (lake.namespace, "copies", False),
        (lake.namespace, "orders", False),
    ]
    assert lake("SHOW TABLES IN <db> LIKE 'o*'") == [(lake.namespace, "orders", False)]
    lake("CREATE OR REPLACE TABLE <db>.copies AS SELECT 1 AS n")
    lake("CREATE TABLE IF NOT EXISTS <db>.copies AS SELECT 2 AS n")
    assert lake("SELECT n FROM <db>.copies") == [(1,)]
    with pytest.raises(AlreadyExistsError):
        lake("CREATE TABLE <db>.copies AS SELECT 2 AS n")
    lake("DROP TABLE <db>.copies")
    lake("DROP TABLE IF EXISTS <db>.copies")
    assert [row[1] for row in lake("SHOW TABLES IN <db>")] == ["orders"]
    assert lake("SELECT count(*) FROM <db>.orders") == [(2,)]


def test_names_without_a_catalog_are_those_of_the_used_namespace(lake):
    lake("CREATE TABLE <db>.orders AS SELECT 1L AS id, 'a' AS name")
    lake("USE <db>")
    lake("INSERT INTO orders VALUES (2, 'b')")
    lake("CREATE TABLE copies AS SELECT * FROM orders")
    assert sorted(row[1] for row in lake("SHOW TABLES")) == ["copies", "orders"]
    assert lake("SELECT count(*) FROM orders o JOIN copies c ON o.id = c.id") == [(2,)]
    lake.spark.range(7).createOrReplaceTempView("orders")
    assert lake("SELECT count(*) FROM orders") == [(7,)]
    lake.spark.catalog.dropTempView("orders")
    lake("DROP TABLE copies")
    assert lake("SELECT max(name) FROM orders") == [("b",)]


def test_tables_are_described(lake):
    lake("CREATE TABLE <db>.orders (id BIGINT NOT NULL, v ARRAY<FLOAT>) TBLPROPERTIES ('a' = 'b')")
    assert lake("DESCRIBE <db>.orders") == [
        ("id", "bigint", "NOT NULL"),
        ("v", "array<float>", None),
    ]
    details = {name: value for name, value, _ in lake("DESCRIBE EXTENDED <db>.orders")}
    assert details["Name"] == f"{lake.db}.orders"
    assert "orders" in details["Location"]
    assert details["Property a"] == "b"
    text = lake("SHOW CREATE TABLE <db>.orders")[0][0]
    assert text.startswith("CREATE TABLE ext.")
    lake("DROP TABLE <db>.orders")
    lake(text)
    assert [row[0] for row in lake("SHOW COLUMNS IN <db>.orders")] == ["id", "v"]
    assert lake("SHOW TBLPROPERTIES IN <db>.orders") == [("a", "b")]


def test_tables_are_renamed_if_the_catalog_renames_in_one_request(lake):
    lake("CREATE TABLE <db>.orders AS SELECT 1L AS id")
    if lake.kind not in RENAMING:
        with pytest.raises(UnsupportedOperationError, match="register the location"):
            lake("ALTER TABLE <db>.orders RENAME TO <db>.renamed")
        return
    lake("ALTER TABLE <db>.orders RENAME TO <db>.renamed")
    assert lake("SELECT * FROM <db>.renamed") == [(1,)]
    assert [row[1] for row in lake("SHOW TABLES IN <db>")] == ["renamed"]


def test_views_read_tables_of_the_catalog(lake):
    lake("CREATE TABLE <db>.orders AS SELECT id, id % 3 AS part FROM range(9)")
    lake("CREATE OR REPLACE TEMPORARY VIEW few AS SELECT * FROM <db>.orders WHERE part = 1")
    assert lake.spark.table("few").count() == 3
    lake.spark.catalog.dropTempView("few")
    lake(
        "CREATE MATERIALIZED VIEW <db>.parts AS SELECT part, count(*) AS n FROM <db>.orders "
        "GROUP BY part"
    )
    lake("INSERT INTO <db>.orders VALUES (9, 0)")
    lake("REFRESH MATERIALIZED VIEW <db>.parts")
    assert sorted(lake("SELECT part, n FROM <db>.parts")) == [(0, 4), (1, 3), (2, 3)]
    with pytest.raises(Exception, match="TEMPORARY VIEW"):
        lake("CREATE VIEW <db>.stored AS SELECT * FROM <db>.orders")


def test_analyze_returns_the_statistics_of_a_table_and_of_its_columns(lake):
    lake(
        "CREATE TABLE <db>.orders AS SELECT id, IF(id < 4, NULL, id * 0.5D) AS price, "
        "concat('n', id % 2) AS name, array(id) AS ids, DATE '2024-02-29' AS day FROM range(10)"
    )
    rows = lake("ANALYZE TABLE <db>.orders COMPUTE STATISTICS")
    assert [(row[0], row[1], row[3] > 0) for row in rows] == [(1, 10, True)]
    assert lake("ANALYZE TABLE <db>.orders COMPUTE STATISTICS NOSCAN") == rows
    assert lake("ANALYZE TABLE <db>.orders COMPUTE STATISTICS FOR ALL COLUMNS") == [
        ("id", 0, 10, "0", "9"),
        ("price", 4, 6, "2.0", "4.5"),
        ("name", 0, 2, "n0", "n1"),
        ("ids", 0, None, None, None),
        ("day", 0, 1, "2024-02-29", "2024-02-29"),
    ]
    lake("DELETE FROM <db>.orders WHERE id = 9")
    assert lake("ANALYZE TABLE <db>.orders COMPUTE STATISTICS FOR COLUMNS ID") == [
        ("id", 0, 9, "0", "8")
    ]
    with pytest.raises(Exception, match="no column `idd`; did you mean id"):
        lake("ANALYZE TABLE <db>.orders COMPUTE STATISTICS FOR COLUMNS idd")
    with pytest.raises(Exception, match="expected COMPUTE STATISTICS"):
        lake("ANALYZE TABLE <db>.orders")


def test_a_failed_create_leaves_no_name_and_a_lost_reply_does(lake):
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        lake("CREATE TABLE <db>.w AS SELECT 1 / (id - id) AS x FROM range(3)")
    assert lake("SHOW TABLES IN <db>") == []
    only = "put_if_absent" if lake.kind != "dir" else "rename_if_absent"
    lost = FaultySurroundings("lose_reply", 0, only=lambda request: request.operation == only)
    with surroundings.replaced_by(lost), contextlib.suppress(CommitOutcomeUnknownError):
        lake("CREATE TABLE <db>.w AS SELECT 1 AS x")
    assert lake("SELECT x FROM <db>.w") == [(1,)]


def test_missing_tables_are_named(lake):
    with pytest.raises(Exception, match="unknown table"):
        lake("SELECT * FROM <db>.nothing")


def test_tasks_have_no_credentials_of_the_catalog(lake):
    lake("CREATE TABLE <db>.orders AS SELECT 1L AS id")
    statement = f"SELECT * FROM {lake.db}.orders"
    source = Source(statement)
    reference = find_references(source, attached(lake.spark))[0]
    assert TOKEN.encode() not in pickle.dumps(locate(lake.spark, source, reference))
    assert TOKEN not in str(lake(f"EXPLAIN EXTENDED {statement}"))


def test_the_former_name_of_catalog_works(spark, tmp_path):
    with pytest.warns(DeprecationWarning, match=r"lancelet\.spark\.catalog"):
        ls.attach(spark, "former", "dir", root=str(tmp_path))
    assert ls.sql(spark, "SHOW TABLES IN former").count() == 0
    ls.detach(spark, "former")
