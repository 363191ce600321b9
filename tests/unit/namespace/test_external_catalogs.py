"""Namespaces in external catalogs: Glue by moto, others by servers of their APIs on loopback."""

import contextlib
import re
import threading
from pathlib import Path

import boto3
import moto
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    InvalidInputError,
    ListNamespacesRequest,
    ListTablesRequest,
    NamespaceAlreadyExistsError,
    NamespaceExistsRequest,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    RegisterTableRequest,
    RenameTableRequest,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableExistsRequest,
    TableNotFoundError,
    UnsupportedOperationError,
)

import lancelet
from lancelet.namespace import connect
from lancelet.namespace.thrift import record, text
from tests.kit.catalog_servers import TOKEN, IcebergServer
from tests.kit.catalogs import KINDS, RENAMING, RequestFaults, stream_of
from tests.kit.catalogs import catalog as open_catalog

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture(params=KINDS)
def catalog(request, tmp_path):
    with open_catalog(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def sales(catalog):
    catalog.namespace.create_namespace(
        CreateNamespaceRequest(id=catalog.path("sales"), properties={"owner": "ann"})
    )
    return catalog


def test_namespaces_are_created_listed_and_dropped(sales):
    namespace, path = sales.namespace, sales.path("sales")
    with pytest.raises(NamespaceAlreadyExistsError):
        namespace.create_namespace(CreateNamespaceRequest(id=path))
    for name in ("b", "c", "d"):
        namespace.create_namespace(CreateNamespaceRequest(id=sales.path(name)))
    listed = namespace.list_namespaces(ListNamespacesRequest(id=sales.path()))
    others = ["default"] if sales.kind == "hive" else []
    assert listed.namespaces == ["b", "c", "d", *others, "sales"]
    paged = namespace.list_namespaces(ListNamespacesRequest(id=sales.path(), limit=3))
    assert (paged.namespaces, paged.page_token) == (["b", "c", "d"], "d")
    found = namespace.describe_namespace(DescribeNamespaceRequest(id=path))
    assert found.properties["owner"] == "ann"
    namespace.drop_namespace(DropNamespaceRequest(id=path))
    for call, kind in (
        (namespace.describe_namespace, DescribeNamespaceRequest),
        (namespace.namespace_exists, NamespaceExistsRequest),
        (namespace.drop_namespace, DropNamespaceRequest),
        (namespace.list_tables, ListTablesRequest),
    ):
        with pytest.raises(NamespaceNotFoundError):
            call(kind(id=path))


def test_tables_are_written_and_read_by_name(sales):
    options = {"namespace_client": sales.namespace, "table_id": sales.path("sales", "orders")}
    lancelet.write_dataset(ROWS, **options)
    assert lancelet.dataset(**options).count_rows() == 3
    lancelet.write_dataset(ROWS, mode="append", **options)
    assert lancelet.dataset(**options).count_rows() == 6
    found = sales.namespace.describe_table(
        DescribeTableRequest(id=sales.path("sales", "orders"), load_detailed_metadata=True)
    )
    assert found.version == 2
    assert re.fullmatch(r".*/sales(\.db)?/orders_\w{8}\.lance", found.location)
    assert found.properties["table_type"] == "lance"
    assert found.is_only_declared is False


def test_tables_are_created_from_rows(sales):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    made = namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS))
    assert made.version == 1
    with pytest.raises(TableAlreadyExistsError):
        namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS))
    namespace.create_table(CreateTableRequest(id=path, mode="exist_ok"), stream_of(ROWS))
    done = namespace.create_table(CreateTableRequest(id=path, mode="overwrite"), stream_of(ROWS))
    assert done.version == 2
    namespace.table_exists(TableExistsRequest(id=path))
    for name in ("a", "b", "c"):
        namespace.create_table(CreateTableRequest(id=sales.path("sales", name)), stream_of(ROWS))
    listed = namespace.list_tables(ListTablesRequest(id=sales.path("sales")))
    assert listed.tables == ["a", "b", "c", "orders"]
    with pytest.raises(NamespaceNotEmptyError):
        namespace.drop_namespace(DropNamespaceRequest(id=sales.path("sales")))
    with pytest.raises(NamespaceNotFoundError):
        namespace.create_table(CreateTableRequest(id=sales.path("missing", "t")), stream_of(ROWS))


def test_a_declared_table_is_written_later(sales):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    declared = namespace.declare_table(DeclareTableRequest(id=path))
    with pytest.raises(TableAlreadyExistsError):
        namespace.declare_table(DeclareTableRequest(id=path))
    found = namespace.describe_table(DescribeTableRequest(id=path, check_declared=True))
    assert (found.location, found.is_only_declared) == (declared.location, True)
    assert namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS)).version == 1


def test_names_are_removed_with_and_without_files(sales, tmp_path):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    location = namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS)).location
    namespace.deregister_table(DeregisterTableRequest(id=path))
    assert lancelet.dataset(location).count_rows() == 3
    with pytest.raises(TableNotFoundError):
        namespace.describe_table(DescribeTableRequest(id=path))
    with pytest.raises(InvalidInputError, match="there is no table"):
        namespace.register_table(RegisterTableRequest(id=path, location=str(tmp_path / "none")))
    namespace.register_table(RegisterTableRequest(id=path, location=location))
    with pytest.raises(TableAlreadyExistsError):
        namespace.register_table(RegisterTableRequest(id=path, location=location))
    namespace.drop_table(DropTableRequest(id=path))
    with pytest.raises(ValueError, match="not found"):
        lancelet.dataset(location)
    with pytest.raises(TableNotFoundError):
        namespace.drop_table(DropTableRequest(id=path))
    namespace.declare_table(DeclareTableRequest(id=path))
    namespace.drop_table(DropTableRequest(id=path))


def test_tables_are_renamed_in_one_request_or_not_at_all(sales):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    location = namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS)).location
    namespace.create_table(CreateTableRequest(id=sales.path("sales", "taken")), stream_of(ROWS))
    request = RenameTableRequest(id=path, new_table_name="renamed")
    if sales.kind not in RENAMING:
        with pytest.raises(UnsupportedOperationError, match="register the location"):
            namespace.rename_table(request)
        return
    with pytest.raises(TableAlreadyExistsError):
        namespace.rename_table(RenameTableRequest(id=path, new_table_name="taken"))
    namespace.rename_table(request)
    target = sales.path("sales", "renamed")
    assert namespace.describe_table(DescribeTableRequest(id=target)).location == location
    with pytest.raises(TableNotFoundError):
        namespace.rename_table(request)


def test_of_concurrent_creates_one_succeeds(sales):
    path, results = sales.path("sales", "orders"), []
    barrier = threading.Barrier(4)

    def create(number):
        barrier.wait()
        rows = pa.table({"id": [number] * (number + 1)})
        try:
            sales.namespace.create_table(CreateTableRequest(id=path), stream_of(rows))
        except TableAlreadyExistsError:
            return
        results.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 1
    found = lancelet.dataset(namespace_client=sales.namespace, table_id=path)
    assert found.to_table()["id"].to_pylist() == [results[0]] * (results[0] + 1)


def test_unsuitable_ids_are_rejected(sales):
    with pytest.raises(InvalidInputError, match="sales"):
        sales.namespace.describe_table(DescribeTableRequest(id=["orders"]))
    with pytest.raises(InvalidInputError, match="cannot be dropped"):
        sales.namespace.drop_namespace(DropNamespaceRequest(id=[]))
    with pytest.raises(UnsupportedOperationError, match="drop their tables"):
        sales.namespace.drop_namespace(
            DropNamespaceRequest(id=sales.path("sales"), behavior="Cascade")
        )


def test_all_tables_are_listed(sales):
    if sales.kind == "polaris":
        with pytest.raises(UnsupportedOperationError, match="name of a catalog"):
            sales.namespace.list_all_tables(ListTablesRequest(id=[]))
        return
    for name in ("a", "b"):
        sales.namespace.create_table(
            CreateTableRequest(id=sales.path("sales", name)), stream_of(ROWS)
        )
    listed = sales.namespace.list_all_tables(ListTablesRequest(id=[]))
    assert listed.tables == ["$".join(sales.path("sales", name)) for name in ("a", "b")]


def test_other_tables_of_the_catalog_are_no_lance_tables(sales):
    match sales.kind:
        case "glue":
            boto3.client("glue", region_name="us-east-1").create_table(
                DatabaseName="sales",
                TableInput={
                    "Name": "other",
                    "TableType": "EXTERNAL_TABLE",
                    "Parameters": {"table_type": "ICEBERG"},
                    "StorageDescriptor": {"Location": "s3://b/o"},
                },
            )
        case "unity":
            sales.server.tables["lake", "sales", "other"] = {
                "name": "other",
                "table_type": "EXTERNAL",
                "properties": {},
            }
        case "polaris":
            sales.server.tables["sales", "other"] = {"name": "other", "format": "delta"}
        case "hive":
            sales.server.create_table(
                {1: record({1: text("other"), 2: text("sales"), 7: record({2: text("s3://b/o")})})}
            )
        case "iceberg":
            sales.server.tables["sales", "other"] = {
                "name": "other",
                "location": "s3://b/o",
                "properties": {},
            }
    path = sales.path("sales", "other")
    assert sales.namespace.list_tables(ListTablesRequest(id=path[:-1])).tables == []
    for call, kind in (
        (sales.namespace.describe_table, DescribeTableRequest),
        (sales.namespace.drop_table, DropTableRequest),
        (sales.namespace.deregister_table, DeregisterTableRequest),
    ):
        with pytest.raises(InvalidInputError, match="no Lance table"):
            call(kind(id=path))


def test_secrets_are_not_shown(catalog):
    assert TOKEN not in repr(catalog.namespace)
    if catalog.kind in {"glue", "hive"}:
        return
    properties = {**catalog.properties, "auth_token": "wrong-token"}
    denied = connect(catalog.kind, properties)
    with pytest.raises(PermissionDeniedError, match="check the credentials") as error:
        denied.create_namespace(CreateNamespaceRequest(id=catalog.path("x")))
    assert "wrong-token" not in str(error.value)


def test_failures_of_the_service_are_reported(sales):
    if sales.server is None:
        return
    path = sales.path("sales", "orders")
    calls = (
        lambda: sales.namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS)),
        lambda: sales.namespace.list_tables(ListTablesRequest(id=path[:-1])),
        lambda: sales.namespace.describe_table(DescribeTableRequest(id=path)),
        lambda: sales.namespace.drop_table(DropTableRequest(id=path)),
    )
    for call in calls:
        sales.fail_next()
        with pytest.raises(ServiceUnavailableError, match="planned failure"):
            call()
        with contextlib.suppress(TableAlreadyExistsError):
            sales.namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS))
        assert lancelet.dataset(namespace_client=sales.namespace, table_id=path).count_rows() == 3


def test_an_unreachable_service_is_reported():
    namespace = connect("unity", {"endpoint": "http://127.0.0.1:9", "catalog": "lake"})
    with pytest.raises(ServiceUnavailableError, match=r"cannot connect.*check the address"):
        namespace.list_tables(ListTablesRequest(id=["lake", "sales"]))


@pytest.mark.parametrize(
    ("kind", "properties", "message"),
    [
        ("unity", {"endpoint": "http://127.0.0.1:9"}, "`catalog`"),
        ("polaris", {}, "`endpoint`"),
        ("iceberg", {"endpoint": "ftp://x"}, "http"),
        ("iceberg", {"endpoint": "http://ann:pw@localhost:1"}, "`auth_token`.*://[*]{3}@"),
    ],
)
def test_required_properties_are_named(kind, properties, message):
    with pytest.raises(ValueError, match=message):
        connect(kind, properties)


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"profile_name": "missing-profile"}, "missing-profile"),
        ({"endpoint": "nonsense"}, "nonsense"),
        ({"access_key_id": "AK"}, "`secret_access_key`"),
    ],
)
def test_properties_that_boto3_refuses_are_invalid_input(properties, message):
    with pytest.raises(InvalidInputError, match=message):
        connect("glue", {"region": "us-east-1", **properties})


def test_missing_credentials_of_glue_are_reported(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    namespace = connect("glue", {"region": "us-east-1", "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(PermissionDeniedError, match="AWS_ACCESS_KEY_ID"):
        namespace.list_namespaces(ListNamespacesRequest(id=[]))
    namespace = connect(
        "glue", {"region": "us-east-1", "access_key_id": "a", "secret_access_key": "pw-of-tests"}
    )
    with pytest.raises(InvalidInputError, match="Name") as error:
        namespace.describe_namespace(DescribeNamespaceRequest(id=[""]))
    assert "pw-of-tests" not in str(error.value)


def test_a_database_location_is_the_folder_of_new_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with moto.mock_aws():
        namespace = connect("glue", {"region": "us-east-1"})
        folder = str(tmp_path / "own")
        namespace.create_namespace(
            CreateNamespaceRequest(id=["sales"], properties={"location": folder, "owner": "ann"})
        )
        made = namespace.create_table(CreateTableRequest(id=["sales", "t"]), stream_of(ROWS))
        assert re.fullmatch(rf"{folder}/t_\w{{8}}\.lance", made.location)
        found = namespace.describe_namespace(DescribeNamespaceRequest(id=["sales"]))
        assert found.properties == {"location": folder, "owner": "ann"}
        namespace.create_namespace(CreateNamespaceRequest(id=["bare"]))
        with pytest.raises(InvalidInputError, match="`root`"):
            namespace.create_table(CreateTableRequest(id=["bare", "t"]), stream_of(ROWS))


@pytest.mark.parametrize("mode", ["create", "overwrite", "exist_ok"])
def test_files_of_a_deregistered_table_are_kept_when_its_name_is_created_again(sales, mode):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS))
    found = namespace.deregister_table(DeregisterTableRequest(id=path))
    rows = pa.table({"id": [9]})
    made = namespace.create_table(CreateTableRequest(id=path, mode=mode), stream_of(rows))
    assert lancelet.dataset(made.location).to_table() == rows
    namespace.drop_table(DropTableRequest(id=path))
    declared = namespace.declare_table(DeclareTableRequest(id=path))
    assert len({found.location, made.location, declared.location}) == 3
    assert lancelet.dataset(found.location).to_table() == ROWS


def test_files_are_deleted_with_their_last_name(sales):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    other = sales.path("other", "orders")
    namespace.create_namespace(CreateNamespaceRequest(id=other[:-1]))
    location = namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS)).location
    namespace.register_table(RegisterTableRequest(id=other, location=location))
    namespace.drop_table(DropTableRequest(id=path))
    assert lancelet.dataset(namespace_client=namespace, table_id=other).to_table() == ROWS
    namespace.drop_table(DropTableRequest(id=other))
    with pytest.raises(ValueError, match="not found"):
        lancelet.dataset(location)


@pytest.mark.parametrize("name", ["register_table", "declare_table"])
def test_names_at_a_given_location_protect_its_files(sales, name):
    namespace, path = sales.namespace, sales.path("sales", "orders")
    other = sales.path("other", "orders")
    namespace.create_namespace(CreateNamespaceRequest(id=other[:-1]))
    made = namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS))
    request = {"register_table": RegisterTableRequest, "declare_table": DeclareTableRequest}[name]
    getattr(namespace, name)(request(id=other, location=made.location))
    namespace.drop_table(DropTableRequest(id=path))
    assert lancelet.dataset(made.location).to_table() == ROWS
    namespace.drop_table(DropTableRequest(id=other))
    assert not Path(made.location).exists()


def test_a_drop_lists_only_the_namespace_of_the_table(sales):
    namespace, path = sales.namespace, sales.path("sales", "orders")

    def requests_of_drop():
        namespace.create_table(CreateTableRequest(id=path), stream_of(ROWS))
        requests = RequestFaults("refuse", at=1_000)
        with requests.of(namespace):
            namespace.drop_table(DropTableRequest(id=path))
        return requests.count

    alone = requests_of_drop()
    for number in range(3):
        namespace.create_namespace(CreateNamespaceRequest(id=sales.path(f"n{number}")))
        namespace.declare_table(DeclareTableRequest(id=sales.path(f"n{number}", "t")))
    assert requests_of_drop() == alone


def test_names_of_tables_do_not_leave_the_root(sales, tmp_path):
    if sales.kind in {"hive", "unity"}:
        return  # their names have no dots or slashes
    path = sales.path("sales", "../../a.b c")
    made = sales.namespace.declare_table(DeclareTableRequest(id=path))
    assert re.fullmatch(rf"{tmp_path}/lake/(lake/)?sales/______a_b_c_\w{{8}}\.lance", made.location)


@pytest.mark.parametrize("seconds", ["soon", "-1", "nan", "inf"])
def test_timeouts_are_positive_numbers(seconds):
    with pytest.raises(lancelet.errors.InvalidInputError, match="positive"):
        connect("iceberg", {"endpoint": "http://localhost:1", "read_timeout": seconds})


def test_an_answer_that_is_not_json_is_reported():
    class Page(IcebergServer):
        def handle(self, *_):
            return 200, "<html>"

    with Page() as server:
        namespace = connect("iceberg", {"endpoint": server.endpoint})
        with pytest.raises(ServiceUnavailableError, match="JSON object"):
            namespace.list_namespaces(ListNamespacesRequest(id=[]))
