"""The server of the page: on loopback only, for requests with the token of its address.

Another page in the same browser can reach a port of this machine, and another user of the machine
too. So a request counts only with the token, which the first address carries and a cookie keeps
(SameSite=Strict), and only if it names this server as its host: a name that somebody pointed at
loopback does not.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lancelet.cli.exit_codes import ExitCode, exit_code_of
from lancelet.cli.output import json_value
from lancelet.cli.viewer import tables
from lancelet.cli.viewer.tables import Shown
from lancelet.errors import LanceletError

_HOST: Final = "127.0.0.1"
_FILES: Final = Path(__file__).parent / "page"
_COOKIE: Final = "lancelet_token"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_STATUS: Final = {ExitCode.NOT_FOUND: 404, ExitCode.USAGE: 400, ExitCode.UNSUPPORTED: 403}
_READS: Final = (
    tables.list_tables,
    tables.describe,
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


class Guard:
    """Lets through only what has the token and names this server as its host."""

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        """Guard an application."""
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = HTTPConnection(scope)
        origin = asked.headers.get("origin")
        if asked.headers.get("host") not in self._hosts or (
            origin is not None and origin.removeprefix("http://") not in self._hosts
        ):
            refusal: Response = Response("this is not the host's name", 421, headers=_HEADERS)
        elif self._has_token(asked.cookies.get(_COOKIE)):
            await self._app(scope, receive, send)
            return
        elif self._has_token(asked.query_params.get("token")) and scope["path"] == "/":
            refusal = RedirectResponse("/", 303, headers=_HEADERS)
            refusal.set_cookie(_COOKIE, self._token, httponly=True, samesite="strict")
        else:
            text = "open the address that `lancelet view` printed; it carries a token"
            refusal = Response(text, 403, headers=_HEADERS)
        await refusal(scope, receive, send)

    def _has_token(self, found: str | None) -> bool:
        return found is not None and hmac.compare_digest(found.encode(), self._token.encode())


def application(shown: Shown, token: str, hosts: frozenset[str]) -> Starlette:
    """Return the application that shows tables to requests with the token."""
    routes = [
        Route("/", _file("index.html")),
        Route("/viewer.js", _file("viewer.js")),
        Route("/viewer.css", _file("viewer.css")),
        Route("/api/image", _image(shown)),
        Route("/api/change", _answer(shown, tables.change), methods=["POST"]),
        *(Route(f"/api/{answer.__name__}", _answer(shown, answer)) for answer in _READS),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, token=token, hosts=hosts)])


def serve(shown: Shown, port: int, started: Callable[[str], None]) -> None:
    """Serve until stopped; `started` gets the address to open, with its token.

    Port 0 takes a free one.
    """
    token = secrets.token_urlsafe(32)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        listener.listen()  # whoever gets the address may connect at once
        port = listener.getsockname()[1]
        hosts = frozenset({f"{_HOST}:{port}", f"localhost:{port}"})
        config = uvicorn.Config(
            application(shown, token, hosts), log_level="error", server_header=False
        )
        started(f"http://{_HOST}:{port}/?token={token}")
        uvicorn.Server(config).run(sockets=[listener])


def _file(name: str) -> Callable[[Request], Any]:
    async def answer(_: Request) -> Response:
        return FileResponse(_FILES / name, headers=_HEADERS)

    return answer


def _answer(shown: Shown, answer: Answer) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        asked = dict(request.query_params)
        try:
            found = await run_in_threadpool(answer, shown, asked)
        except LanceletError as error:
            return _refused(error)
        return Response(
            json.dumps(found, default=json_value), headers=_HEADERS, media_type="application/json"
        )

    return respond


def _image(shown: Shown) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            found = await run_in_threadpool(tables.image, shown, dict(request.query_params))
        except LanceletError as error:
            return _refused(error)
        return Response(found[0], headers=_HEADERS, media_type=found[1])

    return respond


def _refused(error: LanceletError) -> JSONResponse:
    told = {"error": str(error), "kind": type(error).__name__}
    return JSONResponse(told, _STATUS.get(exit_code_of(error), 500), headers=_HEADERS)
