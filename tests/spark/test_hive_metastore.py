"""Namespaces in the metastore of Hive 2.3, which runs from the JARs of Spark.

The server of the test kit stands for it in other tests, so both must answer alike.
"""

import threading
import uuid

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    ConcurrentModificationError,
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    LanceNamespaceError,
    ListNamespacesRequest,
    ListTablesRequest,
    RenameTableRequest,
    TableAlreadyExistsError,
    TableNotFoundError,
)

import lancelet
import lancelet.spark as ls
from lancelet.namespace import connect
from lancelet.namespace.external import ExternalTable
from tests.kit.hive_metastore import hive_metastore
from tests.kit.hive_server import HiveServer

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(scope="module")
def metastore(tmp_path_factory):
    with hive_metastore(tmp_path_factory.mktemp("metastore")) as uri:
        yield uri


@pytest.fixture
def namespace(metastore, tmp_path):
    """Return a namespace with an empty database, and the name of the database."""
    namespace = connect("hive", {"uri": metastore, "root": str(tmp_path)})
    name = f"db_{uuid.uuid4().hex}"
    namespace.create_namespace(CreateNamespaceRequest(id=[name]))
    return namespace, name


def test_tables_are_written_renamed_and_dropped(namespace):
    catalog, name = namespace
    orders = {"namespace_client": catalog, "table_id": [name, "orders"]}
    lancelet.write_dataset(ROWS, **orders)
    lancelet.write_dataset(ROWS, mode="append", **orders)
    assert lancelet.dataset(**orders).count_rows() == 6
    catalog.create_namespace(CreateNamespaceRequest(id=[f"{name}_b"]))
    catalog.rename_table(
        RenameTableRequest(id=[name, "orders"], new_namespace_id=[f"{name}_b"], new_table_name="o")
    )
    moved = [f"{name}_b", "o"]
    assert lancelet.dataset(namespace_client=catalog, table_id=moved).count_rows() == 6
    catalog.deregister_table(DeregisterTableRequest(id=moved))
    for each in (name, f"{name}_b"):
        catalog.drop_namespace(DropNamespaceRequest(id=[each]))
    assert name not in catalog.list_namespaces(ListNamespacesRequest(id=[])).namespaces


@pytest.mark.parametrize("_", range(3))
def test_of_concurrent_creates_and_renames_one_succeeds(namespace, _):
    catalog, name = namespace
    path = [name, "orders"]

    def race(call):
        done, barrier = [], threading.Barrier(4)

        def run(number):
            barrier.wait()
            try:
                call(number)
            except (ConcurrentModificationError, TableAlreadyExistsError, TableNotFoundError):
                return
            done.append(number)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 1
        return done[0]

    race(lambda _: catalog.declare_table(DeclareTableRequest(id=path)))
    done = race(
        lambda number: catalog.rename_table(
            RenameTableRequest(id=path, new_table_name=f"u{number}")
        )
    )
    assert catalog.list_tables(ListTablesRequest(id=[name])).tables == [f"u{done}"]
    for number in range(4):
        catalog.declare_table(DeclareTableRequest(id=[name, f"s{number}"]))
    race(
        lambda number: catalog.rename_table(
            RenameTableRequest(id=[name, f"s{number}"], new_table_name="one")
        )
    )
    catalog.deregister_table(DeregisterTableRequest(id=[name, "one"]))


def test_the_package_of_the_reference_sees_the_same_tables(namespace, metastore, tmp_path):
    pytest.importorskip("hive_metastore_client")
    implementations = pytest.importorskip("lance_namespace_impls")
    catalog, name = namespace
    other = implementations.Hive2Namespace(uri=metastore, root=str(tmp_path))
    assert name in other.list_namespaces(ListNamespacesRequest(id=[])).namespaces
    lancelet.write_dataset(ROWS, namespace_client=catalog, table_id=[name, "orders"])
    found = other.describe_table(DescribeTableRequest(id=[name, "orders"]))
    assert lance.dataset(found.location).count_rows() == 3
    declared = other.declare_table(DeclareTableRequest(id=[name, "events"]))
    lance.write_dataset(ROWS, declared.location)
    events = lancelet.dataset(namespace_client=catalog, table_id=[name, "events"])
    assert events.count_rows() == 3
    for each in (catalog, other):
        assert sorted(each.list_tables(ListTablesRequest(id=[name])).tables) == ["events", "orders"]
    other.deregister_table(DeregisterTableRequest(id=[name, "orders"]))
    catalog.deregister_table(DeregisterTableRequest(id=[name, "events"]))
    assert catalog.list_tables(ListTablesRequest(id=[name])).tables == []


def test_spark_uses_tables_of_the_metastore(spark, metastore, tmp_path):
    ls.catalog(spark, "metastore", "hive", uri=metastore, root=str(tmp_path))
    try:

        def run(text):
            return [tuple(row) for row in ls.sql(spark, text).collect()]

        run("CREATE NAMESPACE metastore.of_spark")
        run("CREATE TABLE metastore.of_spark.orders AS SELECT 1 AS id, 'a' AS name")
        run("INSERT INTO metastore.of_spark.orders VALUES (2, 'b')")
        run("ALTER TABLE metastore.of_spark.orders RENAME TO metastore.of_spark.renamed")
        assert sorted(run("SELECT * FROM metastore.of_spark.renamed")) == [(1, "a"), (2, "b")]
        assert [row[1] for row in run("SHOW TABLES IN metastore.of_spark")] == ["renamed"]
        run("DROP TABLE metastore.of_spark.renamed")
        run("DROP NAMESPACE metastore.of_spark")
    finally:
        ls.detach(spark, "metastore")


def test_the_server_of_the_kit_answers_like_the_metastore(metastore, tmp_path):
    with HiveServer() as server:
        assert transcript(server.uri, tmp_path / "a") == transcript(metastore, tmp_path / "b")


def transcript(uri, folder):
    """Return the results, or the classes and messages of errors, of a series of operations."""
    catalog = connect("hive", {"uri": uri, "root": str(folder)})._catalog
    table = ExternalTable(str(folder / "t"), {"color": "red"})
    calls = [
        lambda: catalog.create_namespace(("like",), {"owner": "ann", "comment": "c", "x": "y"}),
        lambda: catalog.create_namespace(("like",), {}),
        lambda: catalog.create_namespace(("li-ke",), {}),
        lambda: catalog.create_namespace(("other",), {}),
        lambda: catalog.namespace(("like",)),
        lambda: catalog.namespace(("none",)),
        lambda: catalog.drop_namespace(("none",)),
        lambda: catalog.tables(("none",)),
        lambda: catalog.create_table(("none", "t"), table),
        lambda: catalog.create_table(("like", "a-b"), table),
        lambda: catalog.create_table(("Like", "T"), table),
        lambda: catalog.create_table(("like", "t"), table),
        lambda: catalog.create_table(("like", "taken"), table),
        lambda: catalog.tables(("LIKE",)),
        lambda: catalog.table(("LIKE", "t")).location,
        lambda: catalog.table(("like", "none")),
        lambda: catalog.delete_table(("like", "none")),
        lambda: catalog.delete_table(("none", "none")),
        lambda: catalog.drop_namespace(("like",)),
        lambda: catalog.rename_table(("like", "none"), ("like", "u")),
        lambda: catalog.rename_table(("like", "t"), ("like", "taken")),
        lambda: catalog.rename_table(("like", "t"), ("none", "t")),
        lambda: catalog.rename_table(("like", "t"), ("like", "u")),
        lambda: catalog.rename_table(("like", "u"), ("other", "u")),
        lambda: catalog.tables(("other",)),
        lambda: catalog.table(("other", "u")).properties["color"],
        lambda: catalog.delete_table(("other", "u")),
        lambda: catalog.delete_table(("like", "taken")),
        lambda: catalog.drop_namespace(("like",)),
        lambda: catalog.drop_namespace(("other",)),
        lambda: catalog.namespaces(()).count("like"),
    ]
    outcomes = []
    for call in calls:
        try:
            found = call()
        except LanceNamespaceError as error:
            found = f"{type(error).__name__}: {error}"
        outcomes.append(str(found).replace(str(folder), "FOLDER"))
    return outcomes
