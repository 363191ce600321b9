"""One encoded field in memory, for tests of pages without a file.

    array  --encode_field-->  buffers, each at a multiple of 64  --open_field-->  reader

Reads count round trips and bytes. Tests may change the bytes between reads.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, ReadCoroutine, run
from lancelet.encodings import v2_1, v2_3
from lancelet.encodings.base import FieldReader, Rows, StoredColumn, StoredPage
from lancelet.errors import CorruptDataError
from lancelet.format.field import Field
from lancelet.format.version import FileVersion

T = TypeVar("T")

ALIGNMENT = 64


class DictHeaderCache:
    """A cache without a limit."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, int], Any] = {}

    def get(self, key: tuple[int, int], kind: type[T]) -> T | None:
        """Return a cached value."""
        found = self._values.get(key)
        return found if isinstance(found, kind) else None

    def put(self, key: tuple[int, int], value: Any, *, value_bytes: int) -> None:
        """Cache a value."""
        assert value_bytes >= 0
        self._values[key] = value


class MemorySink:
    """Stores inline blobs in the bytes of a file, and others in dictionaries by blob id."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self.packed = bytearray()
        self.dedicated: dict[int, bytes] = {}

    def write_inline(self, data: Bytes) -> int:
        """Append bytes to the file."""
        return append(self._data, data)

    def write_packed(self, data: Bytes) -> tuple[int, int]:
        """Append bytes to the shared sidecar with id 1."""
        position = len(self.packed)
        self.packed += data.tobytes()
        return 1, position

    def write_dedicated(self, data: Bytes) -> int:
        """Store bytes under a new id."""
        blob_id = 2 + len(self.dedicated)
        self.dedicated[blob_id] = data.tobytes()
        return blob_id


@dataclass(slots=True)
class FieldFile:
    """The columns of one field and their bytes."""

    field: Field
    version: FileVersion
    columns: list[StoredColumn]
    data: bytearray
    sink: MemorySink
    num_rounds: int = 0
    bytes_read: int = 0
    header_cache: DictHeaderCache = dataclasses.field(default_factory=DictHeaderCache)

    @property
    def generation(self) -> ModuleType:
        """The encodings of the version."""
        return v2_3 if self.version is FileVersion.V2_3 else v2_1

    def reader(self, *, with_header_cache: bool = True) -> FieldReader:
        """Open the field."""
        header_cache = self.header_cache if with_header_cache else None
        reader: FieldReader = self.generation.open_field(
            self.field, self.columns, self.version, header_cache
        )
        return reader

    def read(self, rows: Rows) -> pa.Array:
        """Read rows with a new reader and the cached dictionaries."""
        return self.run(self.reader().read(rows))

    def run(self, reading: ReadCoroutine[T]) -> T:
        """Run a read coroutine on the bytes and count its requests."""
        source = np.frombuffer(bytes(self.data), np.uint8)

        def fetch(ranges: ByteRanges) -> ByteSlices:
            self.num_rounds += 1
            self.bytes_read += int(ranges.size.sum())
            outside = (ranges.position < 0) | (ranges.size < 0)
            outside |= ranges.size > len(source)
            outside |= ranges.position > len(source) - ranges.size
            if outside.any():
                raise CorruptDataError("a range lies outside of the file", bytes=len(source))
            return ByteSlices(source, ranges.position, ranges.size)

        return run(reading, fetch)


def field_file(
    array: pa.Array,
    version: FileVersion,
    *,
    metadata: Mapping[str, str] | None = None,
    arrow_field: pa.Field | None = None,
) -> FieldFile:
    """Encode an array as a field named `f`."""
    target_field = arrow_field or pa.field("f", array.type, metadata=dict(metadata or {}))
    stored = Field.from_arrow(target_field, itertools.count(), blob_v2=False)
    data = bytearray()
    sink = MemorySink(data)
    generation = v2_3 if version is FileVersion.V2_3 else v2_1
    owners = generation.columns_of(stored, version)
    pages: list[list[StoredPage]] = [[] for _ in owners]
    for page in generation.encode_field(array, stored, version, blobs=sink):
        buffers = [buffer.slice_bytes(0) for buffer in page.buffers]
        position = [append(data, buffer) for buffer in buffers]
        pages[page.column].append(
            StoredPage(
                first_row=sum(before.length for before in pages[page.column]),
                length=page.length,
                position=np.array(position, np.int64),
                size=np.array([len(buffer) for buffer in buffers], np.int64),
                encoding=page.encoding,
                priority=page.first_row,
            )
        )
    none = np.empty(0, np.int64)
    columns = [
        StoredColumn(index, b"", tuple(column), none, none) for index, column in enumerate(pages)
    ]
    return FieldFile(stored, version, columns, data, sink)


def append(data: bytearray, buffer: Bytes) -> int:
    """Append bytes at the next aligned position and return the position."""
    data += b"H" * (-len(data) % ALIGNMENT)
    position = len(data)
    data += np.ascontiguousarray(buffer).tobytes()
    return position
