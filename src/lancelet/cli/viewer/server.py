"""The HTTP server of the viewer: loopback only, with a token per server.

The printed address contains the token, which the server sets as a cookie (SameSite=Strict).
`lancelet.http_server` describes the checks and limits of requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from lancelet import surroundings
from lancelet.cli.exit_codes import ExitCode, exit_code_of
from lancelet.cli.output import json_value
from lancelet.cli.viewer import tables
from lancelet.cli.viewer.tables import Shown
from lancelet.errors import LanceletError
from lancelet.http_server import HttpServer, Limits, Request, Response

_FILES: Final = Path(__file__).parent / "page"
_COOKIE: Final = "lancelet_token"
_PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/viewer.js": ("viewer.js", "text/javascript; charset=utf-8"),
    "/viewer.css": ("viewer.css", "text/css; charset=utf-8"),
}
_STATUS: Final = {ExitCode.NOT_FOUND: 404, ExitCode.USAGE: 400, ExitCode.UNSUPPORTED: 403}
_READS: Final = (
    tables.list_tables,
    tables.overview,
    tables.describe,
    tables.statistics,
    tables.sql,
    tables.rows,
    tables.search,
    tables.versions,
    tables.difference,
    tables.pages,
    tables.indices,
    tables.recall,
    tables.plan,
    tables.check,
)

Answer = Callable[[Shown, Mapping[str, str]], dict[str, Any]]
_ANSWERS: Final[Mapping[str, tuple[str, Answer]]] = {
    "/api/change": ("POST", tables.change),
    **{f"/api/{answer.__name__}": ("GET", answer) for answer in _READS},
}


def server_of(shown: Shown, port: int = 0, limits: Limits | None = None) -> tuple[HttpServer, str]:
    """Return a server that shows tables to requests with its token, and the token."""
    token = surroundings.new_token()

    def answer(request: Request) -> Response:
        return _answer(shown, request)

    # Requests have no bodies; all arguments are in the URL.
    server = HttpServer(
        answer, token=token, port=port, cookie=_COOKIE, media_types=(), limits=limits
    )
    return server, token


def serve(shown: Shown, port: int, started: Callable[[str], None]) -> None:
    """Serve until interrupted; `started` receives the address with the token.

    Port 0 selects a free port.
    """
    server, token = server_of(shown, port)
    with server:
        started(f"{server.uri}/?token={token}")
        server.wait()


def _answer(shown: Shown, request: Request) -> Response:
    if request.path in _PAGE or request.path in {"/api/image", "/api/export"}:
        method = "GET"
    elif request.path in _ANSWERS:
        method, _ = _ANSWERS[request.path]
    else:
        return Response(HTTPStatus.NOT_FOUND, b"Not Found", "text/plain")
    if request.method != method:
        return Response(
            HTTPStatus.METHOD_NOT_ALLOWED, b"Method Not Allowed", "text/plain", {"Allow": method}
        )
    if request.path in _PAGE:
        name, kind = _PAGE[request.path]
        return Response(HTTPStatus.OK, (_FILES / name).read_bytes(), kind)
    try:
        if request.path == "/api/image":
            return Response(HTTPStatus.OK, *tables.image(shown, request.query))
        if request.path == "/api/export":
            data, kind, name = tables.export(shown, request.query)
            attached = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
            return Response(HTTPStatus.OK, data, kind, attached)
        found = _ANSWERS[request.path][1](shown, request.query)
    except LanceletError as error:
        content = {"error": str(error), "kind": type(error).__name__}
        status = _STATUS.get(exit_code_of(error), 500)
        return Response(status, json.dumps(content).encode())
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        content = {"error": str(error), "kind": type(error).__name__}
        return Response(HTTPStatus.INTERNAL_SERVER_ERROR, json.dumps(content).encode())
    return Response(HTTPStatus.OK, json.dumps(found, default=json_value).encode())
