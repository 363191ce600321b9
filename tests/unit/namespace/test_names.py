"""Names are created, listed and dropped; the reference uses the same folder."""

import lance.namespace
import lance_namespace as ln
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.namespace import (
    DirectoryNamespace,
    DynamicContextProvider,
    RestAdapter,
    RestNamespace,
)
from lancelet.namespace.catalog import TABLE, Catalog, Entry


def test_namespaces_lie_within_each_other(namespace, rows):
    made = namespace.create_namespace(
        ln.CreateNamespaceRequest(id=["a"], properties={"owner": "ann"})
    )
    assert made.properties == {"owner": "ann"}
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["a", "b"]))
    for taken in (["a"], ["a", "b"]):
        with pytest.raises(ln.NamespaceAlreadyExistsError):
            namespace.create_namespace(ln.CreateNamespaceRequest(id=taken))
    with pytest.raises(ln.NamespaceNotFoundError):
        namespace.create_namespace(ln.CreateNamespaceRequest(id=["c", "d"]))
    assert namespace.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces == ["a"]
    assert namespace.list_namespaces(ln.ListNamespacesRequest(id=["a"])).namespaces == ["b"]
    told = namespace.describe_namespace(ln.DescribeNamespaceRequest(id=["a"]))
    assert told.properties == {"owner": "ann"}
    namespace.namespace_exists(ln.NamespaceExistsRequest(id=["a", "b"]))
    with pytest.raises(ln.NamespaceNotEmptyError):
        namespace.drop_namespace(ln.DropNamespaceRequest(id=["a"]))
    namespace.drop_namespace(ln.DropNamespaceRequest(id=["a", "b"]))
    with pytest.raises(ln.NamespaceNotFoundError):
        namespace.namespace_exists(ln.NamespaceExistsRequest(id=["a", "b"]))


def test_tables_have_names_until_they_are_dropped(namespace, rows):
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))
    for name in ("x", "y", "z"):
        namespace.create_table(ln.CreateTableRequest(id=["a", name]), rows)
    with pytest.raises(ln.TableAlreadyExistsError):
        namespace.create_table(ln.CreateTableRequest(id=["a", "x"]), rows)
    again = namespace.create_table(ln.CreateTableRequest(id=["a", "x"], mode="overwrite"), rows)
    assert again.version == 2
    first = namespace.list_tables(ln.ListTablesRequest(id=["a"], limit=2))
    assert (first.tables, first.page_token) == (["x", "y"], "y")
    rest = namespace.list_tables(ln.ListTablesRequest(id=["a"], page_token="y"))
    assert (rest.tables, rest.page_token) == (["z"], None)
    told = namespace.describe_table(
        ln.DescribeTableRequest(id=["a", "x"], load_detailed_metadata=True)
    )
    assert (told.version, told.is_only_declared) == (2, False)
    assert [field.name for field in told.var_schema.fields] == ["a", "b"]
    namespace.rename_table(ln.RenameTableRequest(id=["a", "x"], new_table_name="w"))
    assert "a$w" in namespace.list_all_tables(ln.ListTablesRequest(id=[])).tables
    namespace.drop_table(ln.DropTableRequest(id=["a", "w"]))
    with pytest.raises(ln.TableNotFoundError):
        namespace.table_exists(ln.TableExistsRequest(id=["a", "w"]))


def test_a_table_may_be_declared_and_written_later(namespace, rows):
    namespace.declare_table(ln.DeclareTableRequest(id=["later"]))
    with pytest.raises(ln.TableAlreadyExistsError):
        namespace.declare_table(ln.DeclareTableRequest(id=["later"]))
    asked = ln.DescribeTableRequest(id=["later"], check_declared=True)
    assert namespace.describe_table(asked).is_only_declared
    namespace.insert_into_table(ln.InsertIntoTableRequest(id=["later"]), rows)
    assert not namespace.describe_table(asked).is_only_declared


def test_datasets_are_written_and_opened_by_their_id(namespace, rows):
    table = pa.table({"a": [1, 2]})
    named = {"namespace_client": namespace, "table_id": ["t"]}
    lancelet.write_dataset(table, **named)
    lancelet.write_dataset(table, **named, mode="append")
    dataset = lancelet.dataset(**named)
    assert dataset.count_rows() == 4
    dataset.delete("a = 1")
    assert lancelet.dataset(**named).count_rows() == 2
    with pytest.raises(InvalidInputError, match="Cannot specify both"):
        lancelet.dataset(dataset.uri, **named)
    with pytest.raises(InvalidInputError, match="provided together"):
        lancelet.dataset(namespace_client=namespace)
    with pytest.raises(InvalidInputError, match="Must specify either"):
        lancelet.dataset()


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_the_reference_keeps_the_same_names(tmp_path, rows, first):
    both = [
        DirectoryNamespace(root=str(tmp_path)),
        lance.namespace.DirectoryNamespace(root=str(tmp_path)),
    ]
    one, other = both if first == "ours" else both[::-1]
    one.create_namespace(ln.CreateNamespaceRequest(id=["a"], properties={"k": "v"}))
    one.create_table(ln.CreateTableRequest(id=["a", "t"]), rows)
    one.create_table(ln.CreateTableRequest(id=["root"]), rows)
    other.create_table(ln.CreateTableRequest(id=["a", "u"]), rows)
    with pytest.raises(ln.TableAlreadyExistsError):
        other.create_table(ln.CreateTableRequest(id=["a", "t"]), rows)
    for namespace in both:
        told = namespace.describe_namespace(ln.DescribeNamespaceRequest(id=["a"]))
        assert told.properties == {"k": "v"}
        assert namespace.list_tables(ln.ListTablesRequest(id=["a"])).tables == ["t", "u"]
        assert namespace.list_tables(ln.ListTablesRequest(id=[])).tables == ["root"]
        for name in (["a", "t"], ["a", "u"], ["root"]):
            assert namespace.count_table_rows(ln.CountTableRowsRequest(id=name)).count == 3
    other.drop_table(ln.DropTableRequest(id=["a", "t"]))
    one.deregister_table(ln.DeregisterTableRequest(id=["a", "u"]))
    other.drop_namespace(ln.DropNamespaceRequest(id=["a"]))
    assert one.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces == []


@pytest.mark.parametrize("server", [RestAdapter, lance.namespace.RestAdapter])
@pytest.mark.parametrize("client", [RestNamespace, lance.namespace.RestNamespace])
def test_servers_and_clients_of_both_understand_each_other(tmp_path, rows, server, client):
    with server("dir", {"root": str(tmp_path)}, port=0) as served:
        uri = {"uri": f"http://127.0.0.1:{served.port}"}  # the reference's needs no token
        namespace = client(**getattr(served, "client_properties", uri))
        namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))
        with pytest.raises(ln.NamespaceAlreadyExistsError):
            namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))
        namespace.create_table(ln.CreateTableRequest(id=["a", "t"]), rows)
        assert namespace.list_tables(ln.ListTablesRequest(id=["a"])).tables == ["t"]
        assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["a", "t"])).count == 3
        with pytest.raises(ln.TableNotFoundError):
            namespace.describe_table(ln.DescribeTableRequest(id=["a", "none"]))
        namespace.drop_table(ln.DropTableRequest(id=["a", "t"]))
        namespace.drop_namespace(ln.DropNamespaceRequest(id=["a"]))


class Tokens(DynamicContextProvider):
    """Notes what it was asked."""

    def __init__(self, token="t"):
        self.token = token
        self.asked = []

    def provide_context(self, info):
        self.asked.append((info["operation"], info["object_id"]))
        return {"headers.Authorization": self.token, "other": "ignored"}


def test_a_provider_is_called_before_each_request(tmp_path):
    provider = Tokens()
    namespace = DirectoryNamespace(
        root=str(tmp_path), context_provider=provider, ops_metrics_enabled="true"
    )
    namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))
    assert provider.asked == [("create_namespace", "a")]
    assert namespace.retrieve_ops_metrics() == {"create_namespace": 1}
    namespace.reset_ops_metrics()
    assert namespace.retrieve_ops_metrics() == {}
    named = f"{__name__}.Tokens"
    with pytest.raises(InvalidInputError, match="imported"):
        DirectoryNamespace(root=str(tmp_path), **{"dynamic_context_provider.impl": f"{named}None"})
    with pytest.raises(InvalidInputError, match="must be a class name"):
        DirectoryNamespace(root=str(tmp_path), **{"dynamic_context_provider.impl": "Tokens"})


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("s3://b/t.lance", "Absolute URIs"),
        ("/tmp/t.lance", "Absolute paths"),
        ("../t.lance", "Path traversal"),
    ],
)
def test_only_tables_in_the_folder_get_a_name(tmp_path, location, message):
    namespace = DirectoryNamespace(root=str(tmp_path))
    with pytest.raises(ln.InvalidInputError, match=message):
        namespace.register_table(ln.RegisterTableRequest(id=["t"], location=location))


def test_without_a_table_of_names_folders_are_listed(tmp_path, rows):
    namespace = DirectoryNamespace(root=str(tmp_path), manifest_enabled="false")
    namespace.create_table(ln.CreateTableRequest(id=["t"]), rows)
    assert namespace.list_tables(ln.ListTablesRequest(id=[])).tables == ["t"]
    assert not (tmp_path / "__manifest").exists()
    with pytest.raises(ln.UnsupportedOperationError):
        namespace.create_namespace(ln.CreateNamespaceRequest(id=["a"]))


@pytest.mark.parametrize(
    "wrong",
    [
        DirectoryNamespace,
        RestNamespace,
        lambda: RestNamespace(uri="ftp://x"),
        lambda: RestAdapter("other"),
    ],
)
def test_missing_files_are_reported(wrong):
    with pytest.raises(InvalidInputError):
        wrong()


def test_a_server_that_is_gone_is_unavailable(tmp_path):
    with RestAdapter("dir", {"root": str(tmp_path)}, port=0) as server:
        namespace = RestNamespace(**server.client_properties)
    with pytest.raises(ln.ServiceUnavailableError):
        namespace.list_tables(ln.ListTablesRequest(id=[]))


class NativeRequest(dict):
    """What native clients bring: a dict that can be dumped as a model can."""

    def model_dump(self):
        return dict(self)


@pytest.mark.parametrize("form", [dict, NativeRequest])
def test_requests_may_be_dicts(namespace, rows, form):
    namespace.create_namespace(form(id=["a"]))
    namespace.create_table(form(id=["a", "x"], mode=None), rows)
    assert namespace.list_tables(form(id=["a"])).tables == ["x"]
    assert namespace.count_table_rows(form(id=["a", "x"])).count == 3
    with pytest.raises(ln.TableNotFoundError):
        namespace.describe_table(form(id=["a", "y"]))


def test_tables_are_created_in_missing_namespaces(namespace, rows):
    namespace.create_table(ln.CreateTableRequest(id=["new", "x"]), rows)
    namespace.declare_table(ln.DeclareTableRequest(id=["new", "y"]))
    assert namespace.table_exists(ln.TableExistsRequest(id=["new", "x"])) is not None
    assert set(namespace.list_tables(ln.ListTablesRequest(id=["new"])).tables) == {"x", "y"}


def test_writing_a_table_by_name_refuses_as_the_namespace_does(tmp_path):
    namespace = DirectoryNamespace(root=str(tmp_path))
    table = pa.table({"a": [1]})
    named = {"namespace_client": namespace, "table_id": ["t"]}
    for mode in ("append", "overwrite"):
        with pytest.raises(ln.TableNotFoundError):
            lancelet.write_dataset(table, mode=mode, **named)
    lancelet.write_dataset(table, **named)
    with pytest.raises(ln.TableAlreadyExistsError):
        lancelet.write_dataset(table, **named)
    assert lancelet.write_dataset(table, mode="append", **named).count_rows() == 2


def test_a_table_whose_uri_is_given_is_not_requested(tmp_path):
    namespace = DirectoryNamespace(root=str(tmp_path), ops_metrics_enabled="true")
    made = lancelet.write_dataset(pa.table({"a": [1]}), namespace_client=namespace, table_id=["t"])
    namespace.reset_ops_metrics()
    opened = lancelet.LanceDataset(made.uri, namespace_client=namespace, table_id=["t"])
    assert opened.count_rows() == 1
    assert opened._namespace_client is namespace
    assert opened._table_id == ["t"]
    assert namespace.retrieve_ops_metrics() == {}
    lancelet.dataset(namespace_client=namespace, table_id=["t"])
    assert namespace.retrieve_ops_metrics() == {"describe_table": 1}


def names_of(namespace):
    return namespace.list_tables(ln.ListTablesRequest(id=[])).tables


def test_a_renamed_table_has_one_name(namespace, rows, stream_of):
    namespace.create_table(ln.CreateTableRequest(id=["a"]), rows)
    namespace.rename_table(ln.RenameTableRequest(id=["a"], new_table_name="c"))
    assert names_of(namespace) == ["c"]
    with pytest.raises(ln.TableNotFoundError):
        namespace.drop_table(ln.DropTableRequest(id=["a"]))
    # A new table of the old name is another table.
    namespace.create_table(ln.CreateTableRequest(id=["a"]), stream_of(pa.table({"x": [1]})))
    assert names_of(namespace) == ["a", "c"]
    namespace.drop_table(ln.DropTableRequest(id=["a"]))
    assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["c"])).count == 3
    namespace.rename_table(ln.RenameTableRequest(id=["c"], new_table_name="a"))
    assert names_of(namespace) == ["a"]
    namespace.drop_table(ln.DropTableRequest(id=["a"]))
    assert names_of(namespace) == []


@pytest.mark.parametrize("taken_by", ["namespace", "writer"])
def test_a_name_that_a_listing_shows_is_taken(tmp_path, rows, taken_by):
    namespace = DirectoryNamespace(root=str(tmp_path))
    namespace.create_table(ln.CreateTableRequest(id=["a"]), rows)
    if taken_by == "writer":
        lancelet.write_dataset(pa.table({"x": [1]}), str(tmp_path / "b.lance"))
    else:
        namespace.create_table(ln.CreateTableRequest(id=["b"]), rows)
    lancelet.write_dataset(pa.table({"x": [1]}), str(tmp_path / "apart" / "t.lance"))
    for refused in (
        lambda: namespace.rename_table(ln.RenameTableRequest(id=["a"], new_table_name="b")),
        lambda: namespace.register_table(
            ln.RegisterTableRequest(id=["b"], location="apart/t.lance")
        ),
        lambda: namespace.create_table(ln.CreateTableRequest(id=["b"]), rows),
        lambda: namespace.declare_table(ln.DeclareTableRequest(id=["b"])),
    ):
        with pytest.raises(ln.TableAlreadyExistsError):
            refused()
    with pytest.raises(ln.NamespaceAlreadyExistsError):
        namespace.create_namespace(ln.CreateNamespaceRequest(id=["b"]))
    assert names_of(namespace) == ["a", "b"]


def test_a_location_has_one_name(tmp_path, rows):
    namespace = DirectoryNamespace(root=str(tmp_path))
    namespace.create_table(ln.CreateTableRequest(id=["a"]), rows)
    asked = ln.RegisterTableRequest(id=["b"], location="a.lance")
    with pytest.raises(ln.InvalidInputError, match="'a'"):
        namespace.register_table(asked)
    Catalog(str(tmp_path), {}).add(Entry(("b",), TABLE, "a.lance"))
    with pytest.raises(ln.InvalidInputError, match="'b'"):
        namespace.drop_table(ln.DropTableRequest(id=["a"]))
    assert namespace.count_table_rows(ln.CountTableRowsRequest(id=["b"])).count == 3


def test_a_deregistered_table_is_not_listed(tmp_path, rows):
    ours = DirectoryNamespace(root=str(tmp_path))
    theirs = lance.namespace.DirectoryNamespace(root=str(tmp_path))
    ours.create_table(ln.CreateTableRequest(id=["a"]), rows)
    ours.deregister_table(ln.DeregisterTableRequest(id=["a"]))
    assert [names_of(each) for each in (ours, theirs)] == [[], []]
    ours.register_table(ln.RegisterTableRequest(id=["a"], location="a.lance"))
    assert [names_of(each) for each in (ours, theirs)] == [["a"], ["a"]]


def test_a_table_that_could_not_be_written_has_no_name(namespace, rows, stream_of):
    nested = pa.table({"a": pa.array([None], pa.null()), "_rowid": [1]})
    with pytest.raises((ln.LanceNamespaceError, ValueError)):
        namespace.create_table(ln.CreateTableRequest(id=["ns", "t"]), stream_of(nested))
    assert namespace.list_all_tables(ln.ListTablesRequest(id=[])).tables == []
    namespace.create_table(ln.CreateTableRequest(id=["ns", "t"]), rows)


def test_a_declared_table_is_created_later(namespace, rows):
    namespace.declare_table(ln.DeclareTableRequest(id=["later"]))
    namespace.create_table(ln.CreateTableRequest(id=["later"]), rows)
    assert names_of(namespace) == ["later"]
    with pytest.raises(ln.TableAlreadyExistsError):
        namespace.create_table(ln.CreateTableRequest(id=["later"]), rows)


def test_of_two_renames_at_once_one_is_rejected(tmp_path, rows):
    namespace = DirectoryNamespace(root=str(tmp_path))
    namespace.create_table(ln.CreateTableRequest(id=["a"]), rows)
    catalog = Catalog(str(tmp_path), {})
    (entry,) = catalog.find(["a"])
    assert catalog.rename(entry, ["b"]) is True
    assert catalog.rename(entry, ["c"]) is None
    assert catalog.add(entry)
    assert catalog.rename(entry, ["b"]) is False
    assert names_of(namespace) == ["a", "b"]
