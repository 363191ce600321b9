"""An HTTP/1.1 server for local services, such as a namespace or the viewer.

    with HttpServer(answer, token="s3cr3t") as server:
        requests.get(server.uri + "/v1/table", headers={"Authorization": "Bearer s3cr3t"})

Web pages in a browser and other users of the machine can connect to a loopback port. A request is
answered only if it contains the token, its `Host` is this server, and it has no `Origin` of another
site. These are checked before the body is read. One thread reads all connections, so slow clients
occupy no threads; a fixed-size thread pool computes the responses.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_UNIQUE_HEADERS: Final = frozenset(
    {"host", "origin", "authorization", "content-length", "content-type"}
)
_PART_BYTES: Final = 1 << 20
_ABANDONED_SECONDS: Final = 0.25
"""The interval at which connections of running requests are checked."""
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits for clients.

    Attributes:
        header_bytes_max: The size of a request line with its headers.
        body_bytes_max: The size of a body.
        json_bytes_max: The size of a body of JSON.
        idle_seconds: The time limit for the headers, for one MiB of a request body, and for sending
            one MiB of a response.
        connections_max: The maximum number of open connections; further ones are closed.
        threads: The maximum number of concurrent requests.
    """

    header_bytes_max: int = 1 << 16
    body_bytes_max: int = 1 << 30
    json_bytes_max: int = 1 << 24
    idle_seconds: float = 30.0
    connections_max: int = 256
    threads: int = 16


@dataclass(frozen=True, slots=True)
class Request:
    """A request; header names are in lower case.

    Attributes:
        abandoned: Set when the client closes the connection before the response.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""
    abandoned: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie."""
        try:
            found = SimpleCookie(self.headers.get("cookie", "")).get(name)
        except CookieError:
            return None
        return None if found is None else found.value


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    status: int
    data: bytes = b""
    media_type: str = "application/json"
    headers: Mapping[str, str] | None = None


class RefusedError(Exception):
    """A rejected request; the connection is closed after the response."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers

    def response(self) -> Response:
        """Return the response to the client."""
        content = {"error": self.message, "code": 13}
        return Response(self.status, json.dumps(content).encode(), headers=self.headers)


class HttpServer:
    """Serves requests while started; a context manager starts and stops it."""

    def __init__(
        self,
        answer: Callable[[Request], Response],
        *,
        token: str | None,
        host: str = "127.0.0.1",
        port: int = 0,
        cookie: str | None = None,
        media_types: Sequence[str] = ("application/json",),
        limits: Limits | None = None,
    ) -> None:
        """Configure a server.

        Args:
            answer: Called in a pool thread for each accepted request.
            token: The required bearer token; None accepts requests without a token.
            host: The address to listen on.
            port: The port; 0 selects a free port.
            cookie: The name of a cookie that may contain the token, without the port, which all
                servers of the host would share; `/?token=...` sets it.
            media_types: The accepted media types of bodies.
            limits: The resource limits for clients.
        """
        self._answer = answer
        self._token = token
        self._host = host
        self._port = port
        self._cookie = cookie
        self._media_types = frozenset(media_types)
        self.limits = limits or Limits()
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._port if self._socket is None else int(self._socket.getsockname()[1])

    @property
    def uri(self) -> str:
        """The URI of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Listen and serve requests in the background."""
        if self._socket is not None:
            return
        self._pool = surroundings.executor(self.limits.threads, "lancelet-http")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        server_socket = socket.socket(family)
        try:
            server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server_socket.bind((self._host, self._port))
            server_socket.listen()
        except OSError:
            server_socket.close()
            raise
        self._socket = server_socket
        self._loop = asyncio.new_event_loop()
        self._thread = surroundings.start_thread(self._run, "lancelet-http")
        self._is_ready.wait()

    def stop(self) -> None:
        """Close all connections."""
        if self._socket is None or self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._socket = self._loop = self._thread = None
        self._is_ready.clear()

    def wait(self) -> None:
        """Block until the server is stopped."""
        if self._thread is not None:
            self._thread.join()

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

    # --- connections ---------------------------------------------------------------------------

    def _run(self) -> None:
        loop, server_socket = self._loop, self._socket
        assert loop is not None
        assert server_socket is not None
        asyncio.set_event_loop(loop)
        with self._pool as pool:
            self._turns = asyncio.Semaphore(self.limits.threads)
            server = loop.run_until_complete(
                asyncio.start_server(
                    self._accept, sock=server_socket, limit=self.limits.header_bytes_max
                )
            )
            loop.call_soon(self._is_ready.set)
            try:
                loop.run_forever()
            finally:
                server.close()
                tasks = list(self._connections)
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
                pool.shutdown(wait=False, cancel_futures=True)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self.limits.connections_max:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._converse(reader, writer)
        except asyncio.IncompleteReadError:
            writer.close()  # the client sends no further request
        except (OSError, TimeoutError, asyncio.CancelledError):
            # `close` would keep the socket open until a slow client has read the response.
            writer.transport.abort()
        else:
            writer.close()
        finally:
            self._connections.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the requests of a connection sequentially."""
        while True:
            try:
                async with asyncio.timeout(self.limits.idle_seconds):
                    request, keeps_alive = await self._read_head(reader)
                size = self._check(request)
                async with self._turns:
                    body = await self._read_body(request, size, reader, writer)
                    response = await self._compute(request, body, reader)
            except RefusedError as refused:
                await self._write(writer, refused.response(), keeps_alive=False)
                await self._close_gently(reader, writer)
                return
            # Clients expect no body after HEAD and would parse it as the next response.
            keeps_alive = keeps_alive and request.method != "HEAD"
            await self._write(writer, response, keeps_alive=keeps_alive)
            if not keeps_alive:
                return

    async def _read_head(self, reader: asyncio.StreamReader) -> tuple[Request, bool]:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise RefusedError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"the headers have more than {self.limits.header_bytes_max} bytes",
            ) from error
        return _parse_head(head)

    def _check(self, request: Request) -> int:
        """Validate the headers of a request and return the size of its body."""
        if not self._is_own_host(request.headers.get("host", "")):
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "the Host is another server")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_own_host(origin.removeprefix("http://")):
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "the Origin is another site")
        self._check_token(request)
        if "transfer-encoding" in request.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body requires a Content-Length")
        length = request.headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        size = int(length)
        if not size:
            return 0
        if request.media_type not in self._media_types:
            expected = " or ".join(sorted(self._media_types)) or "a request without a body"
            message = f"unsupported Content-Type; expected {expected}"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        is_json = request.media_type == "application/json"
        limit = self.limits.json_bytes_max if is_json else self.limits.body_bytes_max
        if size > limit:
            message = f"the body of {size} bytes exceeds the limit of {limit} bytes"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        return size

    def _is_own_host(self, name: str) -> bool:
        host, _, port = name.rpartition(":")
        if port != str(self.port):
            return False
        if host in _LOOPBACK or host.strip("[]") == self._host:
            return True
        if self._host not in {"", "0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            return False
        try:
            ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            # The DNS entry of another site's host name can point at this machine.
            return host.lower() == socket.gethostname().lower()
        return True

    def _check_token(self, request: Request) -> None:
        if self._token is None:
            return
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(sent.strip()):
            return
        if self._cookie is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                "send the token of this server in the header `Authorization: Bearer TOKEN`",
                {"WWW-Authenticate": "Bearer"},
            )
        name = f"{self._cookie}_{self.port}"
        if self._is_token(request.cookie(name) or ""):
            return
        if request.path == "/" and self._is_token(request.query.get("token", "")):
            cookie = f"{name}={self._token}; HttpOnly; Path=/; SameSite=strict"
            raise RefusedError(HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": cookie})
        raise RefusedError(HTTPStatus.FORBIDDEN, "open the printed address, which contains a token")

    def _is_token(self, sent: str) -> bool:
        return hmac.compare_digest(sent.encode(), (self._token or "").encode())

    async def _read_body(
        self,
        request: Request,
        size: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bytes:
        if size and request.headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = bytearray()
        while len(body) < size:
            async with asyncio.timeout(self.limits.idle_seconds):
                body += await reader.readexactly(min(_PART_BYTES, size - len(body)))
        return bytes(body)

    async def _compute(
        self, request: Request, body: bytes, reader: asyncio.StreamReader
    ) -> Response:
        whole = Request(request.method, request.path, request.query, request.headers, body)
        loop = asyncio.get_running_loop()
        try:
            computed = loop.run_in_executor(self._pool, self._answer, whole)
            try:
                while not (await asyncio.wait([computed], timeout=_ABANDONED_SECONDS))[0]:
                    if reader.at_eof():
                        whole.abandoned.set()
            except asyncio.CancelledError:
                whole.abandoned.set()
                raise
            return computed.result()
        except Exception as error:
            message = "internal server error; see the standard error of the server"
            loop.call_exception_handler({"message": message, "exception": error})
            raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message) from error

    async def _write(
        self, writer: asyncio.StreamWriter, response: Response, *, keeps_alive: bool
    ) -> None:
        headers = {
            **_HEADERS,
            **(response.headers or {}),
            "Content-Type": response.media_type,
            "Content-Length": str(len(response.data)),
            "Connection": "keep-alive" if keeps_alive else "close",
        }
        head = f"HTTP/1.1 {int(response.status)} {HTTPStatus(response.status).phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(head.encode("latin-1") + b"\r\n")
        for start in range(0, len(response.data), _PART_BYTES):
            writer.write(response.data[start : start + _PART_BYTES])
            async with asyncio.timeout(self.limits.idle_seconds):
                await writer.drain()

    async def _close_gently(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Let the client read the response before the connection is closed.

        Closing a connection with unread bytes resets it, and the client might lose the response.
        Therefore part of the rejected body is read and discarded.
        """
        writer.write_eof()
        left = _PART_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(min(1.0, self.limits.idle_seconds)):
                while left > 0 and (part := await reader.read(_PART_BYTES)):
                    left -= len(part)


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object.

    Raises:
        InvalidInputError: If the body is not valid JSON, nested too deeply, or not an object.
    """
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"the body is not valid JSON: {reason}") from None
    if not isinstance(found, dict):
        raise InvalidInputError("the body must be a JSON object")
    return found


def _parse_head(head: bytes) -> tuple[Request, bool]:
    """Return a request without its body, and whether its connection is persistent."""
    line, *lines = head[:-4].decode("latin-1").split("\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    headers: dict[str, str] = {}
    for each in lines:
        matched = _HEADER_LINE.fullmatch(each)
        name = matched[1].lower() if matched is not None else ""
        if matched is None or (name in headers and name in _UNIQUE_HEADERS):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed or repeated header")
        headers[name] = f"{headers[name]}, {matched[2]}" if name in headers else matched[2]
    try:
        parts = urlsplit(found[2])
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed path") from error
    connection = headers.get("connection", "").lower()
    keeps_alive = "close" not in connection and (found[3] == "1" or "keep-alive" in connection)
    return Request(found[1], parts.path, query, headers), keeps_alive
