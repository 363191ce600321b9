"""Context of a decoder of 2.0 pages: buffers and the page cache."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import pyarrow as pa
from google.protobuf.message import DecodeError

from lancelet.buffers import ReadCoroutine
from lancelet.encodings.base import HeaderCache, StoredColumn, StoredPage
from lancelet.encodings.row_ranges import RowRanges
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings20_pb as pb
from lancelet.format.protos import wire_pb
from lancelet.values import dataclass

T = TypeVar("T")

ARRAY_ENCODING_URL = "/lance.encodings.ArrayEncoding"
COLUMN_ENCODING_URL = "/lance.encodings.ColumnEncoding"


class Decoder(Protocol):
    """Reads values of one page by position."""

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read the values of `ranges`, which must be within the page."""


@dataclass(frozen=True, slots=True)
class StoredBuffer:
    """The location of a buffer in the file."""

    position: int
    size: int

    def check_size(self, bits: int, *, count: int) -> None:
        """Raise unless the buffer has space for `count` values of `bits` bits in total."""
        if (bits + 7) // 8 > self.size:
            raise CorruptDataError(
                "a page claims more values than its buffer contains",
                position=self.position,
                values=count,
                expected_bytes=(bits + 7) // 8,
                found_bytes=self.size,
            )


@dataclass(frozen=True, slots=True)
class PageCache:
    """The metadata cache of one page."""

    header_cache: HeaderCache | None
    column: int
    page: int

    def get(self, kind: type[T]) -> T | None:
        """Return the cached value of a class, or None."""
        return self.header_cache.get((self.column, self.page), kind) if self.header_cache else None

    def put(self, value: object, *, value_bytes: int) -> None:
        """Cache a value for later reads of the page if the budget allows."""
        if self.header_cache:
            self.header_cache.put((self.column, self.page), value, value_bytes=value_bytes)


@dataclass(frozen=True, slots=True)
class PageBuffers:
    """The buffers that the encodings of a page can reference."""

    column: StoredColumn
    page: StoredPage
    cache: PageCache

    def find(self, buffer: pb.Buffer) -> StoredBuffer:
        """Return the location of a referenced buffer."""
        match buffer.buffer_type:
            case pb.Buffer.page:
                position, size = self.page.position, self.page.size
            case pb.Buffer.column:
                position, size = self.column.buffer_position, self.column.buffer_size
            case unknown:
                raise UnsupportedError(
                    "a page references a buffer of the file; no released writer does",
                    column=self.column.index,
                    buffer_type=unknown,
                )
        index = buffer.buffer_index
        if index >= len(position):
            raise CorruptDataError(
                "a page references a missing buffer",
                column=self.column.index,
                buffer=index,
                buffers=len(position),
            )
        return StoredBuffer(int(position[index]), int(size[index]))


def parse_envelope(data: bytes, type_url: str, message: type[T]) -> T:
    """Parse the message of an envelope with the given type URL."""
    parser: Any = message
    try:
        envelope = wire_pb.Any.FromString(data)
        if envelope.type_url != type_url:
            raise UnsupportedError(
                "unknown encoding type for a file of version 2.0",
                expected=type_url,
                found=envelope.type_url,
            )
        parsed: T = parser.FromString(envelope.value)
    except DecodeError as error:
        raise CorruptDataError(
            "an encoding is not a valid protobuf message", expected=type_url, bytes=len(data)
        ) from error
    return parsed


def envelope(type_url: str, message: pb.ArrayEncoding | pb.ColumnEncoding) -> bytes:
    """Return the serialized envelope of a message."""
    return wire_pb.Any(type_url=type_url, value=message.SerializeToString()).SerializeToString()
