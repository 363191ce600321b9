"""What is read when a 0.1 file is opened: footer, metadata, embedded schema and page table.

    pages ... | page table | statistics | dictionary values | manifest | Metadata | footer
                                                             length and message each

The footer gives the position of `Metadata`, which gives the others. The schema is a manifest
that knows fields only. Dictionary values and statistics are read when they are first wanted.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from lancelet.buffers import Bytes, Int64s, Ranges, Reading
from lancelet.encodings.v0_1 import FieldPages
from lancelet.errors import CorruptDataError
from lancelet.file.v0_1.page_table import parse_table, table_range
from lancelet.format.protos import file_pb, table_pb
from lancelet.format.schema import Schema
from lancelet.values import dataclass

FOOTER: Final = struct.Struct("<qHH4s")
MESSAGE_HEAD: Final = struct.Struct("<I")

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, eq=False)
class FileMetadata:
    """The parsed tail of a 0.1 file."""

    bounds: Int64s
    """The first row of each batch, and the number of rows."""
    pages: Mapping[int, FieldPages]
    schema: Schema | None
    """The fields by the file's own account, if it has one."""
    statistics: file_pb.Metadata.StatisticsMetadata | None
    file_bytes: int

    @property
    def num_batches(self) -> int:
        """How many batches the file has."""
        return len(self.bounds) - 1


def read_metadata(
    tail: Bytes, *, file_bytes: int, field_ids: Collection[int] | None
) -> Reading[FileMetadata]:
    """Parse the tail of a file, and read what it turns out to lack.

    `field_ids` are those that the table gives for the file; without them, the file's own schema
    must say which fields it has.
    """
    tail_start = file_bytes - tail.nbytes
    position = _metadata_position(tail, file_bytes=file_bytes)
    if position < tail_start:
        tail = (yield Ranges.of((position, file_bytes - position))).slice_bytes(0)
        tail_start = position
    metadata = _parse_message(tail[position - tail_start :], file_pb.Metadata, what="metadata")
    bounds = _bounds(metadata.batch_offsets)
    schema = None
    if metadata.manifest_position:
        start = _check_position(metadata.manifest_position, position, what="schema")
        if start < tail_start:
            tail = (yield Ranges.of((start, file_bytes - start))).slice_bytes(0)
            tail_start = start
        manifest = _parse_message(tail[start - tail_start :], table_pb.Manifest, what="schema")
        schema = Schema.from_protos(manifest.fields, manifest.schema_metadata)
    ids = _ids_of_pages(field_ids, schema)
    num_batches = len(bounds) - 1
    pages: Mapping[int, FieldPages] = {}
    if ids and num_batches:
        place = table_range(metadata.page_table_position, ids, num_batches, file_bytes=file_bytes)
        pages = parse_table((yield Ranges.of(place)).slice_bytes(0), ids, num_batches)
    elif ids:
        none = np.empty(0, np.int64)
        pages = dict.fromkeys(ids, FieldPages(none, none))
    statistics = metadata.statistics if metadata.HasField("statistics") else None
    return FileMetadata(bounds, pages, schema, statistics, file_bytes)


def message_bytes(message: Message) -> bytes:
    """Return a message as it is stored, behind its length."""
    data = message.SerializeToString()
    return MESSAGE_HEAD.pack(len(data)) + data


def _metadata_position(tail: Bytes, *, file_bytes: int) -> int:
    if tail.nbytes < FOOTER.size:
        raise CorruptDataError("the file is too short for its footer", file_bytes=file_bytes)
    position, _, _, _ = FOOTER.unpack(tail[-FOOTER.size :].tobytes())
    return _check_position(position, file_bytes - FOOTER.size, what="metadata")


def _check_position(position: int, limit: int, *, what: str) -> int:
    if not 0 <= position <= limit - MESSAGE_HEAD.size:
        raise CorruptDataError(
            f"the {what} of the file lies outside of it; was it cut short by a copy?",
            position=position,
            limit=limit,
        )
    return position


def _parse_message(data: Bytes, message: type[M], *, what: str) -> M:
    (size,) = MESSAGE_HEAD.unpack(data[: MESSAGE_HEAD.size].tobytes())
    body = data[MESSAGE_HEAD.size : MESSAGE_HEAD.size + size]
    parser: Any = message
    try:
        if body.nbytes == size:
            parsed: M = parser.FromString(body.tobytes())
            return parsed
    except DecodeError as error:
        raise CorruptDataError(f"the {what} of the file cannot be parsed", bytes=size) from error
    raise CorruptDataError(
        f"the {what} of the file extends past its end", expected_bytes=size, found_bytes=body.nbytes
    )


def _bounds(batch_offsets: Collection[int]) -> Int64s:
    bounds = np.array(list(batch_offsets) or [0], np.int64)
    if bounds[0] != 0 or (np.diff(bounds) < 0).any():
        raise CorruptDataError(
            "the batches of the file do not follow each other",
            first_offsets=bounds[:8].tolist(),
        )
    return bounds


def _ids_of_pages(field_ids: Collection[int] | None, schema: Schema | None) -> list[int]:
    """Return the ids that the page table was made for."""
    # A field that was dropped from the file may be marked by a negative id, which hides where
    # the table began; the file itself still knows.
    if field_ids is not None and min(field_ids, default=0) >= 0:
        return sorted(field_ids)
    if schema is None:
        raise CorruptDataError("the file does not say which fields it has, nor does its table")
    return sorted({node.id for node in schema.walk()})
