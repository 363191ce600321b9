"""Files beside a data file that hold its blobs, and the descriptors that point into them.

    data/abc.lance
    data/abc/10000000000000000000000000000000.blob    blob id 1, packed: many blobs back to back
    data/abc/01000000000000000000000000000000.blob    blob id 2, dedicated: one large blob

Blob ids count within a data file, from 1; id 0 is for blobs that are somewhere else. A sidecar
is complete before the data file that points to it becomes visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.errors import InvalidInputError
from lancelet.file.arguments import bytes_of, text, whole_number
from lancelet.file.v2.container import Container
from lancelet.format.extension import BLOB_V2, NAME_KEY
from lancelet.format.paths import DATA_SUFFIX, blob_file_path
from lancelet.io.store import BytesLike, ObjectWriter, Store, as_memoryview

PACK_FILE_BYTES: Final = 1 << 30
"""The most bytes of a shared sidecar, unless its field says otherwise."""

_PACKED: Final = 1
_PREPARED_TYPE: Final = pa.struct(
    [
        ("kind", pa.uint8()),
        ("data", pa.large_binary()),
        ("uri", pa.string()),
        ("blob_id", pa.uint32()),
        ("blob_size", pa.uint64()),
        ("position", pa.uint64()),
    ]
)


@dataclass(frozen=True, slots=True)
class BlobDescriptor:
    """Where a blob is that was written ahead of its row; `offset` is None if it has a file."""

    blob_id: int
    size: int
    offset: int | None = None

    def __repr__(self) -> str:
        if self.offset is None:
            return f"Dedicated {{ blob_id: {self.blob_id}, size: {self.size} }}"
        return f"Packed {{ blob_id: {self.blob_id}, offset: {self.offset}, size: {self.size} }}"


class SidecarSink:
    """Where the writer of a data file puts its blobs."""

    def __init__(self, store: Store, path: str, *, pack_file_bytes: int = PACK_FILE_BYTES) -> None:
        """Write beside the data file at `path`; `attach` it to the file before use."""
        self._store = store
        self._path = path
        self._pack_file_bytes = pack_file_bytes
        self._container: Container | None = None
        self._last_id = 0
        self._packed: tuple[int, ObjectWriter] | None = None
        self._written: list[str] = []

    def attach(self, container: Container) -> None:
        """Say which data file inline blobs go into."""
        self._container = container

    def write_inline(self, data: Bytes) -> int:
        """Write bytes into the data file, aligned, and return their position in it."""
        assert self._container is not None
        return self._container.write_buffer(data)[0]

    def write_packed(self, data: Bytes) -> tuple[int, int]:
        """Write bytes into a shared sidecar; return its blob id and the position in it."""
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
        """Write bytes into a sidecar of their own and return its blob id."""
        blob_id, writer = self._open()
        with writer:
            writer.write(data)
        return blob_id

    def finish(self) -> None:
        """Make every sidecar visible."""
        if self._packed is not None:
            self._packed[1].close()
            self._packed = None

    def abort(self) -> None:
        """Leave no sidecar behind."""
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


class _SidecarWriter:
    """What both public writers of sidecars share: an open file that is finished once."""

    def __init__(self, store: Store, path: str, blob_id: int) -> None:
        path, blob_id = text("path", path), whole_number("blob_id", blob_id, bits=32)
        if blob_id == 0:
            raise InvalidInputError("blob id 0 is for blobs that are somewhere else")
        if not path.endswith(DATA_SUFFIX):
            raise InvalidInputError(f"the path of a data file ends with {DATA_SUFFIX!r}", path=path)
        self._blob_id = blob_id
        self._path = blob_file_path(path, blob_id)
        self._writer = store.open_writer(self._path)
        self._finished = False

    @property
    def blob_id(self) -> int:
        """The id of the sidecar."""
        return self._blob_id

    @property
    def path(self) -> str:
        """The path of the sidecar in the session's store."""
        return self._path

    def _write(self, data: BytesLike) -> tuple[int, int]:
        """Append bytes, and return their position and size."""
        self._check_open()
        position = self._writer.position
        self._writer.write(data)
        return position, self._writer.position - position

    def _close(self) -> None:
        self._check_open()
        self._finished = True
        self._writer.close()

    def _check_open(self) -> None:
        if self._finished:
            raise InvalidInputError("the blob writer is finished already", path=self._path)


class PackedBlobWriter(_SidecarWriter):
    """Writes many blobs into one sidecar, ahead of the rows that will point to them."""

    def __init__(self, store: Store, path: str, blob_id: int) -> None:
        """Write beside the data file at `path`."""
        super().__init__(store, path, blob_id)
        self._blobs: list[BlobDescriptor | None] = []
        self._field: pa.Field | None = None

    @property
    def field(self) -> pa.Field:
        """The field of the array that `finish_array` returned."""
        if self._field is None:
            raise InvalidInputError("the field is known after finish_array", path=self._path)
        return self._field

    def write_blob(self, data: BytesLike) -> None:
        """Append one blob."""
        position, size = self._write(as_memoryview(bytes_of("data", data)))
        self._blobs.append(BlobDescriptor(self._blob_id, size, position))

    def write_blobs(self, payloads: pa.Array | pa.ChunkedArray) -> None:
        """Append the values of an array; nulls become null blobs."""
        self._check_open()
        if not _is_binary(payloads):
            raise InvalidInputError(
                "payloads must be an array of binary or large binary", found=str(type(payloads))
            )
        for payload in payloads:
            buffer = payload.as_buffer()
            if buffer is None:
                self._blobs.append(None)
            else:
                self.write_blob(buffer)

    def finish(self) -> list[BlobDescriptor | None]:
        """Make the sidecar visible and return where each blob is."""
        self._close()
        return self._blobs

    def finish_array(self, field_name: str) -> pa.StructArray:
        """Make the sidecar visible and return the blobs as a column to be written."""
        self._close()
        metadata = {NAME_KEY: BLOB_V2}
        self._field = pa.field(field_name, _PREPARED_TYPE, metadata=metadata)
        return pa.array([_prepared(blob) for blob in self._blobs], _PREPARED_TYPE)


class DedicatedBlobWriter(_SidecarWriter):
    """Writes one large blob into a sidecar of its own, piece by piece."""

    def write(self, data: BytesLike) -> None:
        """Append a piece of the blob."""
        self._write(as_memoryview(bytes_of("data", data)))

    def finish(self) -> BlobDescriptor:
        """Make the sidecar visible and return where the blob is."""
        size = self._writer.position
        self._close()
        return BlobDescriptor(self._blob_id, size)


def _is_binary(payloads: object) -> bool:
    return isinstance(payloads, pa.Array | pa.ChunkedArray) and bool(
        pa.types.is_binary(payloads.type) or pa.types.is_large_binary(payloads.type)
    )


def _prepared(blob: BlobDescriptor | None) -> dict[str, object] | None:
    if blob is None:
        return None
    return {
        "kind": _PACKED,
        "blob_id": blob.blob_id,
        "blob_size": blob.size,
        "position": blob.offset,
    }
