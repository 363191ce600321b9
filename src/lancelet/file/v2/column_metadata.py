"""The metadata of one column: which pages it has, where their buffers are, how they are encoded.

A page knows how many rows it has, not where they begin, so that is a running sum:

    pages      length 100, length 50
    first_row       0        100

An encoding is an envelope (`Any`: a type name and a message) that is stored in the metadata
itself, or, as the format allows and no known writer does, elsewhere in the file. Decoding is
therefore a `Reading`: it asks for bytes only in the second case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from lancelet.buffers import Bytes, Int64s, Ranges, Reading, Slices
from lancelet.encodings.base import StoredColumn, StoredPage
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings20_pb, file2_pb, wire_pb

_COLUMN_ENCODING_URL: Final = "/lance.encodings.ColumnEncoding"
_ROWS_MAX: Final = 1 << 62

PLAIN_COLUMN_ENCODING: Final = wire_pb.Any(
    type_url=_COLUMN_ENCODING_URL,
    value=encodings20_pb.ColumnEncoding(values=encodings20_pb.ColumnValues()).SerializeToString(),
).SerializeToString()
"""The envelope of a column whose pages are just its values."""


@dataclass(frozen=True, slots=True)
class WrittenPage:
    """A page whose buffers are in the file, ready for the metadata."""

    positions: tuple[int, ...]
    sizes: tuple[int, ...]
    length: int
    encoding: bytes
    priority: int


def encode_column(pages: Sequence[WrittenPage], *, encoding: bytes) -> bytes:
    """Return the metadata of a column as they are stored."""
    message = file2_pb.ColumnMetadata(
        encoding=_direct(encoding),
        pages=[
            file2_pb.ColumnMetadata.Page(
                buffer_offsets=page.positions,
                buffer_sizes=page.sizes,
                length=page.length,
                encoding=_direct(page.encoding),
                priority=page.priority,
            )
            for page in pages
        ],
    )
    return message.SerializeToString()


def decode_column(data: Bytes, *, index: int, file_bytes: int) -> Reading[StoredColumn]:
    """Decode the metadata of a column; every buffer is known to lie within the file."""
    try:
        message = file2_pb.ColumnMetadata.FromString(data.tobytes())
    except DecodeError as error:
        raise CorruptDataError("the metadata of a column cannot be parsed", column=index) from error
    encodings = yield from _resolve(
        [message.encoding, *(page.encoding for page in message.pages)], column=index
    )
    lengths = [page.length for page in message.pages]
    first_rows = list(accumulate(lengths, initial=0))
    if first_rows[-1] > _ROWS_MAX:
        raise CorruptDataError(
            "the pages of a column claim too many rows", column=index, rows=first_rows[-1]
        )
    buffers = _buffers([message, *message.pages], file_bytes=file_bytes, column=index)
    pages = tuple(
        StoredPage(first_row, page.length, position, size, encoding, page.priority)
        for page, encoding, first_row, (position, size) in zip(
            message.pages, encodings[1:], first_rows, buffers[1:], strict=False
        )
    )
    return StoredColumn(index, encodings[0], pages, *buffers[0])


def _direct(encoding: bytes) -> file2_pb.Encoding:
    return file2_pb.Encoding(direct=file2_pb.DirectEncoding(encoding=encoding))


def _resolve(messages: Sequence[file2_pb.Encoding], *, column: int) -> Reading[list[bytes]]:
    """Return the bytes of encodings, reading those that are stored elsewhere in one round."""
    deferred = [
        (message.indirect.buffer_location, message.indirect.buffer_length)
        for message in messages
        if message.HasField("indirect")
    ]
    fetched: Slices | None = None
    if deferred:
        if max(map(max, deferred)) > _ROWS_MAX:
            raise CorruptDataError("an encoding lies outside of the file", column=column)
        fetched = yield Ranges.of(*deferred)
    found: list[bytes] = []
    taken = 0
    for message in messages:
        if fetched is not None and message.HasField("indirect"):
            found.append(fetched.slice_bytes(taken).tobytes())
            taken += 1
        else:
            found.append(message.direct.encoding)
    return found


def _buffers(
    owners: Sequence[file2_pb.ColumnMetadata | file2_pb.ColumnMetadata.Page],
    *,
    file_bytes: int,
    column: int,
) -> list[tuple[Int64s, Int64s]]:
    """Return positions and sizes of the buffers of each owner, all as views of two arrays."""
    bounds = [0]
    offsets: list[int] = []
    sizes: list[int] = []
    for owner in owners:
        offsets += owner.buffer_offsets
        sizes += owner.buffer_sizes
        if len(offsets) != len(sizes):
            raise CorruptDataError(
                "a page has a different number of positions and sizes of buffers",
                column=column,
                positions=len(owner.buffer_offsets),
                sizes=len(owner.buffer_sizes),
            )
        bounds.append(len(offsets))
    for offset, size in zip(offsets, sizes, strict=True):
        if offset + size > file_bytes:
            raise CorruptDataError(
                "a buffer of a page lies outside of the file; was it cut short by a copy?",
                column=column,
                position=offset,
                size=size,
                file_bytes=file_bytes,
            )
    position, length = np.array(offsets, np.int64), np.array(sizes, np.int64)
    return [(position[start:stop], length[start:stop]) for start, stop in pairwise(bounds)]
