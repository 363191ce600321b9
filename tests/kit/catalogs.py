"""Catalogs for tests: a folder, Glue by moto, and servers of the other APIs on loopback.

    with catalog("polaris", tmp_path) as opened:
        opened.namespace.create_namespace(CreateNamespaceRequest(id=opened.path("sales")))

`RequestFaults` stops one request of a client.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar
from unittest import mock

import pyarrow as pa

from lancelet.namespace import connect, json_client
from lancelet.namespace.thrift import Struct, ThriftConnection
from lancelet.values import dataclass
from tests.kit.catalog_servers import (
    TOKEN,
    CatalogServer,
    IcebergServer,
    PolarisServer,
    UnityServer,
)
from tests.kit.hive_server import HiveServer

T = TypeVar("T")

SERVERS: Final = {"unity": UnityServer, "polaris": PolarisServer, "iceberg": IcebergServer}
KINDS: Final = ("glue", "hive", *SERVERS)
"""The kinds of external catalogs."""
FIRST: Final = {"unity": ("lake",), "polaris": ("lake",)}
"""The first parts of paths, which are the names of catalogs."""
RENAMING: Final = frozenset({"dir", "hive", "iceberg"})
"""The kinds that rename tables."""

Fault: TypeAlias = Literal["refuse", "lose_reply", "die_before", "die_after"]


class ProcessDeathError(BaseException):
    """Stands for the end of the process."""


@dataclass(frozen=True, slots=True)
class OpenCatalog:
    """A catalog of a kind, a client, and the server unless it is Glue or a folder."""

    kind: str
    properties: dict[str, str]
    root: Path
    namespace: Any
    server: CatalogServer | HiveServer | None = None

    def connect(self, **properties: str) -> Any:
        """Return another client."""
        return connect(self.kind, {**self.properties, **properties})

    def path(self, *names: str) -> list[str]:
        """Return the id of names below the first parts."""
        return [*FIRST.get(self.kind, ()), *names]

    def fail_next(self) -> None:
        """Let the server refuse the next request."""
        if isinstance(self.server, HiveServer):
            self.server.fault = "fail"
        elif self.server is not None:
            self.server.fail_next = 500


def stream_of(rows: pa.Table) -> bytes:
    """Return rows in the Arrow IPC stream format, as `create_table` takes them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


@contextmanager
def catalog(kind: str, folder: Path) -> Iterator[OpenCatalog]:
    """Open an empty catalog; new tables are in `folder / "lake"`."""
    root = folder / "lake"
    properties = {"root": str(root)}
    with ExitStack() as stack:
        server: Any = None
        if kind == "glue":
            import moto

            # moto accepts any credentials; others of the machine must not be used.
            given = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
            stack.enter_context(mock.patch.dict(os.environ, given))
            stack.enter_context(moto.mock_aws())
            properties["region"] = "us-east-1"
        elif kind == "hive":
            server = stack.enter_context(HiveServer())
            properties["uri"] = server.uri
        elif kind in SERVERS:
            server = stack.enter_context(SERVERS[kind]())
            properties |= {"endpoint": server.endpoint, "auth_token": TOKEN}
            if kind == "unity":
                properties["catalog"] = "lake"
        yield OpenCatalog(kind, properties, root, connect(kind, properties), server)


class RequestFaults:
    """Stops the request number `at`, counted from 0, and with `is_lasting` all later ones.

    refuse       the connection fails before the request is executed
    lose_reply   the request is executed, and the connection fails
    die_before   the process ends before the request
    die_after    the process ends after the request
    """

    def __init__(self, fault: Fault, at: int, *, is_lasting: bool = False) -> None:
        """Stop a request."""
        self._fault, self._at, self._is_lasting = fault, at, is_lasting
        self._lock = threading.Lock()
        self.count = 0

    @property
    def fired(self) -> bool:
        """Whether a request was stopped."""
        return self.count > self._at

    def run(self, send: Callable[[], T], failure: Exception) -> T:
        """Send a request, or stop it."""
        with self._lock:
            number = self.count
            self.count += 1
        if number != self._at and not (self._is_lasting and number > self._at):
            return send()
        if self._fault in {"lose_reply", "die_after"}:
            send()
        if self._fault in {"die_before", "die_after"}:
            raise ProcessDeathError
        raise failure

    @contextmanager
    def of(self, namespace: Any) -> Iterator[None]:
        """Count and stop the requests of a namespace of Glue, or of all others of its protocol."""
        if "Hive" in type(namespace).__name__:
            call = ThriftConnection.call

            def called(connection: ThriftConnection, name: str, arguments: Struct) -> Struct:
                failure = ConnectionResetError("reset by a test")
                return self.run(lambda: call(connection, name, arguments), failure)

            with mock.patch.object(ThriftConnection, "call", called):
                yield
            return
        if "Glue" not in type(namespace).__name__:
            send = json_client._OPENER.open

            def opened(request: Any, timeout: float) -> Any:
                failure = ConnectionResetError("reset by a test")
                return self.run(lambda: send(request, timeout=timeout), failure)

            with mock.patch.object(json_client._OPENER, "open", opened):
                yield
            return
        from botocore.exceptions import ConnectionClosedError
        from moto.core.models import botocore_stubber

        def sent(request: Any, event_name: str, **_: Any) -> Any:
            failure = ConnectionClosedError(endpoint_url=request.url)
            return self.run(lambda: botocore_stubber(event_name, request), failure)

        clients = (namespace._catalog._reader, namespace._catalog._writer)
        for client in clients:
            client.meta.events.register_first("before-send.glue", sent)
        yield
        for client in clients:
            client.meta.events.unregister("before-send.glue", sent)
