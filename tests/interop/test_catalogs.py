"""Names in external catalogs are the same for lancelet and the package `lance-namespace-impls`."""

import lance
import moto
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from lance_namespace_impls import (
    GlueNamespace,
    Hive2Namespace,
    Hive3Namespace,
    IcebergNamespace,
    PolarisNamespace,
    UnityNamespace,
)

import lancelet
from lancelet.namespace import connect
from tests.kit.catalog_servers import TOKEN, IcebergServer, PolarisServer, UnityServer
from tests.kit.hive_server import HiveServer

ROWS = pa.table({"id": [1, 2, 3]})
KINDS = {
    "unity": (UnityServer, UnityNamespace, ("lake",)),
    "polaris": (PolarisServer, PolarisNamespace, ("lake",)),
    "iceberg": (IcebergServer, IcebergNamespace, ("main",)),
}


@pytest.fixture(params=["glue", "hive2", "hive3", *KINDS])
def both(request, tmp_path, monkeypatch):
    """Yield our namespace, the other one, and the path of the namespace `sales` in each."""
    root = str(tmp_path / "lake")
    if request.param == "glue":
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "testing")
        with moto.mock_aws():
            properties = {"region": "us-east-1", "root": root}
            yield connect("glue", properties), GlueNamespace(**properties), ["sales"], ["sales"]
        return
    if request.param in {"hive2", "hive3"}:
        pytest.importorskip("hive_metastore_client")
        with HiveServer() as server:
            properties = {"uri": server.uri, "root": root}
            ours = connect("hive", properties)
            if request.param == "hive2":
                yield ours, Hive2Namespace(**properties), ["sales"], ["sales"]
            else:
                yield ours, Hive3Namespace(**properties), ["sales"], ["hive", "sales"]
        return
    server_class, other_class, parent = KINDS[request.param]
    with server_class() as server:
        prefix = "" if request.param == "iceberg" else f"{request.param}."
        properties = {"endpoint": server.endpoint, "auth_token": TOKEN, "root": root}
        properties = {f"{prefix}{name}": value for name, value in properties.items()}
        if request.param == "unity":
            properties["catalog"] = "lake"
        ours = connect(request.param, properties)
        path = ["sales"] if request.param == "iceberg" else [*parent, "sales"]
        yield ours, other_class(**properties), path, [*parent, "sales"]


def test_both_libraries_see_the_same_tables(both, tmp_path):
    ours, theirs, own, other = both
    ours.create_namespace(CreateNamespaceRequest(id=own))
    assert other[-1] in [
        name.split(".")[-1].split("$")[-1]
        for name in theirs.list_namespaces(ListNamespacesRequest(id=other[:-1])).namespaces
    ]
    lancelet.write_dataset(ROWS, namespace_client=ours, table_id=[*own, "orders"])
    found = theirs.describe_table(DescribeTableRequest(id=[*other, "orders"]))
    assert lance.dataset(found.location).count_rows() == 3
    location = str(tmp_path / "theirs.lance")
    theirs.declare_table(DeclareTableRequest(id=[*other, "events"], location=location))
    lance.write_dataset(ROWS, location)
    assert lancelet.dataset(namespace_client=ours, table_id=[*own, "events"]).count_rows() == 3
    assert ours.list_tables(ListTablesRequest(id=own)).tables == ["events", "orders"]
    assert sorted(theirs.list_tables(ListTablesRequest(id=other)).tables) == ["events", "orders"]
    theirs.deregister_table(DeregisterTableRequest(id=[*other, "orders"]))
    ours.deregister_table(DeregisterTableRequest(id=[*own, "events"]))
    assert ours.list_tables(ListTablesRequest(id=own)).tables == []
