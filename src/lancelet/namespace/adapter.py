"""A server for a namespace, so that programs elsewhere can ask it by HTTP."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote, urlsplit

import lance_namespace
from lance_namespace import LanceNamespace, LanceNamespaceError
from lance_namespace.errors import ErrorCode

from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError, LanceletError, NotFoundError
from lancelet.namespace.directory import DirectoryNamespace
from lancelet.namespace.rest import RestNamespace
from lancelet.namespace.routes import BINARY, DICTS, ROUTES, Body, Route

_KINDS: Final = {"dir": DirectoryNamespace, "rest": RestNamespace}
_STATUS: Final = {
    ErrorCode.UNSUPPORTED: HTTPStatus.NOT_IMPLEMENTED,
    ErrorCode.INVALID_INPUT: HTTPStatus.BAD_REQUEST,
    ErrorCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    ErrorCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    ErrorCode.SERVICE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
_BODY_BYTES_MAX: Final = 1 << 34


class RestAdapter:
    """Serves a namespace while it is started; a context manager starts and stops it."""

    def __init__(
        self,
        namespace_client_impl: str,
        namespace_client_properties: Mapping[str, str] | None = None,
        session: Session | None = None,
        host: str | None = None,
        port: int | None = None,
    ) -> None:
        """Serve a namespace of a kind.

        Args:
            namespace_client_impl: `dir` or `rest`.
            namespace_client_properties: The properties of the namespace.
            session: Has no effect: a dataset is given one when it is opened.
            host: Which address to listen at, by default this machine's own.
            port: Which port, by default 2333; 0 takes any that is free.
        """
        del session
        kind = _KINDS.get(namespace_client_impl)
        if kind is None:
            raise InvalidInputError(
                "a namespace is of no such kind", kind=namespace_client_impl, known=sorted(_KINDS)
            )
        self._namespace: LanceNamespace = kind(**dict(namespace_client_properties or {}))
        self._address = (host or "127.0.0.1", 2333 if port is None else port)
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that the server listens at."""
        return self._address[1] if self._server is None else int(self._server.server_port)

    def start(self) -> None:
        """Begin to listen."""
        if self._server is not None:
            return
        namespace = self._namespace

        class Handler(_Handler):
            served = namespace

        self._server = ThreadingHTTPServer(self._address, Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"RestAdapter(host={self._address[0]!r}, port={self.port})"


class _Handler(BaseHTTPRequestHandler):
    """Answers one request after the other of a client."""

    served: LanceNamespace
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self._answer("GET", b"")

    def do_POST(self) -> None:
        """Answer a request with a body."""
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= _BODY_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large", 13)
            return
        self._answer("POST", self.rfile.read(size))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: who asked what is for the program to log."""

    def _answer(self, method: str, body: bytes) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        for route, pattern in _PATTERNS:
            match = pattern.fullmatch(parts.path)
            if match is not None and route.method == method:
                self._serve(route, match.groupdict(), query, body)
                return
        self._refuse(HTTPStatus.NOT_FOUND, f"nothing is at {parts.path}", ErrorCode.UNSUPPORTED)

    def _serve(
        self, route: Route, names: dict[str, str], query: dict[str, str], body: bytes
    ) -> None:
        try:
            found = _run(self.served, route, names, query, body)
        except LanceNamespaceError as error:
            status = _STATUS.get(error.code, HTTPStatus.NOT_FOUND)
            if "already exists" in str(error).lower() or "not empty" in str(error).lower():
                status = HTTPStatus.CONFLICT
            self._refuse(status, str(error), error.code)
        except NotFoundError as error:
            self._refuse(HTTPStatus.NOT_FOUND, str(error), ErrorCode.TABLE_NOT_FOUND)
        except (ValueError, TypeError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error), ErrorCode.INVALID_INPUT)
        except (LanceletError, OSError) as error:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), ErrorCode.INTERNAL)
        else:
            self._send(HTTPStatus.OK, found, route.operation in BINARY)

    def _refuse(self, status: HTTPStatus, message: str, code: int) -> None:
        told = {"error": message, "code": int(code)}
        self._send(status, json.dumps(told).encode(), False)

    def _send(self, status: HTTPStatus, data: bytes, is_binary: bool) -> None:
        self.send_response(status)
        kind = "application/vnd.apache.arrow.file" if is_binary else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _run(
    namespace: LanceNamespace,
    route: Route,
    names: dict[str, str],
    query: dict[str, str],
    body: bytes,
) -> bytes:
    """Do an operation, and return its answer as bytes."""
    delimiter = query.pop("delimiter", "$")
    fields: dict[str, Any] = json.loads(body) if route.body is Body.JSON and body.strip() else {}
    kind = getattr(lance_namespace, route.request)
    for name, text in query.items():
        fields[name] = _value(kind.model_fields.get(name), text)
    object_id = unquote(names.get("id", delimiter))
    fields["id"] = [] if object_id == delimiter else object_id.split(delimiter)
    if "index_name" in names:
        fields["index_name"] = unquote(names["index_name"])
    method = getattr(namespace, route.operation)
    if route.operation in DICTS:
        return json.dumps(method(fields)).encode()
    request = kind.from_dict(fields)
    found = method(request, body) if route.body is Body.ARROW else method(request)
    if route.operation in BINARY:
        data: bytes = found.data
        return data
    if isinstance(found, str):
        return json.dumps({route.plain: found}).encode()
    shown = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(shown[route.plain] if route.plain is not None else shown).encode()


def _value(field: Any, text: str) -> Any:
    """Return the value of a field that was part of the path."""
    kind = str(field.annotation) if field is not None else "str"
    if "Dict" in kind or "bool" in kind or "int" in kind:
        return json.loads(text)
    return text.split(",") if "List" in kind else text


_PATTERNS: Final = [
    (route, re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]*)", re.escape(route.path))))
    for route in ROUTES.values()
]
