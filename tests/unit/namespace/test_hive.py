"""The namespace of a Hive metastore when connections break, and what its entries contain."""

import socket
import threading

import pytest
from lance_namespace import (
    ConcurrentModificationError,
    CreateNamespaceRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeNamespaceRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    InvalidInputError,
    ListNamespacesRequest,
    ListTablesRequest,
    NamespaceNotFoundError,
    PermissionDeniedError,
    RenameTableRequest,
    ServiceUnavailableError,
    TableNotFoundError,
    UnsupportedOperationError,
)

import lancelet.errors
from lancelet.namespace import OutcomeUnknownError, connect
from lancelet.namespace.thrift import Kind, content_of, text, text_map
from tests.kit.hive_server import HiveServer

ORDERS = ["sales", "orders"]


@pytest.fixture
def server():
    with HiveServer() as server:
        yield server


@pytest.fixture
def namespace(server, tmp_path):
    namespace = connect("hive", {"uri": server.uri, "root": str(tmp_path)})
    namespace.create_namespace(CreateNamespaceRequest(id=["sales"]))
    return namespace


def declare(namespace, path=ORDERS):
    return namespace.declare_table(DeclareTableRequest(id=path))


def listed(namespace):
    return namespace.list_tables(ListTablesRequest(id=["sales"])).tables


def test_reads_are_repeated_over_a_new_connection(server, namespace):
    for fault in ("refuse", "lose_reply"):
        server.fault = fault
        assert listed(namespace) == []


CHANGES = {
    "create_database": lambda ns: ns.create_namespace(CreateNamespaceRequest(id=["new"])),
    "create_table": lambda ns: declare(ns, ["sales", "new"]),
    "drop_table": lambda ns: ns.deregister_table(DeregisterTableRequest(id=ORDERS)),
    "alter_table_with_environment_context": lambda ns: ns.rename_table(
        RenameTableRequest(id=ORDERS, new_table_name="renamed")
    ),
    "drop_database": lambda ns: ns.drop_namespace(DropNamespaceRequest(id=["empty"])),
}


def at_change(server, method, fault):
    """Plan a fault for the next call of a method."""
    answer = server.answer

    def answer_with_fault(source, target):
        if method.encode() in source.peek(1):
            server.fault, server.answer = fault, answer
        return answer(source, target)

    server.answer = answer_with_fault


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("method", CHANGES)
def test_a_change_without_a_reply_is_verified_and_never_repeated(server, namespace, method, fault):
    namespace.create_namespace(CreateNamespaceRequest(id=["empty"]))
    declare(namespace)
    server.calls.clear()
    at_change(server, method, fault)
    if fault == "refuse":
        with pytest.raises(OutcomeUnknownError, match="before a retry"):
            CHANGES[method](namespace)
    else:
        CHANGES[method](namespace)
    assert server.calls.count(method) == 1
    databases, tables = set(server.databases), {name for _, name in server.tables}
    took_effect = {
        "create_database": "new" in databases,
        "create_table": "new" in tables,
        "drop_table": "orders" not in tables,
        "alter_table_with_environment_context": tables == {"renamed"},
        "drop_database": "empty" not in databases,
    }
    assert took_effect.pop(method) == (fault == "lose_reply")
    assert not any(took_effect.values()) or method.startswith("alter")


def test_a_closed_idle_connection_is_not_used_for_a_change(server, namespace):
    server.fault = "close"
    assert listed(namespace) == []
    declare(namespace)
    assert server.calls.count("create_table") == 1


def test_a_rename_does_not_overwrite_a_new_entry_of_the_same_name(server, namespace, tmp_path):
    declare(namespace)
    read = namespace._catalog._table
    stale = read(("sales", "orders"))
    namespace.deregister_table(DeregisterTableRequest(id=ORDERS))
    location = str(tmp_path / "other")
    namespace.declare_table(DeclareTableRequest(id=ORDERS, location=location))
    namespace._catalog._table = lambda _: dict(stale)
    with pytest.raises(ConcurrentModificationError, match="another program"):
        namespace.rename_table(RenameTableRequest(id=ORDERS, new_table_name="renamed"))
    namespace._catalog._table = read
    assert namespace.describe_table(DescribeTableRequest(id=ORDERS)).location == location


def test_of_concurrent_renames_one_succeeds(server, namespace):
    declare(namespace)
    barrier, done = threading.Barrier(4), []

    def rename(number):
        barrier.wait()
        try:
            namespace.rename_table(RenameTableRequest(id=ORDERS, new_table_name=f"t{number}"))
        except (ConcurrentModificationError, TableNotFoundError):
            return
        done.append(f"t{number}")

    threads = [threading.Thread(target=rename, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert listed(namespace) == done
    assert len(done) == 1


def test_a_rename_moves_to_another_database_with_all_fields_of_the_entry(server, namespace):
    namespace.create_namespace(CreateNamespaceRequest(id=["archive"]))
    declare(namespace)
    server.tables["sales", "orders"] |= {99: (Kind.I64, 7), 98: (Kind.SET, (Kind.I16, [1]))}
    request = RenameTableRequest(id=ORDERS, new_namespace_id=["archive"], new_table_name="old")
    namespace.rename_table(request)
    moved = server.tables["archive", "old"]
    assert (moved[99], moved[98]) == ((Kind.I64, 7), (Kind.SET, (Kind.I16, [1])))
    missing = RenameTableRequest(
        id=["archive", "old"], new_namespace_id=["none"], new_table_name="old"
    )
    with pytest.raises(NamespaceNotFoundError, match="none"):
        namespace.rename_table(missing)


def test_tables_whose_files_the_metastore_would_move_are_not_renamed(server, namespace):
    declare(namespace)
    entry = server.tables["sales", "orders"]
    entry[9] = text_map({"table_type": "LANCE"})
    with pytest.raises(UnsupportedOperationError, match="register its location"):
        namespace.rename_table(RenameTableRequest(id=ORDERS, new_table_name="renamed"))


def test_names_are_lower_case(namespace):
    declare(namespace, ["Sales", "Orders"])
    assert listed(namespace) == ["orders"]
    namespace.deregister_table(DeregisterTableRequest(id=["SALES", "ORDERS"]))
    assert listed(namespace) == []


def test_databases_have_a_location_a_comment_and_an_owner(server, namespace, tmp_path):
    given = {"location": str(tmp_path / "own"), "comment": "hers", "owner": "ann", "tier": "1"}
    namespace.create_namespace(CreateNamespaceRequest(id=["hers"], properties=given))
    found = namespace.describe_namespace(DescribeNamespaceRequest(id=["hers"]))
    assert found.properties == given
    without_root = connect("hive", {"uri": server.uri})
    assert declare(without_root, ["hers", "t"]).location.startswith(f"{tmp_path}/own/t_")
    without_root.create_namespace(CreateNamespaceRequest(id=["bare"]))
    assert declare(without_root, ["bare", "t"]).location.startswith("/warehouse/bare.db/t_")
    with pytest.raises(InvalidInputError, match="valid"):
        namespace.create_namespace(CreateNamespaceRequest(id=["a-b"]))


def test_many_tables_are_listed_in_several_calls(server, namespace, monkeypatch):
    monkeypatch.setattr("lancelet.namespace.hive._TABLES_PER_CALL", 2)
    for number in range(5):
        declare(namespace, ["sales", f"t{number}"])
    server.calls.clear()
    assert listed(namespace) == [f"t{number}" for number in range(5)]
    assert server.calls.count("get_table_objects_by_name_req") == 3


def test_the_user_and_groups_are_sent_with_each_connection(server):
    namespace = connect("hive", {"uri": server.uri, "ugi": "ann:staff,analysts"})
    namespace.list_namespaces(ListNamespacesRequest(id=[]))
    namespace.list_namespaces(ListNamespacesRequest(id=[]))
    assert server.users == [("ann", ["staff", "analysts"])]


def test_the_first_metastore_that_answers_is_used(server):
    namespace = connect("hive", {"uri": f"thrift://127.0.0.1:9,{server.uri}"})
    assert namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces == ["default"]


def test_an_unreachable_metastore_is_reported():
    namespace = connect("hive", {"uri": "thrift://127.0.0.1:9"})
    with pytest.raises(ServiceUnavailableError, match=r"cannot connect to 127\.0\.0\.1:9"):
        listed(namespace)


def test_a_peer_that_is_no_metastore_is_reported():
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        for _ in range(2):
            peer = listener.accept()[0]
            peer.recv(1)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

    thread = threading.Thread(target=answer)
    thread.start()
    namespace = connect("hive", {"uri": f"thrift://127.0.0.1:{listener.getsockname()[1]}"})
    with pytest.raises(ServiceUnavailableError, match="SASL"):
        listed(namespace)
    thread.join()
    listener.close()


def test_a_metastore_that_does_not_answer_in_time_is_asked_once():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"thrift://127.0.0.1:{listener.getsockname()[1]}"
        namespace = connect("hive", {"uri": uri, "read_timeout": "0.1"})
        with pytest.raises(ServiceUnavailableError, match="TimeoutError"):
            listed(namespace)
        listener.accept()[0].close()
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_method_that_the_metastore_does_not_have_is_named(server, namespace):
    server.get_all_tables = None
    with pytest.raises(UnsupportedOperationError, match="get_all_tables"):
        listed(namespace)


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({"uri": "http://localhost"}, lancelet.errors.InvalidInputError, "thrift://"),
        ({"uri": "thrift://h:x"}, lancelet.errors.InvalidInputError, "thrift://"),
        ({"client.pool-size": "-1"}, lancelet.errors.InvalidInputError, "number"),
        ({"read_timeout": "0"}, lancelet.errors.InvalidInputError, "positive"),
        ({"hive.metastore.sasl.enabled": "true"}, UnsupportedOperationError, "does not require"),
        ({"kerberos.principal": "hive/_HOST@X"}, UnsupportedOperationError, "Kerberos"),
    ],
)
def test_unsuitable_properties_are_rejected(properties, error, message):
    with pytest.raises(error, match=message):
        connect("hive", properties)


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("java.security.AccessControlException: denied", PermissionDeniedError),
        ("Permission denied: user=ann", PermissionDeniedError),
        ("out of space at s3://user:secret-word@bucket", OutcomeUnknownError),
    ],
)
def test_failures_of_the_metastore_have_classes_and_no_secrets(server, namespace, message, error):
    server.create_table = lambda _: {3: (Kind.STRUCT, {1: text(message)})}
    with pytest.raises(error) as raised:
        declare(namespace)
    assert "secret-word" not in str(raised.value)


def test_entries_are_external_tables_with_the_markers_of_lance(server, namespace):
    declare(namespace)
    entry = server.tables["sales", "orders"]
    parameters = content_of(entry, 9)
    assert content_of(entry, 12) == "EXTERNAL_TABLE"
    assert (parameters["table_type"], parameters["EXTERNAL"]) == ("lance", "TRUE")
