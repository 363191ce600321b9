"""Writing blobs to sidecar files before the rows that reference them.

For example:

    packed = session.open_packed_blob_writer("data/abc.lance", blob_id=1)
    packed.write_blobs(pa.array([b"ab", None, b"c"]))     "abc" in the sidecar file
    packed.finish_array("image")                          0:2, null, 2:3 as a column
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.arguments import bytes_of, text
from lancelet.dataset.file.blob_descriptors import (
    BlobDescriptor,
    BlobDescriptorArrayBuilder,
    blob_id_of,
)
from lancelet.errors import InvalidInputError
from lancelet.format.paths import DATA_SUFFIX, blob_file_path
from lancelet.io.store import BytesLike, Store, as_memoryview
from lancelet.io.uri import join, parse_uri


class _SidecarWriter:
    """The open sidecar file of a blob writer."""

    def __init__(self, store: Store, path: str, blob_id: int) -> None:
        path, blob_id = text("path", path), blob_id_of(blob_id)
        if not path.endswith(DATA_SUFFIX):
            raise InvalidInputError(f"the path of a data file ends with {DATA_SUFFIX!r}", path=path)
        self._blob_id = blob_id
        self._root = parse_uri(store.uri).path
        self._path = blob_file_path(path, blob_id)
        self._writer = store.open_writer(self._path)
        self._finished = False

    @property
    def blob_id(self) -> int:
        """The id of the sidecar file."""
        return self._blob_id

    @property
    def path(self) -> str:
        """The path of the sidecar file, from the root of its bucket or file system."""
        return join(self._root, self._path)

    def _write(self, data: BytesLike) -> tuple[int, int]:
        """Append bytes and return their position and size."""
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
            raise InvalidInputError("the blob writer is already finished", path=self._path)


class PackedBlobWriter(_SidecarWriter):
    """Writes many blobs to one sidecar file, before the rows that reference them."""

    def __init__(self, store: Store, path: str, blob_id: int) -> None:
        """Open the sidecar file of the data file at `path`."""
        super().__init__(store, path, blob_id)
        self._blobs: list[BlobDescriptor] = []
        self._field: pa.Field | None = None

    @property
    def field(self) -> pa.Field:
        """The field of the array returned by `finish_array`."""
        if self._field is None:
            raise InvalidInputError("the field is available after finish_array", path=self._path)
        return self._field

    def write_blob(self, data: BytesLike) -> None:
        """Append one blob."""
        position, size = self._write(as_memoryview(bytes_of("data", data)))
        self._blobs.append(BlobDescriptor.packed(self._blob_id, position, size))

    def write_blobs(self, payloads: pa.Array | pa.ChunkedArray) -> None:
        """Append the values of an array; nulls become null blobs."""
        self._check_open()
        # All chunks are validated before the first one is written.
        for chunk in _binary_chunks(payloads):
            self._write_chunk(chunk)

    def finish(self) -> list[BlobDescriptor]:
        """Make the sidecar file visible and return the descriptors of its blobs."""
        self._close()
        return self._blobs

    def finish_array(self, field_name: str) -> pa.StructArray:
        """Make the sidecar file visible and return its blobs as a column."""
        builder = BlobDescriptorArrayBuilder(field_name)
        self._close()
        builder.extend(self._blobs)
        self._field = builder.field
        return builder.finish()

    def _write_chunk(self, chunk: pa.LargeBinaryArray) -> None:
        # Null values are dropped because they may have bytes as well.
        values = chunk.drop_null()
        position = self._writer.position
        offsets = np.zeros(1, np.int64)
        if len(values):
            stored = np.frombuffer(values.buffers()[1], np.int64)
            offsets = stored[values.offset : values.offset + len(values) + 1]
            data = values.buffers()[2]
            self._write(memoryview(b"" if data is None else data)[offsets[0] : offsets[-1]])
        starts = iter((offsets[:-1] - offsets[0] + position).tolist())
        sizes = iter(np.diff(offsets).tolist())
        self._blobs += [
            BlobDescriptor.packed(self._blob_id, next(starts), next(sizes))
            if is_valid
            else BlobDescriptor.null()
            for is_valid in chunk.is_valid().to_pylist()
        ]


class DedicatedBlobWriter(_SidecarWriter):
    """Writes one large blob to its own sidecar file, in parts."""

    def write(self, data: BytesLike) -> None:
        """Append bytes to the blob."""
        self._write(as_memoryview(bytes_of("data", data)))

    def finish(self) -> BlobDescriptor:
        """Make the sidecar file visible and return the descriptor of the blob."""
        size = self._writer.position
        self._close()
        return BlobDescriptor.dedicated(self._blob_id, size)


def _binary_chunks(payloads: object) -> list[pa.LargeBinaryArray]:
    if not isinstance(payloads, pa.Array | pa.ChunkedArray) or not _is_binary(payloads.type):
        found_type = (
            payloads.type if isinstance(payloads, pa.Array | pa.ChunkedArray) else type(payloads)
        )
        raise InvalidInputError(
            "payloads must be an array of Binary, LargeBinary, BinaryView or FixedSizeBinary",
            found=str(found_type),
        )
    if isinstance(payloads, pa.Array):
        return [_checked(payloads, "array")]
    return [_checked(chunk, f"chunk {number}") for number, chunk in enumerate(payloads.chunks)]


def _is_binary(data_type: pa.DataType) -> bool:
    return data_type in {pa.binary(), pa.large_binary(), pa.binary_view()} or bool(
        pa.types.is_fixed_size_binary(data_type)
    )


def _checked(chunk: pa.Array, label: str) -> pa.LargeBinaryArray:
    """Return a validated chunk; reading invalid offsets would crash the process."""
    try:
        chunk.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            f"Packed blob payload {label} has invalid Arrow data: {error}"
        ) from error
    return pc.cast(chunk, pa.large_binary())
