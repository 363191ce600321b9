"""Requests of browser pages, other users and slow clients are refused."""

import json
import socket
import threading

import lance_namespace as ln
import pytest

from lancelet.cli.viewer.server import server_of
from lancelet.cli.viewer.tables import Shown
from lancelet.errors import InvalidInputError
from lancelet.http_server import HttpServer, Limits, Response
from lancelet.namespace import RestAdapter, RestNamespace

TOKEN = "s3cr3t"
LIMITS = Limits(
    header_bytes_max=4096,
    body_bytes_max=1 << 16,
    json_bytes_max=1 << 12,
    idle_seconds=0.2,
    connections_max=8,
    threads=2,
)


def echo(request):
    if request.path == "/fail":
        raise KeyError("secret detail")
    told = {"method": request.method, "path": request.path, "bytes": len(request.body)}
    return Response(200, json.dumps(told).encode())


@pytest.fixture(params=["echo", "namespace", "viewer"])
def server(request, tmp_path):
    """Return each kind of server with small limits."""
    if request.param == "echo":
        with HttpServer(echo, token=TOKEN, limits=LIMITS) as started:
            yield started, TOKEN
    elif request.param == "namespace":
        adapter = RestAdapter("dir", {"root": str(tmp_path)}, port=0, token=TOKEN, limits=LIMITS)
        with adapter:
            yield adapter._server, TOKEN
    else:
        started, token = server_of(Shown(str(tmp_path), {}, can_write=True), limits=LIMITS)
        with started:
            yield started, token


@pytest.fixture
def echoing():
    with HttpServer(echo, token=TOKEN, limits=LIMITS) as started:
        yield started


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port))


def read_all(connection):
    """Return all bytes until the server closes the connection."""
    received = b""
    try:
        while part := connection.recv(1 << 16):
            received += part
    except ConnectionResetError:
        pass
    return received


def head(server, line="GET /v1/table HTTP/1.1", token=TOKEN, **headers):
    """Return the head of a request; a header that is None is left out."""
    sent = {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {token}",
        "Connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}" for name, value in sent.items() if value is not None]
    return "\r\n".join([line, *lines, "", ""]).encode()


def ask(server, *arguments, body=b"", **headers):
    """Return the status of an answer, 0 if there is none, and all bytes."""
    with connect(server) as connection:
        connection.sendall(head(server, *arguments, **headers) + body)
        received = read_all(connection)
    return int(received[9:12] or 0), received


def test_requests_without_the_token_are_rejected(server):
    started, token = server
    for wrong in (None, "Bearer ", "Bearer x", f"Basic {token}", token):
        status, received = ask(started, Authorization=wrong)
        assert status in {401, 403}
        assert token.encode() not in received
    assert ask(started, "POST /v1/table/t/drop HTTP/1.1", Authorization=None)[0] in {401, 403}
    assert ask(started, token=token)[0] in {200, 404}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": None},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://evil.example"},
    ],
    ids=str,
)
def test_other_hosts_and_origins_are_rejected(server, headers):
    started, token = server
    assert ask(started, token=token, **headers)[0] == 421
    own = {"Host": f"localhost:{started.port}", "Origin": f"http://localhost:{started.port}"}
    assert ask(started, token=token, **own)[0] in {200, 404}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_of_another_type_is_rejected(server, kind):
    started, token = server
    asked = {"token": token, "Content_Type": kind, "Content_Length": "2"}
    status, received = ask(started, "POST /v1/table/t/drop HTTP/1.1", body=b"{}", **asked)
    assert status == 415
    assert b"application/json" in received or b"a request without a body" in received


@pytest.mark.parametrize("length", ["x", "-1", "1e3", "0x10", "9" * 30, "+1", "1 1", ""])
def test_a_bad_length_is_a_bad_request(server, length):
    started, token = server
    asked = {"token": token, "Content_Type": "application/json", "Content_Length": length}
    status, received = ask(started, "POST /v1/table HTTP/1.1", **asked)
    assert status == 400
    assert b"Connection: close" in received


def test_a_body_that_is_too_large_is_rejected_and_not_parsed_as_a_request(echoing):
    smuggled = head(echoing, "GET /smuggled HTTP/1.1")
    for length in (str(len(smuggled) + (1 << 12)), str(8 << 30)):
        status, received = ask(
            echoing,
            "POST /a HTTP/1.1",
            body=smuggled,
            Content_Type="application/json",
            Content_Length=length,
            Connection="keep-alive",
        )
        assert status == 413
        assert received.count(b"HTTP/1.1 ") == 1
        assert b"smuggled" not in received


def test_chunked_bodies_and_repeated_headers_are_rejected(echoing):
    assert ask(echoing, "POST /a HTTP/1.1", Transfer_Encoding="chunked")[0] == 411
    line = "POST /a HTTP/1.1\r\nContent-Length: 1"
    assert ask(echoing, line, Content_Length="5", Content_Type="application/json")[0] == 400
    for malformed in ("GARBAGE", "GET /a", "GET /a HTTP/2.0", "GET /a HTTP/1.1\r\n folded: x"):
        assert ask(echoing, malformed)[0] == 400


def test_large_headers_are_rejected(server):
    started, token = server
    assert ask(started, token=token, X="x" * 8192)[0] in {0, 431}


def test_clients_that_send_nothing_or_slowly_are_disconnected(server):
    started, token = server
    whole = head(started, "POST /v1/table HTTP/1.1", token=token)
    for sent in (b"", whole[:20], whole[:-2]):
        with connect(started) as connection:
            connection.sendall(sent)
            assert read_all(connection) == b""


def test_a_body_that_does_not_arrive_is_not_waited_for(echoing):
    asked = {"Content_Type": "application/json", "Content_Length": "100"}
    assert ask(echoing, "POST /a HTTP/1.1", body=b"{", **asked) == (0, b"")


def test_open_connections_take_no_threads_and_are_limited():
    limits = Limits(idle_seconds=60.0, connections_max=8, threads=1)
    with HttpServer(echo, token=TOKEN, limits=limits) as echoing:
        idle = [connect(echoing) for _ in range(7)]
        for connection in idle:
            connection.sendall(b"GET / HT")
        assert ask(echoing)[0] == 200
        idle += [connect(echoing) for _ in range(2)]
        for connection in idle[-2:]:
            connection.sendall(b"GET / HT")
        # One of the last two has no place.
        with connect(echoing) as refused:
            assert read_all(refused) == b""
        for connection in idle:
            connection.close()


def test_a_connection_answers_several_requests(echoing):
    with connect(echoing) as connection:
        more = head(echoing, Connection="keep-alive")
        body = head(
            echoing,
            "POST /a HTTP/1.1",
            Connection="keep-alive",
            Content_Type="application/json",
            Content_Length="2",
        )
        connection.sendall(more + body + b"{}" + head(echoing))
        received = read_all(connection)
    assert received.count(b"HTTP/1.1 200") == 3
    assert b'"bytes": 2' in received


def test_an_internal_error_of_the_service_has_no_details(echoing, caplog):
    status, received = ask(echoing, "GET /fail HTTP/1.1")
    assert status == 500
    assert b"secret detail" not in received
    assert "internal server error" in caplog.text


def test_deep_json_is_a_bad_request(tmp_path):
    with RestAdapter("dir", {"root": str(tmp_path)}, port=0, token=TOKEN) as adapter:
        for body in (
            b'{"a":' * 100_000,
            b"[" * 100_000 + b"]" * 100_000,
            b"[]",
            b"1",
            b"{",
            b"\xff",
        ):
            asked = {"Content_Type": "application/json", "Content_Length": str(len(body))}
            line = "POST /v1/table/t/describe HTTP/1.1"
            status, received = ask(adapter._server, line, body=body, **asked)
            assert status == 400
            assert "error" in json.loads(received.partition(b"\r\n\r\n")[2])


def test_a_token_is_generated_and_printed(tmp_path, capsys):
    with RestAdapter("dir", {"root": str(tmp_path)}, port=0) as adapter:
        assert f"Bearer {adapter.token}" in capsys.readouterr().err
        assert ask(adapter._server)[0] == 401
        namespace = RestNamespace(**adapter.client_properties)
        assert namespace.list_tables(ln.ListTablesRequest(id=[])).tables == []
        assert adapter.token not in repr(adapter)
        assert adapter.token not in repr(namespace)


def test_a_token_is_not_required_if_its_owner_says_so(tmp_path):
    with RestAdapter("dir", {"root": str(tmp_path)}, port=0, requires_token=False) as adapter:
        assert ask(adapter._server, Authorization=None)[0] == 200
        assert ask(adapter._server, Authorization=None, Origin="http://evil.example")[0] == 421
    with pytest.raises(InvalidInputError, match="token"):
        RestAdapter("dir", {"root": str(tmp_path)}, token="x", requires_token=False)
    with pytest.raises(InvalidInputError, match="token"):
        RestAdapter("dir", {"root": str(tmp_path)}, token="")


def test_the_page_is_opened_by_its_address(tmp_path):
    server, token = server_of(Shown(str(tmp_path), {}, can_write=False))
    with server:
        status, received = ask(server, f"GET /?token={token} HTTP/1.1", Authorization=None)
        assert status == 303
        assert b"SameSite=strict" in received
        cookie = {"Authorization": None, "Cookie": f"a=b; lancelet_token_{server.port}={token}"}
        assert ask(server, "GET / HTTP/1.1", **cookie)[0] == 200
        assert ask(server, "GET /viewer.js HTTP/1.1", **cookie)[0] == 200
        assert ask(server, "GET /viewer.py HTTP/1.1", **cookie)[0] == 404
        assert ask(server, "GET /api/change HTTP/1.1", **cookie)[0] == 405


def test_a_server_without_threads_is_an_error():
    server = HttpServer(lambda _: Response(200), token=None, limits=Limits(threads=0))
    with pytest.raises(ValueError, match="max_workers"):
        server.start()


def test_a_request_is_abandoned_when_its_client_has_left():
    has_started, has_ended, seen = threading.Event(), threading.Event(), []

    def answer(request):
        has_started.set()
        seen.append(request.abandoned.wait(60))
        has_ended.set()
        return Response(200)

    with HttpServer(answer, token=None) as server:
        client = connect(server)
        client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert has_started.wait(60)
        client.close()
        assert has_ended.wait(60)
    assert seen == [True]
