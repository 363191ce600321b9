"""Sidecar files with the blobs of a data file.

    data/abc.lance
    data/abc/10000000000000000000000000000000.blob    blob id 1, packed: many blobs back to back
    data/abc/01000000000000000000000000000000.blob    blob id 2, dedicated: one large blob

Blob ids are unique within a data file and start at 1; id 0 is reserved for blobs stored elsewhere.
A sidecar file is complete before the data file that references it becomes visible.
"""

from __future__ import annotations

from typing import Final

from lancelet.buffers import Bytes
from lancelet.file.v2.container import Container
from lancelet.format.paths import blob_file_path
from lancelet.io.store import ObjectWriter, Store

PACK_FILE_BYTES: Final = 1 << 30
"""The default maximum size of a packed sidecar file."""


class SidecarSink:
    """Writes the blobs of a data file."""

    def __init__(self, store: Store, path: str, *, pack_file_bytes: int = PACK_FILE_BYTES) -> None:
        """Create the sink of the data file at `path`; call `attach` before use."""
        self._store = store
        self._path = path
        self._pack_file_bytes = pack_file_bytes
        self._container: Container | None = None
        self._last_id = 0
        self._packed: tuple[int, ObjectWriter] | None = None
        self._written: list[str] = []

    def attach(self, container: Container) -> None:
        """Set the container for inline blobs."""
        self._container = container

    def write_inline(self, data: Bytes) -> int:
        """Write bytes to the data file and return their aligned position."""
        assert self._container is not None
        return self._container.write_buffer(data)[0]

    def write_packed(self, data: Bytes) -> tuple[int, int]:
        """Write bytes to the packed sidecar file; return its blob id and the position in it."""
        if self._packed is not None:
            begun = self._packed[1].position
            if begun and begun + data.nbytes > self._pack_file_bytes:
                self._packed[1].close()
                self._packed = None
        if self._packed is None:
            self._packed = self._open()
        blob_id, writer = self._packed
        position = writer.position
        writer.write(data)
        return blob_id, position

    def write_dedicated(self, data: Bytes) -> int:
        """Write bytes to a dedicated sidecar file and return its blob id."""
        blob_id, writer = self._open()
        with writer:
            writer.write(data)
        return blob_id

    def finish(self) -> None:
        """Make all sidecar files visible."""
        if self._packed is not None:
            self._packed[1].close()
            self._packed = None

    def abort(self) -> None:
        """Delete all sidecar files."""
        if self._packed is not None:
            self._packed[1].abort()
            self._packed = None
        self._store.delete_many(self._written)
        self._written = []

    def _open(self) -> tuple[int, ObjectWriter]:
        self._last_id += 1
        path = blob_file_path(self._path, self._last_id)
        self._written.append(path)
        return self._last_id, self._store.open_writer(path)
