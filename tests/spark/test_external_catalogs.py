"""Spark attaches namespaces of external catalogs, here of an Iceberg REST server on loopback."""

import pytest

import lancelet.spark as ls
from tests.kit.catalog_servers import TOKEN, IcebergServer


@pytest.fixture
def lake(spark, tmp_path):
    with IcebergServer() as server:
        properties = {"endpoint": server.endpoint, "auth_token": TOKEN}
        ls.attach(spark, "ext", "iceberg", root=str(tmp_path / "lake"), **properties)
        yield lambda text: [tuple(row) for row in ls.sql(spark, text).collect()]
        ls.detach(spark, "ext")


def test_statements_use_the_names_of_the_catalog(lake):
    lake("CREATE NAMESPACE ext.sales")
    assert lake("SHOW NAMESPACES IN ext") == [("sales",)]
    lake("CREATE TABLE ext.sales.orders AS SELECT 1 AS id, 'a' AS name")
    lake("INSERT INTO ext.sales.orders VALUES (2, 'b')")
    lake("UPDATE ext.sales.orders SET name = 'c' WHERE id = 1")
    assert sorted(lake("SELECT * FROM ext.sales.orders")) == [(1, "c"), (2, "b")]
    assert [row[1] for row in lake("SHOW TABLES IN ext.sales")] == ["orders"]
    lake("ALTER TABLE ext.sales.orders RENAME TO ext.sales.renamed")
    assert lake("SELECT count(*) FROM ext.sales.renamed") == [(2,)]
    lake("DROP TABLE ext.sales.renamed")
    assert lake("SHOW TABLES IN ext.sales") == []
    lake("DROP NAMESPACE ext.sales")
    assert lake("SHOW NAMESPACES IN ext") == []
