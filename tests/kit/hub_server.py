"""A local Hugging Face hub that serves one dataset from a folder.

with HubServer(folder, "org/name") as hub:
    lancelet.dataset("hf://datasets/org/name/t.lance", storage_options=hub.storage_options)
hub.requests        the requested paths and byte ranges
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

_REVISION = "0" * 40


class HubServer:
    """Serves the files of a folder as a read-only dataset."""

    def __init__(self, folder: Path, name: str) -> None:
        """Start the server."""
        self.requests: list[tuple[str, str | None]] = []
        self._folder = folder
        self._api = f"/api/datasets/{name}"
        self._files = f"/datasets/{name}/resolve/main/"
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = unquote(urlsplit(self.path).path)
                extent = self.headers.get("range")
                server.requests.append((path, extent))
                status, body = server._answer(path, self.path, extent)
                self.send_response(status)
                if status == 404:
                    self.send_header("X-Error-Code", "EntryNotFound")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, *args: object) -> None:
                """Suppress the log."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    @property
    def storage_options(self) -> dict[str, str]:
        """The storage options of the dataset."""
        return {"endpoint": f"http://127.0.0.1:{self._http.server_port}", "token": "hf_secret"}

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

    def _answer(self, path: str, query: str, extent: str | None) -> tuple[int, bytes]:
        if path in {self._api, f"{self._api}/revision/main"}:
            return 200, json.dumps({"id": "org/name", "sha": _REVISION}).encode()
        if path.startswith(tree := f"{self._api}/tree/main"):
            return self._listed(path.removeprefix(tree).strip("/"), "recursive=True" in query)
        if path.startswith(self._files):
            file = self._folder / path.removeprefix(self._files)
            if file.is_file():
                return self._bytes_of(file, extent)
        return 404, b"{}"

    def _listed(self, below: str, recursive: bool) -> tuple[int, bytes]:
        folder = self._folder / below
        if not folder.is_dir():
            return 404, b"{}"
        found = folder.rglob("*") if recursive else folder.iterdir()
        entries = [
            {
                "type": "directory" if entry.is_dir() else "file",
                "oid": _REVISION,
                "size": 0 if entry.is_dir() else entry.stat().st_size,
                "path": entry.relative_to(self._folder).as_posix(),
            }
            for entry in sorted(found)
        ]
        return 200, json.dumps(entries).encode()

    def _bytes_of(self, file: Path, extent: str | None) -> tuple[int, bytes]:
        data = file.read_bytes()
        if extent is None:
            return 200, data
        first, _, last = extent.removeprefix("bytes=").partition("-")
        return 206, data[int(first) : int(last) + 1]
