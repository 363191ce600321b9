"""Servers of catalog APIs on loopback: Unity Catalog, Apache Polaris and Iceberg REST.

    with UnityServer() as server:
        UnityNamespace(endpoint=server.endpoint, catalog="lake")

They keep namespaces and tables in memory, return short pages, and require the token `TOKEN`, or one
that they issue to the client `CLIENT`. A test can let a request fail: `server.fail_next = 500`.
"""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

Json: TypeAlias = dict[str, Any]
Query: TypeAlias = dict[str, str]
Path: TypeAlias = tuple[str, ...]

TOKEN = "secret-of-tests-7f2c"
CLIENT = ("ann", "client-secret-of-tests-91ab")
PAGE = 2


class RefusedError(Exception):
    """A request that the server refuses."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class CatalogServer:
    """Answers requests by the method `answer` of a subclass."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.namespaces: dict[Path, Json] = {}
        self.tables: dict[Path, Json] = {}
        self.fail_next: int | None = None
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.tokens = {TOKEN}
        self.issued: list[tuple[str, Query]] = []
        self.lifetime_seconds: float | None = 3600
        self.answer_headers: dict[str, str] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def respond(self) -> None:
                received = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                url = urlsplit(self.path)
                authorization = self.headers.get("Authorization")
                owner.headers.append(dict(self.headers))
                if self.headers.get("Content-Type") == "application/x-www-form-urlencoded":
                    status, content = owner.issue(
                        url.path, _plain(received.decode()), authorization
                    )
                else:
                    body = json.loads(received or "{}")
                    status, content = owner.handle(
                        self.command, url.path, _plain(url.query), body, authorization
                    )
                data = json.dumps(content).encode()
                self.send_response(status)
                for name, value in owner.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = respond  # noqa: N815 - names of the base class

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def handle(
        self, method: str, path: str, query: Query, body: Json, authorization: str | None
    ) -> tuple[int, Json]:
        with self.lock:
            self.requests.append((method, path))
            failure, self.fail_next = self.fail_next, None
            parts = [unquote(part) for part in path.split("/")]
            scheme, _, token = (authorization or "").partition(" ")
            if scheme != "Bearer" or token not in self.tokens:
                message = f"invalid token {token}"
                return 401, self.refusal(RefusedError(401, "UNAUTHENTICATED", message))
            if failure is not None:
                return failure, self.refusal(RefusedError(failure, "INTERNAL", "a planned failure"))
            try:
                return 200, self.answer(method, parts, query, body)
            except RefusedError as error:
                return error.status, self.refusal(error)

    def issue(self, path: str, form: Query, authorization: str | None) -> tuple[int, Json]:
        """Issue a token to the client; the client is in the form or in the header."""
        pair: tuple[str | None, ...] = (form.get("client_id"), form.get("client_secret"))
        if authorization is not None:
            given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            pair = tuple(given.split(":"))
        with self.lock:
            self.issued.append((path, form))
            if pair != CLIENT or form.get("grant_type") != "client_credentials":
                return 401, {"error": "invalid_client", "error_description": f"{pair} is wrong"}
            token = f"issued-token-{len(self.issued)}"
            self.tokens.add(token)
            lifetime = self.lifetime_seconds
            answer: Json = {"access_token": token, "token_type": "bearer"}
            return 200, answer if lifetime is None else {**answer, "expires_in": lifetime}

    def refusal(self, error: RefusedError) -> Json:
        """Return the content of an error."""
        raise NotImplementedError

    def answer(self, method: str, parts: list[str], query: Query, body: Json) -> Json:
        """Return the content of an answer."""
        raise NotImplementedError

    def page(self, items: list[Any], token: str | None) -> tuple[list[Any], str | None]:
        start = int(token or 0)
        following = str(start + PAGE) if start + PAGE < len(items) else None
        return items[start : start + PAGE], following


def _plain(text: str) -> Query:
    return {key: values[0] for key, values in parse_qs(text).items()}


class UnityServer(CatalogServer):
    """The REST API of Unity Catalog, with one catalog `lake`."""

    def refusal(self, error: RefusedError) -> Json:
        return {"error_code": error.kind, "message": str(error)}

    def answer(self, method: str, parts: list[str], query: Query, body: Json) -> Json:
        assert parts[1:4] == ["api", "2.1", "unity-catalog"]
        kind, name = parts[4], parts[5] if len(parts) > 5 else ""
        path: Path
        match method, kind:
            case "POST", "schemas":
                path = (body["catalog_name"], body["name"])
                if path in self.namespaces:
                    raise RefusedError(409, "ALREADY_EXISTS", f"schema {path} already exists")
                self.namespaces[path] = body.get("properties") or {}
                return {"name": path[-1], "properties": self.namespaces[path]}
            case "GET", "schemas" if not name:
                names = sorted(path[-1] for path in self.namespaces)
                found, token = self.page(names, query.get("page_token"))
                return {"schemas": [{"name": each} for each in found], "next_page_token": token}
            case _, "schemas":
                path = tuple(name.split("."))
                if path not in self.namespaces:
                    raise RefusedError(404, "NOT_FOUND", f"schema not found: {name}")
                if method == "DELETE":
                    if any(table[:2] == path for table in self.tables):
                        message = "Cannot delete schema with tables"
                        raise RefusedError(400, "FAILED_PRECONDITION", message)
                    return self.namespaces.pop(path) and {}
                return {"name": path[-1], "properties": self.namespaces[path]}
            case "POST", "tables":
                path = (body["catalog_name"], body["schema_name"], body["name"])
                if path[:2] not in self.namespaces:
                    raise RefusedError(404, "NOT_FOUND", f"schema not found: {path[:2]}")
                if path in self.tables:
                    raise RefusedError(400, "ALREADY_EXISTS", f"table already exists: {path}")
                self.tables[path] = body
                return body
            case "GET", "tables" if not name:
                parent = (query["catalog_name"], query["schema_name"])
                if parent not in self.namespaces:
                    raise RefusedError(404, "NOT_FOUND", f"schema not found: {parent}")
                own = [body for path, body in sorted(self.tables.items()) if path[:2] == parent]
                found, token = self.page(own, query.get("page_token"))
                return {"tables": found, "next_page_token": token}
            case _, "tables":
                path = tuple(name.split("."))
                if path not in self.tables:
                    raise RefusedError(404, "NOT_FOUND", f"table not found: {name}")
                return self.tables.pop(path) and {} if method == "DELETE" else self.tables[path]
        raise RefusedError(404, "NOT_FOUND", "there is no such endpoint")


class IcebergServer(CatalogServer):
    """The Iceberg REST API, with the prefix `main`."""

    def refusal(self, error: RefusedError) -> Json:
        return {"error": {"type": error.kind, "message": str(error), "code": error.status}}

    def answer(self, method: str, parts: list[str], query: Query, body: Json) -> Json:
        assert parts[1] == "v1"
        if parts[2:] == ["config"]:
            return {"defaults": {}, "overrides": {"prefix": "main"}}
        assert parts[2] == "main"
        return self.objects(method, parts[3:], query, body)

    def objects(self, method: str, parts: list[str], query: Query, body: Json) -> Json:
        if parts == ["tables", "rename"]:
            source, target = (
                (*body[key]["namespace"], body[key]["name"]) for key in ("source", "destination")
            )
            if source not in self.tables:
                raise RefusedError(404, "NoSuchTableException", "Table does not exist")
            if target in self.tables:
                raise RefusedError(409, "AlreadyExistsException", "Table already exists")
            self.tables[target] = self.tables.pop(source)
            return {}
        if parts == ["namespaces"]:
            return self.namespace_list(method, query, body)
        path = tuple(parts[1].split("\x1f"))
        if path not in self.namespaces:
            raise RefusedError(404, "NoSuchNamespaceException", "Namespace does not exist")
        if len(parts) == 2:
            if method == "DELETE":
                if any(table[:-1] == path for table in self.tables):
                    raise RefusedError(409, "NamespaceNotEmptyException", "Namespace is not empty")
                del self.namespaces[path]
                return {}
            return {"namespace": list(path), "properties": self.namespaces[path]}
        return self.table_request(method, path, parts[2:], query, body)

    def namespace_list(self, method: str, query: Query, body: Json) -> Json:
        if method == "POST":
            path = tuple(body["namespace"])
            if path in self.namespaces:
                raise RefusedError(409, "AlreadyExistsException", "Namespace already exists")
            if path[:-1] and path[:-1] not in self.namespaces:
                raise RefusedError(404, "NoSuchNamespaceException", "Namespace does not exist")
            self.namespaces[path] = body.get("properties") or {}
            return body
        parent = tuple(query["parent"].split("\x1f")) if "parent" in query else ()
        if parent and parent not in self.namespaces:
            raise RefusedError(404, "NoSuchNamespaceException", "Namespace does not exist")
        names = sorted(list(path) for path in self.namespaces if path[:-1] == parent)
        found, token = self.page(names, query.get("pageToken"))
        return {"namespaces": found, "next-page-token": token}

    def table_request(
        self, method: str, path: Path, parts: list[str], query: Query, body: Json
    ) -> Json:
        if len(parts) == 1 and method == "POST":
            if (*path, body["name"]) in self.tables:
                raise RefusedError(409, "AlreadyExistsException", "Table already exists")
            self.tables[*path, body["name"]] = body
            return self.loaded(body)
        if len(parts) == 1:
            own = [
                {"namespace": list(path), "name": table[-1]}
                for table in sorted(self.tables)
                if table[:-1] == path
            ]
            found, token = self.page(own, query.get("pageToken"))
            return {"identifiers": found, "next-page-token": token}
        table = (*path, parts[1])
        if table not in self.tables:
            raise RefusedError(404, "NoSuchTableException", "Table does not exist")
        return (
            self.tables.pop(table) and {} if method == "DELETE" else self.loaded(self.tables[table])
        )

    def loaded(self, body: Json) -> Json:
        return {"metadata": {"location": body["location"], "properties": body["properties"]}}


class PolarisServer(IcebergServer):
    """The REST APIs of Polaris, with one catalog `lake`."""

    def answer(self, method: str, parts: list[str], query: Query, body: Json) -> Json:
        assert parts[1:3] == ["api", "catalog"]
        parts = parts[3:]
        is_generic = parts[0] == "polaris"
        parts = parts[1:] if is_generic else parts
        assert parts[0] == "v1"
        if parts[1] != "lake":
            raise RefusedError(404, "NotFoundException", "Unable to find warehouse")
        assert is_generic == ("generic-tables" in parts)
        return self.objects(method, parts[2:], query, body)

    def loaded(self, body: Json) -> Json:
        return {"table": body}
