"""An HTTP server for the operations of a namespace.

    with RestAdapter("dir", {"root": "shop"}) as server:
        RestNamespace(**server.client_properties).list_tables(...)

Clients send the token of the server; `lancelet.http_server` describes its checks and limits.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import unquote

import lance_namespace
from lance_namespace import LanceNamespace, LanceNamespaceError
from lance_namespace.errors import ErrorCode

from lancelet import surroundings
from lancelet.dataset.session import Session
from lancelet.errors import InvalidInputError, LanceletError, NotFoundError
from lancelet.http_server import HttpServer, Limits, Request, Response, parse_json
from lancelet.namespace.kinds import KINDS, connect
from lancelet.namespace.routes import (
    ARROW_STREAM,
    BINARY,
    DICTS,
    MEDIA_TYPES,
    ROUTES,
    Body,
    Route,
)

_STATUS: Final = {
    ErrorCode.UNSUPPORTED: HTTPStatus.NOT_IMPLEMENTED,
    ErrorCode.INVALID_INPUT: HTTPStatus.BAD_REQUEST,
    ErrorCode.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    ErrorCode.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    ErrorCode.SERVICE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    ErrorCode.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    ErrorCode.NAMESPACE_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.NAMESPACE_NOT_EMPTY: HTTPStatus.CONFLICT,
    ErrorCode.TABLE_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.TABLE_INDEX_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.TABLE_TAG_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.TABLE_BRANCH_ALREADY_EXISTS: HTTPStatus.CONFLICT,
    ErrorCode.CONCURRENT_MODIFICATION: HTTPStatus.CONFLICT,
}


class RestAdapter:
    """Serves a namespace while started; a context manager starts and stops it."""

    def __init__(
        self,
        namespace_client_impl: str,
        namespace_client_properties: Mapping[str, str] | None = None,
        session: Session | None = None,
        host: str | None = None,
        port: int | None = None,
        *,
        token: str | None = None,
        requires_token: bool = True,
        limits: Limits | None = None,
    ) -> None:
        """Configure the server.

        Args:
            namespace_client_impl: The namespace implementation: `dir`, `rest`, `glue`, `hive`,
                `unity`, `polaris` or `iceberg`.
            namespace_client_properties: The properties of the namespace.
            session: Has no effect: sessions are given when a dataset is opened.
            host: The address to listen on, by default loopback.
            port: The port, by default 2333; 0 selects a free port.
            token: The required bearer token; by default a random one, which `start` prints to
                stderr and `client_properties` contains.
            requires_token: Whether a token is required; False accepts all programs that can
                connect, including those of other users of the machine.
            limits: The resource limits for clients.

        Example:
            ```python
            with RestAdapter("dir", {"root": "shop"}, port=0) as server:
                namespace = RestNamespace(**server.client_properties)
            ```
        """
        del session
        if namespace_client_impl not in KINDS:
            raise InvalidInputError(
                "unknown namespace implementation",
                found=namespace_client_impl,
                expected=sorted(KINDS),
            )
        if token == "" or (token is not None and not requires_token):
            raise InvalidInputError("a token must be non-empty and requires `requires_token=True`")
        self._namespace: LanceNamespace = connect(
            namespace_client_impl, namespace_client_properties
        )
        self._is_generated = token is None and requires_token
        self._token = surroundings.new_token() if self._is_generated else token
        self._server = HttpServer(
            self._answer,
            token=self._token,
            host=host or "127.0.0.1",
            port=2333 if port is None else port,
            media_types=("application/json", ARROW_STREAM),
            limits=limits,
        )

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._server.port

    @property
    def token(self) -> str | None:
        """The required bearer token, or None."""
        return self._token

    @property
    def client_properties(self) -> dict[str, str]:
        """The properties of a `RestNamespace` that connects to this server."""
        properties = {"uri": self._server.uri}
        if self._token is not None:
            properties["header.Authorization"] = f"Bearer {self._token}"
        return properties

    def start(self) -> None:
        """Start to listen."""
        self._server.start()
        if self._is_generated:
            header = f"Authorization: Bearer {self._token}"
            sys.stderr.write(f"lancelet namespace at {self._server.uri}, {header}\n")

    def stop(self) -> None:
        """Stop listening."""
        self._server.stop()

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
        return f"RestAdapter({self._server.uri!r})"

    def _answer(self, request: Request) -> Response:
        methods = set()
        for route, pattern in _PATTERNS:
            match = pattern.fullmatch(request.path)
            if match is None:
                continue
            if route.method == request.method:
                return self._serve(route, match.groupdict(), request)
            methods.add(route.method)
        if methods:
            message = f"{request.path} requires the method {' or '.join(sorted(methods))}"
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, message, ErrorCode.UNSUPPORTED)
        return _refusal(HTTPStatus.NOT_FOUND, f"unknown path {request.path}", ErrorCode.UNSUPPORTED)

    def _serve(self, route: Route, names: dict[str, str], request: Request) -> Response:
        expected = MEDIA_TYPES.get(route.body)
        if request.body and request.media_type != expected:
            message = f"{route.operation} requires the Content-Type {expected}"
            return _refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, ErrorCode.INVALID_INPUT)
        try:
            found = _run(self._namespace, route, names, dict(request.query), request.body)
        except LanceNamespaceError as error:
            status = _STATUS.get(error.code, HTTPStatus.NOT_FOUND)
            return _refusal(status, str(error), error.code)
        except NotFoundError as error:
            return _refusal(HTTPStatus.NOT_FOUND, str(error), ErrorCode.TABLE_NOT_FOUND)
        except (ValueError, TypeError, RecursionError) as error:
            return _refusal(HTTPStatus.BAD_REQUEST, str(error), ErrorCode.INVALID_INPUT)
        except (LanceletError, OSError) as error:
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), ErrorCode.INTERNAL)
        is_binary = route.operation in BINARY
        kind = "application/vnd.apache.arrow.file" if is_binary else "application/json"
        return Response(HTTPStatus.OK, found, kind)


def _refusal(status: HTTPStatus, message: str, code: int) -> Response:
    return Response(status, json.dumps({"error": message, "code": int(code)}).encode())


def _run(
    namespace: LanceNamespace,
    route: Route,
    names: dict[str, str],
    query: dict[str, str],
    body: bytes,
) -> bytes:
    """Run an operation, and serialize its response."""
    delimiter = query.pop("delimiter", "$")
    fields: dict[str, Any] = parse_json(body) if route.body is Body.JSON else {}
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
    """Parse the value of a field in the path."""
    kind = str(field.annotation) if field is not None else "str"
    if "Dict" in kind or "bool" in kind or "int" in kind:
        return json.loads(text)
    return text.split(",") if "List" in kind else text


_PATTERNS: Final = [
    (route, re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]*)", re.escape(route.path))))
    for route in ROUTES.values()
]
