"""Commands and the viewer over tables of catalogs, here of a Hive metastore in the test kit."""

import json

import pyarrow as pa
import pytest
from lance_namespace import CreateNamespaceRequest, DeclareTableRequest

import lancelet
from lancelet.cli.catalogs import connect_catalog
from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.main import main
from lancelet.cli.viewer import server as viewer
from lancelet.cli.viewer.tables import Shown
from lancelet.http_server import Request
from lancelet.namespace import connect
from tests.kit.catalog_servers import TOKEN, UnityServer
from tests.kit.hive_server import HiveServer

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


@pytest.fixture
def metastore(tmp_path):
    """Yield the properties of a metastore with two databases and two tables, one declared."""
    with HiveServer() as server:
        properties = {"uri": server.uri, "root": str(tmp_path)}
        namespace = connect("hive", properties)
        for name in ("archive", "sales"):
            namespace.create_namespace(CreateNamespaceRequest(id=[name]))
        lancelet.write_dataset(ROWS, namespace_client=namespace, table_id=["sales", "orders"])
        namespace.declare_table(DeclareTableRequest(id=["sales", "later"]))
        yield properties


@pytest.fixture
def call(metastore, capsys):
    """Return a function that runs a command over the metastore, and returns what it printed."""
    options = [
        each for name, value in metastore.items() for each in ("--property", f"{name}={value}")
    ]

    def run(*words, code=ExitCode.DONE):
        assert main([*words, "--catalog", "hive", *options, "--json"]) == code
        printed = capsys.readouterr()
        return json.loads(printed.out or printed.err)

    return run


def test_namespaces_and_tables_are_listed(call):
    rows = [(each["namespace"], each["name"], each["rows"]) for each in call("ls")]
    assert rows == [
        ("archive", None, None),
        ("default", None, None),
        ("sales", "later", None),
        ("sales", "orders", 3),
    ]
    assert [each["name"] for each in call("ls", "sales")] == ["later", "orders"]
    assert "none" in call("ls", "none", code=ExitCode.NOT_FOUND)["message"]


def test_a_table_that_cannot_be_read_does_not_hide_the_others(call, metastore, tmp_path):
    namespace = connect("hive", metastore)
    lancelet.write_dataset(ROWS, namespace_client=namespace, table_id=["sales", "damaged"])
    (manifest,) = tmp_path.glob("sales.db/damaged_*/_versions/*.manifest")
    manifest.write_bytes(b"x")
    assert [each["name"] for each in call("ls", code=ExitCode.FOUND) if each["rows"]] == ["orders"]


def test_commands_open_tables_by_name(call):
    assert call("count", "sales.orders") == {"rows": 3}
    assert call("count", "sales.orders", "id > 1") == {"rows": 2}
    assert call("head", "sales.orders", "--limit", "1") == [{"id": 1, "name": "a"}]
    assert [each["name"] for each in call("schema", "sales.orders")] == ["id", "name"]
    call("tag", "sales.orders", "create", "v1")
    assert call("head", "sales.orders", "--at", "v1", "--columns", "id")[2] == {"id": 3}
    assert {each["column"] for each in call("pages", "sales.orders")} == {"id", "name"}
    assert call("check", "sales.orders")["findings"] == []


def test_sql_names_tables_of_the_catalog(call):
    query = "SELECT max(id) AS m FROM"
    assert call("sql", "sales.orders", f"{query} orders") == [{"m": 3}]
    assert call("sql", f"{query} o", "--table", "o=sales.orders") == [{"m": 3}]


def test_tables_of_the_catalog_are_converted(call, tmp_path):
    target = tmp_path / "orders.parquet"
    assert call("convert", "sales.orders", str(target))["rows"] == 3
    assert call("convert", str(target), "archive.orders")["rows"] == 3
    assert call("count", "archive.orders") == {"rows": 3}
    call("convert", str(target), "archive.orders", code=ExitCode.EXISTS)
    call("convert", str(target), "none.orders", code=ExitCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("sales.none", ExitCode.NOT_FOUND),
        ("sales.later", ExitCode.NOT_FOUND),
        ("orders", ExitCode.USAGE),
    ],
)
def test_unknown_names_have_exit_codes(call, name, code):
    call("head", name, code=code)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--catalog", "moon"], ExitCode.USAGE, "unknown kind of catalog"),
        (["--property", "auth_token=hidden"], ExitCode.USAGE, "--catalog KIND"),
        (["--catalog", "hive", "--property", "hidden"], ExitCode.USAGE, "NAME=VALUE"),
        (
            ["--catalog", "hive", "--property", "uri=thrift://127.0.0.1:9"],
            ExitCode.STORAGE,
            "cannot connect",
        ),
        (
            ["--catalog", "hive", "--property", "kerberos.principal=hidden"],
            ExitCode.UNSUPPORTED,
            "Kerberos",
        ),
    ],
)
def test_unsuitable_options_are_explained_without_secrets(words, code, message, capsys):
    assert main(["head", "sales.orders", *words]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert "hidden" not in printed


def test_all_pages_of_listings_are_read(tmp_path):
    with UnityServer() as server:
        properties = {"endpoint": server.endpoint, "auth_token": TOKEN, "catalog": "lake"}
        catalog = connect_catalog("unity", properties)
        for number in range(3):
            path = ["lake", f"s{number}"]
            catalog.namespace.create_namespace(CreateNamespaceRequest(id=path))
            for name in ("a", "b", "c"):
                location = str(tmp_path / f"{number}{name}")
                catalog.namespace.declare_table(
                    DeclareTableRequest(id=[*path, name], location=location)
                )
        names = ["a", "b", "c"]
        assert catalog.tables() == {("lake", f"s{number}"): names for number in range(3)}
        assert catalog.tables(("lake", "s1")) == {("lake", "s1"): names}


def test_tokens_are_not_shown(capsys):
    with UnityServer() as server:
        options = [f"endpoint={server.endpoint}", "catalog=lake", "auth_token=word-of-mine"]
        words = [each for option in options for each in ("--property", option)]
        assert main(["ls", "--catalog", "unity", *words]) == ExitCode.STORAGE
        properties = dict(option.split("=", 1) for option in options)
        shown = Shown("lake", catalog=connect_catalog("unity", properties))
        query = {"table": "lake.a.b", "query": "SELECT 1"}
        replies = [
            viewer.answer(shown, Request("GET", f"/api/{endpoint}", query, {}))
            for endpoint in ("list_tables", "overview", "describe", "sql")
        ]
        assert {reply.status for reply in replies} == {500}
        printed = "".join(capsys.readouterr()) + repr(shown) + shown.label
        printed += "".join(reply.data.decode() for reply in replies)
        assert "denies the request" in printed
        assert "word-of-mine" not in printed


@pytest.fixture
def shown(metastore):
    return Shown("", catalog=connect_catalog("hive", metastore))


def get(shown, endpoint, status=200, **query):
    response = viewer.answer(shown, Request("GET", f"/api/{endpoint}", query, {}))
    found = json.loads(response.data)
    assert response.status == status, found
    return found


def test_the_viewer_lists_databases_and_tables(shown):
    found = get(shown, "list_tables")
    assert found["tables"] == ["sales.later", "sales.orders"]
    groups = {group["name"]: group["tables"] for group in found["groups"]}
    assert groups == {"archive": [], "default": [], "sales": ["sales.later", "sales.orders"]}
    later, orders = get(shown, "overview")["tables"]
    assert later["error"] == "declared, but not written"
    assert (orders["name"], orders["rows"]) == ("sales.orders", 3)


def test_the_viewer_opens_tables_by_name(shown):
    assert get(shown, "rows", table="sales.orders")["total"] == 3
    found = get(shown, "sql", table="sales.orders", query="SELECT max(id) AS m FROM dataset")
    assert found["rows"][0][0]["number"] == "3"
    for name in ("sales.none", "../orders", "orders", "sales.orders.x"):
        assert get(shown, "rows", 404, table=name)["kind"] == "NotFoundError"


def test_changes_of_the_viewer_are_committed_through_the_catalog(metastore):
    shown = Shown("sales", catalog=connect_catalog("hive", metastore), can_write=True)
    query = {"table": "sales.orders", "action": "delete", "filter": "id = 1", "apply": "1"}
    assert viewer.answer(shown, Request("POST", "/api/change", query, {})).status == 200
    assert get(shown, "rows", table="sales.orders")["total"] == 2
