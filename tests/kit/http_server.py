"""An HTTP server with scripted answers that records its requests.

with ScriptedServer([Answer(503), Answer.HANG_UP, Answer(200, b"x")]) as server:
    ...
server.requests[0].headers["if-none-match"]
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Self

from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request; `claimed_bytes` may exceed the size of the body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    claimed_bytes: int | None = None

    HANG_UP: ClassVar[Answer]


Answer.HANG_UP = Answer(0)


@dataclass(frozen=True, slots=True)
class Received:
    """A received request, with lower-case header names."""

    method: str
    path: str
    headers: Mapping[str, str]


class ScriptedServer:
    """Sends the answers in order, and closes the connection after the last."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        """Start the server."""
        self.requests: list[Received] = []
        self._answers = iter(answers)
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                server._answer(self)  # the handler is part of the server

            def log_message(self, *_: object) -> None:
                """Suppress the log."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        handler.rfile.read(int(headers.get("content-length", "0")))
        with self._lock:
            self.requests.append(Received(handler.command, handler.path, headers))
            answer = next(self._answers, Answer.HANG_UP)
        # Close the connection after each answer, so the next request does not reuse it.
        handler.close_connection = True
        if answer is Answer.HANG_UP:
            return
        claimed = len(answer.body) if answer.claimed_bytes is None else answer.claimed_bytes
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        handler.send_header("content-length", str(claimed))
        handler.send_header("connection", "close")
        handler.end_headers()
        handler.wfile.write(answer.body)

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
