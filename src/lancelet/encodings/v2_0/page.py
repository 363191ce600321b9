"""What a decoder of 2.0 knows of its page: where its buffers are, and a place to keep things."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import pyarrow as pa
from google.protobuf.message import DecodeError

from lancelet.buffers import Reading
from lancelet.encodings.base import Memo, StoredColumn, StoredPage
from lancelet.encodings.spans import Spans
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings20_pb as pb
from lancelet.format.protos import wire_pb
from lancelet.values import dataclass

T = TypeVar("T")

ARRAY_ENCODING_URL = "/lance.encodings.ArrayEncoding"
COLUMN_ENCODING_URL = "/lance.encodings.ColumnEncoding"


class Decoder(Protocol):
    """Reads values of one page, by their position in it."""

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read the values of `spans`, which lie within the page."""


@dataclass(frozen=True, slots=True)
class StoredBuffer:
    """Where a buffer is in the file."""

    position: int
    size: int

    def check_holds(self, bits: int, *, count: int) -> None:
        """Raise unless the buffer has room for `count` values, which take `bits` bits."""
        if (bits + 7) // 8 > self.size:
            raise CorruptDataError(
                "a page claims more values than its buffer holds",
                position=self.position,
                values=count,
                expected_bytes=(bits + 7) // 8,
                found_bytes=self.size,
            )


@dataclass(frozen=True, slots=True)
class PageCache:
    """The part of the memo that belongs to one page."""

    memo: Memo | None
    column: int
    page: int

    def get(self, kind: type[T]) -> T | None:
        """Return what was kept for the page under its class."""
        return self.memo.get((self.column, self.page), kind) if self.memo else None

    def put(self, value: object, *, value_bytes: int) -> None:
        """Keep a value for later reads of the page, if the budget allows."""
        if self.memo:
            self.memo.put((self.column, self.page), value, value_bytes=value_bytes)


@dataclass(frozen=True, slots=True)
class PageBuffers:
    """The buffers that the encodings of a page may name."""

    column: StoredColumn
    page: StoredPage
    cache: PageCache

    def find(self, buffer: pb.Buffer) -> StoredBuffer:
        """Return where a buffer is that an encoding names."""
        match buffer.buffer_type:
            case pb.Buffer.page:
                position, size = self.page.position, self.page.size
            case pb.Buffer.column:
                position, size = self.column.buffer_position, self.column.buffer_size
            case unknown:
                raise UnsupportedError(
                    "a page refers to a buffer of the file, which no released writer does",
                    column=self.column.index,
                    buffer_type=unknown,
                )
        index = buffer.buffer_index
        if index >= len(position):
            raise CorruptDataError(
                "a page refers to a buffer that it does not have",
                column=self.column.index,
                buffer=index,
                buffers=len(position),
            )
        return StoredBuffer(int(position[index]), int(size[index]))


def parse_envelope(data: bytes, type_url: str, message: type[T]) -> T:
    """Return the message in an envelope, which must be of the type named."""
    parser: Any = message
    try:
        envelope = wire_pb.Any.FromString(data)
        if envelope.type_url != type_url:
            raise UnsupportedError(
                "an encoding is of a kind that files of version 2.0 do not have",
                expected=type_url,
                found=envelope.type_url,
            )
        parsed: T = parser.FromString(envelope.value)
    except DecodeError as error:
        raise CorruptDataError(
            "an encoding is not a protobuf message", expected=type_url, bytes=len(data)
        ) from error
    return parsed


def envelope(type_url: str, message: pb.ArrayEncoding | pb.ColumnEncoding) -> bytes:
    """Return a message in an envelope that names its type."""
    return wire_pb.Any(type_url=type_url, value=message.SerializeToString()).SerializeToString()
