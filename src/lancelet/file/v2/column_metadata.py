"""Column metadata: the pages of a column, with the positions and encodings of their buffers.

Pages store their number of rows; the first row is a running sum:

    pages      length 100, length 50
    first_row       0        100

An encoding is an envelope (`Any`: a type name and a message), stored in the metadata. The format
also allows encodings elsewhere in the file, although no known writer uses this. Decoding is a
coroutine that requests bytes only in that case.

Metadata of many columns is decoded to arrays in one call (`decode_plain_columns`), if it has the
structure that all known writers produce.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lancelet import kernels
from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s, ReadCoroutine
from lancelet.encodings.base import StoredColumn, StoredPage
from lancelet.encodings.pages.stored_pages import StoredPages, to_bounds
from lancelet.encodings.row_ranges import expand
from lancelet.errors import CorruptDataError
from lancelet.file.v2.footer import is_outside
from lancelet.format.protos import encodings20_pb, file2_pb, wire_pb
from lancelet.values import dataclass

# Protobuf field numbers of `ColumnMetadata` and `Encoding`.
_OWN_ENCODING, _PAGES, _DIRECT, _BYTES_OF_DIRECT = 1, 2, 2, 1
_NONE: Final = np.empty(0, np.int64)

_COLUMN_ENCODING_URL: Final = "/lance.encodings.ColumnEncoding"
_ROWS_MAX: Final = 1 << 62
_CACHED_ENCODINGS: Final = 64

PLAIN_COLUMN_ENCODING: Final = wire_pb.Any(
    type_url=_COLUMN_ENCODING_URL,
    value=encodings20_pb.ColumnEncoding(values=encodings20_pb.ColumnValues()).SerializeToString(),
).SerializeToString()
"""The encoding of columns without column-level data."""


@dataclass(frozen=True, slots=True, eq=False)
class WrittenPages:
    """Written pages with the same encoding and length, one for each of some columns.

    Buffer k of page i is at `positions[k][i]` and has `sizes[k][i]` bytes.
    """

    columns: Sequence[int]
    positions: Sequence[Int64s]
    sizes: Sequence[Int64s]
    length: int
    encoding: bytes
    priorities: Sequence[int]


def encode_columns(
    pages: Sequence[WrittenPages], encodings: Sequence[bytes]
) -> tuple[Bytes, Int64s]:
    """Return the concatenated metadata of all columns, and the end of each column.

    `encodings` are the encodings of the columns. The pages of a column retain their order.
    """
    heads: dict[bytes, int] = {}
    column_heads = np.array([heads.setdefault(each, len(heads)) for each in encodings], np.int64)
    counts = [len(each.columns) for each in pages]
    columns, priorities = (
        np.fromiter(chain.from_iterable(each), np.int64, sum(counts))
        for each in ((own.columns for own in pages), (own.priorities for own in pages))
    )
    kinds = [heads.setdefault(each.encoding, len(heads)) for each in pages]
    head, length, buffers = (
        np.array(each, np.int64).repeat(counts)
        for each in (kinds, [own.length for own in pages], [len(own.sizes) for own in pages])
    )
    order = columns.argsort(kind="stable")
    first = buffers.cumsum() - buffers
    flat = expand(first[order], buffers[order])
    positions, sizes = (
        np.concatenate([_NONE, *(np.array(each).T.reshape(-1) for each in of_pages if each)])
        for of_pages in ((own.positions for own in pages), (own.sizes for own in pages))
    )
    envelopes = list(map(_direct, heads))
    lengths = np.array(list(map(len, envelopes)), np.int64)
    source = np.frombuffer(b"".join(envelopes), np.uint8)
    return kernels.join_pages(
        ByteSlices(source, lengths.cumsum() - lengths, lengths),
        columns[order].searchsorted(np.arange(len(encodings) + 1)),
        column_heads,
        np.array([head[order], length[order], priorities[order]]),
        (to_bounds(buffers[order]), positions[flat], sizes[flat]),
    )


def decode_column(data: Bytes, *, index: int, file_bytes: int) -> ReadCoroutine[StoredColumn]:
    """Decode the metadata of a column, or raise if a buffer is outside of the file."""
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
            "the pages of a column declare too many rows", column=index, rows=first_rows[-1]
        )
    buffers = _buffers([message, *message.pages], file_bytes=file_bytes, column=index)
    pages = tuple(
        StoredPage(first_row, page.length, position, size, encoding, page.priority)
        for page, encoding, first_row, (position, size) in zip(
            message.pages, encodings[1:], first_rows, buffers[1:], strict=False
        )
    )
    return StoredColumn(index, encodings[0], pages, *buffers[0])


@dataclass(frozen=True, slots=True, eq=False)
class PlainColumns:
    """Columns without column-level buffers; column i has pages `edges[i]` to `edges[i + 1]`."""

    indices: Sequence[int]
    encodings: Sequence[bytes]
    pages: StoredPages
    edges: Int64s

    def column(self, index: int) -> StoredColumn:
        """Return a column by its position in `indices`."""
        start, stop = self.edges[index : index + 2].tolist()
        pages = self.pages.part(start, stop)
        return StoredColumn(self.indices[index], self.encodings[index], pages, _NONE, _NONE)

    def joined(self, starts: Int64s) -> StoredColumn:
        """Return one column with the pages of all; positions are moved by `starts`, one each."""
        pages_of = np.diff(self.edges)
        moved = starts.repeat(pages_of).repeat(self.pages.num_buffers)
        pages = replace(self.pages, position=self.pages.position + moved)
        return StoredColumn(self.indices[0], self.encodings[0], pages, _NONE, _NONE)


def decode_plain_columns(
    metadata: ByteSlices, indices: Sequence[int], *, file_bytes: Int64s
) -> PlainColumns | None:
    """Decode the metadata of many columns, or return None if not all of them are plain.

    `file_bytes` has the size of the file of each column. Columns with separately stored encodings,
    column-level buffers or damage are not plain; `decode_column` handles them.
    """
    try:
        return _plain_columns(metadata, indices, file_bytes=file_bytes)
    except CorruptDataError:
        return None


def _plain_columns(
    metadata: ByteSlices, indices: Sequence[int], *, file_bytes: Int64s
) -> PlainColumns | None:
    source = metadata.source
    owner, position, size = kernels.find_parts_in(metadata, _PAGES)
    pages = ByteSlices(source, position, size)
    own_encodings, encodings = _encodings_in(metadata, _OWN_ENCODING), _encodings_in(pages, 4)
    packed_offsets, packed_sizes = _numbers_in(pages, 1), _numbers_in(pages, 2)
    own_buffers = [len(kernels.find_parts_in(metadata, field)[0]) for field in (3, 4)]
    unpacked = kernels.read_varints(metadata, np.array([0, 3, 0, 4]))[1].any()
    numbers, present = kernels.read_varints(pages, np.array([0, 3, 0, 5, 0, 1, 0, 2]))
    if own_encodings is None or encodings is None or any(own_buffers) or unpacked:
        return None
    if present[2:].any() or packed_offsets is None or packed_sizes is None:
        return None
    (counts, offsets), (size_counts, sizes) = packed_offsets, packed_sizes
    length = numbers[0]
    if not np.array_equal(counts, size_counts) or (length > _ROWS_MAX).any():
        return None
    limit = file_bytes[owner].repeat(counts).view(np.uint64)
    if is_outside(offsets, sizes, limit).any() or float(length.sum(dtype=np.float64)) > _ROWS_MAX:
        return None
    kinds: dict[bytes, int] = {}
    kind = [kinds.setdefault(encoding, len(kinds)) for encoding in encodings]
    every = StoredPages(
        length.view(np.int64),
        numbers[1].view(np.int64),
        to_bounds(counts),
        offsets.view(np.int64),
        sizes.view(np.int64),
        np.array(kind, np.int64),
        tuple(kinds),
    )
    edges = owner.searchsorted(np.arange(len(metadata) + 1))
    return PlainColumns(indices, own_encodings, every, edges)


def _encodings_in(messages: ByteSlices, field: int) -> list[bytes] | None:
    """Return the encodings stored in each message, or None if one is stored elsewhere."""
    nested = messages
    for number in (field, _DIRECT, _BYTES_OF_DIRECT):
        owner, position, size = kernels.find_parts_in(nested, number)
        if not np.array_equal(owner, np.arange(len(messages))):
            return None
        # In a oneof, the last field wins, so the encoding must be the only field.
        head = 2 + (size >= 1 << 7) + (size >= 1 << 14) + (size >= 1 << 21) + (size >= 1 << 28)
        if number != field and not np.array_equal(size + head, nested.size):
            return None
        nested = ByteSlices(messages.source, position, size)
    source = messages.source.data
    stops = (position + size).tolist()
    return [bytes(source[at:stop]) for at, stop in zip(position.tolist(), stops, strict=True)]


def _numbers_in(messages: ByteSlices, field: int) -> tuple[Int64s, npt.NDArray[np.uint64]] | None:
    """Return the counts and values of a packed field of each message."""
    owner, position, size = kernels.find_parts_in(messages, field)
    if len(owner) > 1 and not (owner[1:] > owner[:-1]).all():
        return None
    part_counts, values = kernels.read_packed(ByteSlices(messages.source, position, size))
    counts = np.zeros(len(messages), np.int64)
    counts[owner] = part_counts
    return counts, values


@lru_cache(_CACHED_ENCODINGS)
def _direct(encoding: bytes) -> bytes:
    """Return the serialized `Encoding` message of an encoding."""
    direct = file2_pb.DirectEncoding(encoding=encoding)
    return file2_pb.Encoding(direct=direct).SerializeToString()


def _resolve(messages: Sequence[file2_pb.Encoding], *, column: int) -> ReadCoroutine[list[bytes]]:
    """Return the encodings; those stored elsewhere are read in one request."""
    deferred = [
        (message.indirect.buffer_location, message.indirect.buffer_length)
        for message in messages
        if message.HasField("indirect")
    ]
    fetched: ByteSlices | None = None
    if deferred:
        if max(map(max, deferred)) > _ROWS_MAX:
            raise CorruptDataError("an encoding is outside of the file", column=column)
        fetched = yield ByteRanges.of(*deferred)
    encodings: list[bytes] = []
    next_slice = 0
    for message in messages:
        if fetched is not None and message.HasField("indirect"):
            encodings.append(fetched.slice_bytes(next_slice).tobytes())
            next_slice += 1
        else:
            encodings.append(message.direct.encoding)
    return encodings


def _buffers(
    owners: Sequence[file2_pb.ColumnMetadata | file2_pb.ColumnMetadata.Page],
    *,
    file_bytes: int,
    column: int,
) -> list[tuple[Int64s, Int64s]]:
    """Return the positions and sizes of the buffers of each owner."""
    bounds = [0]
    offsets: list[int] = []
    sizes: list[int] = []
    for owner in owners:
        offsets += owner.buffer_offsets
        sizes += owner.buffer_sizes
        if len(offsets) != len(sizes):
            raise CorruptDataError(
                "a page has a different number of buffer positions and sizes",
                column=column,
                positions=len(owner.buffer_offsets),
                sizes=len(owner.buffer_sizes),
            )
        bounds.append(len(offsets))
    for offset, size in zip(offsets, sizes, strict=True):
        if is_outside(offset, size, file_bytes):
            raise CorruptDataError(
                "a page buffer is outside of the file; was it truncated by a copy?",
                column=column,
                position=offset,
                size=size,
                file_bytes=file_bytes,
            )
    position, length = np.array(offsets, np.int64), np.array(sizes, np.int64)
    return [(position[start:stop], length[start:stop]) for start, stop in pairwise(bounds)]
