"""The metadata of 0.1 files: footer, `Metadata` message, schema and page table.

    pages ... | page table | statistics | dictionary values | manifest | Metadata | footer
                                                             length and message each

The footer contains the position of `Metadata`, which contains all other positions. The schema is
stored as a manifest with fields only. Dictionary values and statistics are read on first use.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import Any, Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from lancelet.buffers import ByteRanges, Bytes, Int64s, ReadCoroutine
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
    """The first row of each batch, followed by the number of rows."""
    pages: Mapping[int, FieldPages]
    schema: Schema | None
    """The schema stored in the file, or None."""
    statistics: file_pb.Metadata.StatisticsMetadata | None
    file_bytes: int

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return len(self.bounds) - 1


def read_metadata(
    tail: Bytes, *, file_bytes: int, field_ids: Collection[int] | None
) -> ReadCoroutine[FileMetadata]:
    """Parse the tail of a file, and read missing metadata.

    `field_ids` are the field ids of the file in its table; by default, those of the schema stored
    in the file.
    """
    tail_start = file_bytes - tail.nbytes
    position = _metadata_position(tail, file_bytes=file_bytes)
    if position < tail_start:
        tail = (yield ByteRanges.of((position, file_bytes - position))).slice_bytes(0)
        tail_start = position
    metadata = _parse_message(tail[position - tail_start :], file_pb.Metadata, section="metadata")
    bounds = _bounds(metadata.batch_offsets)
    schema = None
    if metadata.manifest_position:
        start = _check_position(metadata.manifest_position, position, section="schema")
        if start < tail_start:
            tail = (yield ByteRanges.of((start, file_bytes - start))).slice_bytes(0)
            tail_start = start
        manifest = _parse_message(tail[start - tail_start :], table_pb.Manifest, section="schema")
        schema = Schema.from_protos(manifest.fields, manifest.schema_metadata)
    ids = _ids_of_pages(field_ids, schema)
    num_batches = len(bounds) - 1
    pages: Mapping[int, FieldPages] = {}
    if ids and num_batches:
        table = table_range(metadata.page_table_position, ids, num_batches, file_bytes=file_bytes)
        pages = parse_table((yield ByteRanges.of(table)).slice_bytes(0), ids, num_batches)
    elif ids:
        no_pages = np.empty(0, np.int64)
        pages = dict.fromkeys(ids, FieldPages(no_pages, no_pages))
    statistics = metadata.statistics if metadata.HasField("statistics") else None
    return FileMetadata(bounds, pages, schema, statistics, file_bytes)


def message_bytes(message: Message) -> bytes:
    """Return a message with its length prefix."""
    data = message.SerializeToString()
    return MESSAGE_HEAD.pack(len(data)) + data


def _metadata_position(tail: Bytes, *, file_bytes: int) -> int:
    if tail.nbytes < FOOTER.size:
        raise CorruptDataError("the file is too short for its footer", file_bytes=file_bytes)
    position, _, _, _ = FOOTER.unpack(tail[-FOOTER.size :].tobytes())
    return _check_position(position, file_bytes - FOOTER.size, section="metadata")


def _check_position(position: int, limit: int, *, section: str) -> int:
    if not 0 <= position <= limit - MESSAGE_HEAD.size:
        raise CorruptDataError(
            f"the {section} is outside of the file; was it truncated by a copy?",
            position=position,
            limit=limit,
        )
    return position


def _parse_message(data: Bytes, message: type[M], *, section: str) -> M:
    (size,) = MESSAGE_HEAD.unpack(data[: MESSAGE_HEAD.size].tobytes())
    body = data[MESSAGE_HEAD.size : MESSAGE_HEAD.size + size]
    parser: Any = message
    try:
        if body.nbytes == size:
            parsed: M = parser.FromString(body.tobytes())
            return parsed
    except DecodeError as error:
        raise CorruptDataError(f"the {section} of the file cannot be parsed", bytes=size) from error
    raise CorruptDataError(
        f"the {section} of the file extends past its end",
        expected_bytes=size,
        found_bytes=body.nbytes,
    )


def _bounds(batch_offsets: Collection[int]) -> Int64s:
    bounds = np.array(list(batch_offsets) or [0], np.int64)
    if bounds[0] != 0 or (np.diff(bounds) < 0).any():
        raise CorruptDataError(
            "the batch offsets of the file are not ascending from 0",
            first_offsets=bounds[:8].tolist(),
        )
    return bounds


def _ids_of_pages(field_ids: Collection[int] | None, schema: Schema | None) -> list[int]:
    """Return the field ids of the page table."""
    # Tables replace the ids of dropped fields by negative ids, but the page table starts at the
    # smallest original id, which is in the schema of the file.
    if field_ids is not None and min(field_ids, default=0) >= 0:
        return sorted(field_ids)
    if schema is None:
        raise CorruptDataError("the schema is missing in the file and in its table")
    return sorted({node.id for node in schema.walk()})
