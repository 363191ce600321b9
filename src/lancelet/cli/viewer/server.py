"""The HTTP server of the viewer: loopback only, with a token per server.

The printed address contains the token, which the server sets as a cookie (SameSite=Strict).
`lancelet.http_server` describes the checks and limits of requests. All responses are JSON, except
for the files of the page, exports and binary values.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lancelet import surroundings
from lancelet.change.progress import reporting
from lancelet.cli.exit_codes import ExitCode, exit_code_of
from lancelet.cli.output import json_value
from lancelet.cli.viewer import history, internals, rows, tables
from lancelet.cli.viewer.tables import Download, Shown
from lancelet.errors import CancelledError, LanceletError
from lancelet.http_server import HttpServer, Limits, Request, Response

_FILES: Final = Path(__file__).parent / "page"
_PORTS: Final = range(20_000, 30_000)
_COOKIE: Final = "lancelet_token"
_MEDIA_TYPES: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_PAGE: Final = (
    "index.html",
    "viewer.css",
    "viewer.js",
    "base.js",
    "values.js",
    "widgets.js",
)
_STATUS: Final = {
    ExitCode.NOT_FOUND: 404,
    ExitCode.USAGE: 400,
    ExitCode.UNSUPPORTED: 403,
    ExitCode.EXISTS: 409,
    ExitCode.CONFLICT: 409,
}
_READS: Final = (
    tables.list_tables,
    tables.overview,
    tables.describe,
    rows.rows,
    rows.row,
    rows.blob,
    rows.search,
    rows.sql,
    rows.statistics,
    rows.export,
    history.versions,
    history.difference,
    internals.pages,
    internals.indices,
    internals.recall,
    internals.plan,
    internals.health,
)

Answer = Callable[[Shown, Mapping[str, str]], dict[str, Any] | Download]


def _page(name: str) -> Answer:
    kind = f"{_MEDIA_TYPES[name.rpartition('.')[2]]}; charset=utf-8"
    return lambda _shown, _request: Download((_FILES / name).read_bytes(), kind)


_ANSWERS: Final[Mapping[str, tuple[str, Answer]]] = {
    "/api/change": ("POST", tables.change),
    **{f"/api/{answer.__name__}": ("GET", answer) for answer in _READS},
    **{f"/{name}": ("GET", _page(name)) for name in _PAGE},
    "/": ("GET", _page("index.html")),
}


def server_of(shown: Shown, port: int = 0, limits: Limits | None = None) -> tuple[HttpServer, str]:
    """Return a server that shows tables to requests with its token, and the token."""
    token = surroundings.new_token()

    # Requests have no bodies; all arguments are in the URL.
    server = HttpServer(
        partial(answer, shown),
        token=token,
        port=port,
        cookie=_COOKIE,
        media_types=(),
        limits=limits,
    )
    return server, token


def serve(shown: Shown, port: int | None, started: Callable[[str], None]) -> None:
    """Serve until interrupted; `started` receives the address with the token.

    Port 0 selects a free port. By default, the port depends on the folder, because browsers store
    settings of a page by port; if it is in use, a free port is selected.
    """
    server, token = server_of(shown, port_of(shown.label) if port is None else port)
    try:
        server.start()
    except OSError:
        if port is not None:
            raise
        server, token = server_of(shown)
    with server:
        started(f"{server.uri}/?token={token}")
        server.wait()


def port_of(root: str) -> int:
    """Return the preferred port of a folder."""
    where = root if "://" in root else os.path.realpath(root)
    return _PORTS[zlib.crc32(where.encode()) % len(_PORTS)]


def answer(shown: Shown, request: Request) -> Response:
    """Return the response to a request; every error is a JSON object."""
    if request.path not in _ANSWERS:
        return _error(HTTPStatus.NOT_FOUND, f"unknown path {request.path}", "NotFoundError")
    method, function = _ANSWERS[request.path]
    if request.method != method:
        message = f"the path accepts {method} only"
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, message, "MethodNotAllowed", {"Allow": method})

    def check(_stage: str, _done: int, _total: int) -> None:
        if request.abandoned.is_set():
            raise CancelledError("the client closed the connection")

    try:
        with reporting(check):
            return _response(function(shown, request.query))
    except Exception as error:  # noqa: BLE001 - the edge of the process
        failure = error
    kind = type(failure).__name__
    if isinstance(failure, LanceletError):
        return _error(_STATUS.get(exit_code_of(failure), 500), str(failure), kind)
    return _error(HTTPStatus.INTERNAL_SERVER_ERROR, f"{kind}: {failure}", kind)


def _response(found: dict[str, Any] | Download) -> Response:
    if not isinstance(found, Download):
        data = json.dumps(found, default=json_value, allow_nan=False).encode()
        return Response(HTTPStatus.OK, data)
    headers = {}
    if found.file_name is not None:
        name = quote(found.file_name, safe="")
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{name}"
    return Response(HTTPStatus.OK, found.data, found.media_type, headers)


def _error(
    status: int, message: str, kind: str, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(status, json.dumps({"error": message, "kind": kind}).encode(), headers=headers)
