"""An HTTP/1.1 server for small services on one machine, such as a namespace or the viewer.

    with HttpServer(answer, token="s3cr3t") as server:
        requests.get(server.uri + "/v1/table", headers={"Authorization": "Bearer s3cr3t"})

Other pages in a browser and other users of the machine can connect to a port on loopback. A
request is answered only if it has the token, names this server in `Host`, and has no `Origin` of
another site. Both are checked before the body is read. One thread reads all connections, so a
client that sends slowly takes no thread; a pool of threads of fixed size computes the answers.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlsplit

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,16}) ([\x21-\x7e]+) HTTP/1\.([01])")
_HEADER_LINE: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*?)[ \t]*")
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_ONCE: Final = frozenset({"host", "origin", "authorization", "content-length", "content-type"})
_PART_BYTES: Final = 1 << 20
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """How much clients may use.

    Attributes:
        header_bytes_max: The size of a request line with its headers.
        body_bytes_max: The size of a body.
        json_bytes_max: The size of a body of JSON.
        idle_seconds: How long the headers, a MiB of a body, or the acceptance of a MiB of an
            answer may take.
        connections_max: The number of open connections; further ones are closed.
        threads: The number of requests that are answered at once.
    """

    header_bytes_max: int = 1 << 16
    body_bytes_max: int = 1 << 30
    json_bytes_max: int = 1 << 24
    idle_seconds: float = 30.0
    connections_max: int = 256
    threads: int = 16


@dataclass(frozen=True, slots=True)
class Request:
    """A request; names of headers are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

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
    """An answer."""

    status: int
    data: bytes = b""
    media_type: str = "application/json"
    headers: Mapping[str, str] | None = None


class RefusedError(Exception):
    """A request is not answered; the connection is closed after the response."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers

    def response(self) -> Response:
        """Return what the client gets."""
        content = {"error": self.message, "code": 13}
        return Response(self.status, json.dumps(content).encode(), headers=self.headers)


class HttpServer:
    """Answers requests while it is started; a context manager starts and stops it."""

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
        """Describe a server.

        Args:
            answer: Called in a thread of a pool with each request that is let through.
            token: The bearer token of all requests; None answers requests without one.
            host: The address to listen at.
            port: The port, 0 for any free one.
            cookie: A cookie that may carry the token too; `/?token=...` sets it.
            media_types: What bodies may be.
            limits: How much clients may use.
        """
        self._answer = answer
        self._token = token
        self._host = host
        self._port = port
        self._cookie = cookie
        self._media_types = frozenset(media_types)
        self.limits = limits or Limits()
        self._listener: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_ready = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that the server listens at."""
        return self._port if self._listener is None else int(self._listener.getsockname()[1])

    @property
    def uri(self) -> str:
        """The URI of the server."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> None:
        """Listen, and answer in the background."""
        if self._listener is not None:
            return
        self._pool = ThreadPoolExecutor(self.limits.threads, "lancelet-http")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self._port))
            listener.listen()
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="lancelet-http", daemon=True)
        self._thread.start()
        self._is_ready.wait()

    def stop(self) -> None:
        """Close all connections."""
        if self._listener is None or self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listener = self._loop = self._thread = None
        self._is_ready.clear()

    def wait(self) -> None:
        """Return when the server is stopped."""
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
        loop, listener = self._loop, self._listener
        assert loop is not None
        assert listener is not None
        asyncio.set_event_loop(loop)
        with self._pool as pool:
            self._turns = asyncio.Semaphore(self.limits.threads)
            server = loop.run_until_complete(
                asyncio.start_server(
                    self._accept, sock=listener, limit=self.limits.header_bytes_max
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
            # `close` would keep the socket open until a client that is too slow has read the rest.
            writer.transport.abort()
        else:
            writer.close()
        finally:
            self._connections.discard(task)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        while True:
            try:
                async with asyncio.timeout(self.limits.idle_seconds):
                    request, stays = await self._read_head(reader)
                size = self._check(request)
                async with self._turns:
                    body = await self._read_body(request, size, reader, writer)
                    response = await self._compute(request, body)
            except RefusedError as refused:
                await self._write(writer, refused.response(), stays=False)
                await self._close_gently(reader, writer)
                return
            # A client reads no body after HEAD, and would take it for the next answer.
            stays = stays and request.method != "HEAD"
            await self._write(writer, response, stays=stays)
            if not stays:
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
        """Return the size of the body of a request that is let through."""
        if not self._is_own_host(request.headers.get("host", "")):
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "the header Host is another server")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_own_host(origin.removeprefix("http://")):
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, "the header Origin is another site")
        self._check_token(request)
        if "transfer-encoding" in request.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
        length = request.headers.get("content-length", "0")
        if not _LENGTH.fullmatch(length):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
        size = int(length)
        if not size:
            return 0
        if request.media_type not in self._media_types:
            known = " or ".join(sorted(self._media_types))
            message = f"unsupported Content-Type of a body; send {known}"
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        is_json = request.media_type == "application/json"
        limit = self.limits.json_bytes_max if is_json else self.limits.body_bytes_max
        if size > limit:
            message = f"a body of {size} bytes is larger than the limit of {limit}"
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
            # A name could be one that another site has pointed at this machine.
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
        if self._is_token(request.cookie(self._cookie) or ""):
            return
        if request.path == "/" and self._is_token(request.query.get("token", "")):
            cookie = f"{self._cookie}={self._token}; HttpOnly; Path=/; SameSite=strict"
            raise RefusedError(HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": cookie})
        raise RefusedError(HTTPStatus.FORBIDDEN, "open the printed address; it has a token")

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

    async def _compute(self, request: Request, body: bytes) -> Response:
        whole = Request(request.method, request.path, request.query, request.headers, body)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self._answer, whole)
        except Exception as error:
            message = "the server failed to answer; its standard error has the details"
            loop.call_exception_handler({"message": message, "exception": error})
            raise RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, message) from error

    async def _write(
        self, writer: asyncio.StreamWriter, response: Response, *, stays: bool
    ) -> None:
        headers = {
            **_HEADERS,
            **(response.headers or {}),
            "Content-Type": response.media_type,
            "Content-Length": str(len(response.data)),
            "Connection": "keep-alive" if stays else "close",
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

        A connection with bytes that were not read is reset, and the client might lose the
        response; so a part of the rejected body is read and thrown away.
        """
        writer.write_eof()
        left = _PART_BYTES
        with suppress(TimeoutError):
            async with asyncio.timeout(min(1.0, self.limits.idle_seconds)):
                while left > 0 and (part := await reader.read(_PART_BYTES)):
                    left -= len(part)


def parse_json(body: bytes) -> dict[str, Any]:
    """Return the object in a body of JSON; an empty body is an empty object.

    Raises:
        InvalidInputError: The body is not JSON, is nested too deeply, or is not an object.
    """
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInputError(f"the body is not valid JSON: {reason}") from None
    if not isinstance(found, dict):
        raise InvalidInputError("the body is JSON, but not an object")
    return found


def _parse_head(head: bytes) -> tuple[Request, bool]:
    """Return a request without its body, and whether its connection stays open."""
    line, *lines = head[:-4].decode("latin-1").split("\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for each in lines:
        matched = _HEADER_LINE.fullmatch(each)
        name = matched[1].lower() if matched is not None else ""
        if matched is None or (name in headers and name in _ONCE):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed or repeated header")
        headers[name] = f"{headers[name]}, {matched[2]}" if name in headers else matched[2]
    try:
        parts = urlsplit(found[2])
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed path") from error
    connection = headers.get("connection", "").lower()
    stays = "close" not in connection and (found[3] == "1" or "keep-alive" in connection)
    return Request(found[1], parts.path, query, headers), stays
