"""Headers of requests and answers of a server are context, as the reference has them."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import lance.namespace
import lance_namespace
import pytest

import lancelet.namespace

ANSWER = {"location": "/tmp/x", "version": 1, "tables": ["a"], "context": {"z": "y"}}


class Answering(BaseHTTPRequestHandler):
    """Notes the headers of requests, and answers all of them alike."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        data = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("X-Request-Id", "abc")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST  # noqa: N815 - the base's name

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    running = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    running.seen = []
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}", running.seen
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize("operation", ["describe_table", "list_tables"])
def test_headers_come_and_go_as_context(server, operation):
    uri, seen = server
    kind = {
        "describe_table": lance_namespace.DescribeTableRequest,
        "list_tables": lance_namespace.ListTablesRequest,
    }[operation]
    request = kind(id=["a"], context={"header.X-Mine": "1", "other": "2"})
    found = []
    for library in (lance, lancelet):
        namespace = library.namespace.RestNamespace(uri=uri, **{"header.X-Mine": "0"})
        context = dict(getattr(namespace, operation)(request).context)
        context.pop("header.date")
        found.append(context)
    assert found[0] == found[1]
    assert found[1]["header.x-request-id"] == "abc"
    assert found[1]["z"] == "y"
    assert [each["x-mine"] for each in seen] == ["1", "1"]
    assert all("other" not in each for each in seen)
