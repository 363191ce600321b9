"""Deletion vectors: the deleted rows of a fragment, and the two file types that store them.

Small vectors are stored as an Arrow file with one column of offsets, large ones as a Roaring
bitmap. A vector that was once stored as a bitmap remains one, so the file type is part of the
value.

    offsets {1, 7}    fewer than 5000    _deletions/0-3-<id>.arrow

Files written by this library carry a checksum: in the metadata of the Arrow batch, or in a trailer
after the bitmap.
"""

from __future__ import annotations

import io
import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap, FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.fragment import DeletionFileType
from lancelet.format.roaring import parse_bitmap, render_bitmap, to_bitmap, to_numbers
from lancelet.format.trailer import (
    check_name,
    name_checksum,
    split_name_checksum,
    strip_trailer,
    with_name_checksum,
    with_trailer,
)
from lancelet.kernels import crc32c
from lancelet.rowids.address import OFFSETS_MAX
from lancelet.values import dataclass

BITMAP_FROM_ROWS: Final = 5000
"""Minimum number of deleted rows for storage as a bitmap."""

_COMPRESSED_FROM_ROWS: Final = 256
"""Minimum number of offsets for compression of the Arrow batch. Smaller batches save less than
the setup costs.
"""

_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")
_PLAIN: Final = pa.ipc.IpcWriteOptions()
_RATIO_MAX: Final = 64
"""Maximum expansion of a compressed batch of offsets."""

_CHECKSUM: Final = b"lancelet.crc32c"
_NAME: Final = b"lancelet.name"
_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The offsets of a fragment's deleted rows."""

    offsets: FrozenBitMap
    file_type: DeletionFileType = DeletionFileType.ARROW_ARRAY

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use: two bytes per row, or one bit per row of a dense bitmap."""
        return 100 + min(2 * len(self.offsets), (self.offsets.max() if self.offsets else 0) // 8)

    @staticmethod
    def of(offsets: npt.ArrayLike) -> DeletionVector:
        """Return the vector of these offsets; its size decides the file type.

        >>> len(DeletionVector.of([7, 1, 7]))
        2
        """
        found = np.asarray(offsets)
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) < OFFSETS_MAX:
            raise InvalidInputError("a row offset has 32 bits")
        return NO_DELETIONS.union(to_bitmap(found))

    @staticmethod
    def parse(
        data: bytes,
        file_type: DeletionFileType,
        path: str | None = None,
        *,
        physical_rows: int = OFFSETS_MAX,
    ) -> DeletionVector:
        """Parse a deletion file. Raise if it was written to a path other than `path`.

        `physical_rows` bounds the rows of a compressed file before memory is allocated for them.
        """
        if file_type is DeletionFileType.BITMAP:
            content, stored_name = split_name_checksum(
                strip_trailer(np.frombuffer(data, np.uint8)).tobytes()
            )
            offsets = parse_bitmap(content)
        else:
            _check_arrow_size(data, physical_rows)
            offsets, stored_name = _parse_arrow(data)
        if path is not None:
            check_name(stored_name, path.rpartition("/")[2])
        return DeletionVector(offsets, file_type)

    def validated(self, physical_rows: int, num_deleted_rows: int) -> DeletionVector:
        """Return the vector if it fits a fragment with these row counts.

        A manifest with 0 deleted rows does not record the count.
        """
        if self.offsets and self.offsets.max() >= physical_rows:
            raise CorruptDataError(
                "a deleted row index is out of range of its fragment",
                offset=self.offsets.max(),
                physical_rows=physical_rows,
            )
        if num_deleted_rows and num_deleted_rows != len(self.offsets):
            raise CorruptDataError(
                "a deletion file and its manifest disagree on the number of deleted rows",
                expected=num_deleted_rows,
                found=len(self.offsets),
            )
        return self

    def render(self, path: str) -> bytes:
        """Return the bytes of the deletion file, which include a checksum of its file name."""
        name = path.rpartition("/")[2]
        if self.file_type is DeletionFileType.BITMAP:
            return with_trailer(with_name_checksum(render_bitmap(self.offsets), name))
        return _render_arrow(self.to_array(), name)

    def __len__(self) -> int:
        return len(self.offsets)

    def union(self, offsets: FrozenBitMap | BitMap) -> DeletionVector:
        """Return the vector after more rows are deleted."""
        merged = FrozenBitMap(self.offsets | offsets)
        is_bitmap = self.file_type is DeletionFileType.BITMAP or len(merged) >= BITMAP_FROM_ROWS
        return DeletionVector(
            merged, DeletionFileType.BITMAP if is_bitmap else DeletionFileType.ARROW_ARRAY
        )

    def as_bitmap(self) -> DeletionVector:
        """Return the same rows in the form of a bitmap, as a rebase leaves them."""
        return DeletionVector(self.offsets, DeletionFileType.BITMAP)

    def to_array(self) -> npt.NDArray[np.uint32]:
        """Return the offsets, ascending."""
        return to_numbers(self.offsets)

    def live_offsets(self, physical_rows: int) -> Int64s:
        """Return the offsets of the rows that are not deleted, ascending."""
        self.check_within(physical_rows)
        return np.flatnonzero(self.live_within(0, physical_rows)).astype(np.int64)

    def live_within(self, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows in `[start, stop)` that are not deleted.

        The result is as large as the range, so validate row counts from a manifest first.

        >>> DeletionVector.of([0, 2, 9]).live_within(1, 4).tolist()
        [True, False, True]
        """
        live = np.ones(stop - start, np.bool_)
        if start < stop:
            within = self.offsets & FrozenBitMap(range(start, stop))
            live[to_numbers(within) - start] = False
        return live

    def check_within(self, physical_rows: int) -> None:
        """Raise if a row is deleted that a fragment with this number of rows does not have."""
        last = int(self.offsets.max()) if self.offsets else -1
        if last >= physical_rows:
            raise CorruptDataError(
                "a deleted row index is out of range of its fragment",
                offset=last,
                physical_rows=physical_rows,
            )

    def physical_offsets(self, live: Int64s) -> Int64s:
        """Convert positions among the live rows to row offsets.

        >>> DeletionVector.of([0, 2]).physical_offsets(np.array([0, 1, 2])).tolist()
        [1, 3, 4]
        """
        deleted = self.to_array().astype(np.int64)
        # Before the i-th deleted row there are deleted[i] - i live ones.
        live_before = deleted - np.arange(len(deleted))
        return live + np.searchsorted(live_before, live, side="right")


NO_DELETIONS: Final = DeletionVector(FrozenBitMap())


def _parse_arrow(data: bytes) -> tuple[FrozenBitMap, int | None]:
    """Return the offsets, and the checksum of the file name if the file has one."""
    try:
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            if reader.num_record_batches != 1 or reader.schema.types != _SCHEMA.types:
                raise CorruptDataError(
                    "a deletion file must hold one batch with one column of offsets",
                    batches=reader.num_record_batches,
                    found=str(reader.schema),
                )
            batch, notes = reader.get_batch_with_custom_metadata(0)
            batch.validate(full=True)
            column = batch.column(0)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, CorruptDataError):
            raise
        raise CorruptDataError("a deletion file is not an Arrow file") from error
    if column.null_count:
        raise CorruptDataError("a deletion file has nulls", nulls=column.null_count)
    offsets = column.to_numpy()
    stated = None if notes is None else notes.get(_CHECKSUM)
    if stated not in {None, _checksum_of(offsets)}:
        raise CorruptDataError("the offsets of a deletion file are not those that were written")
    own_name = None if notes is None else notes.get(_NAME)
    return to_bitmap(offsets), None if own_name is None else _number(own_name)


# Field numbers of Arrow's File.fbs and Message.fbs.
_BLOCKS, _HEADER, _LENGTH, _BUFFERS, _COMPRESSION = 3, 2, 0, 2, 3
_MAGIC: Final = b"ARROW1"


def _check_arrow_size(data: bytes, physical_rows: int) -> None:
    """Raise if the batch of an Arrow file takes more memory than the offsets of a fragment.

    Offsets are distinct, so they compress by a small factor only.
    """
    rows_max = min(physical_rows, max(1 << 18, _RATIO_MAX * len(data) // 4))
    try:
        end = len(data) - len(_MAGIC) - 4
        (size,) = struct.unpack_from("<I", data, end)
        footer = data[end - size : end]
        (root,) = struct.unpack_from("<I", footer, 0)
        blocks = _vector(footer, root, _BLOCKS)
        (count,) = struct.unpack_from("<I", footer, blocks)
        for index in range(min(count, len(footer) // 24)):
            start, metadata_size = struct.unpack_from("<qi", footer, blocks + 4 + 24 * index)
            metadata = data[start : start + metadata_size]
            has_marker = metadata[:4] == b"\xff" * 4  # before Arrow 0.15 there was only the size
            body = memoryview(data)[start + metadata_size :]
            _check_batch_size(metadata[8 if has_marker else 4 :], body, rows_max)
    except (struct.error, IndexError) as error:
        raise CorruptDataError("a deletion file is not an Arrow file") from error


def _check_batch_size(message: bytes, body: memoryview, rows_max: int) -> None:
    (root,) = struct.unpack_from("<I", message, 0)
    header = _field(message, root, _HEADER)
    batch = header + struct.unpack_from("<I", message, header)[0]
    at = _field(message, batch, _LENGTH)
    rows = struct.unpack_from("<q", message, at)[0] if at else 0
    sizes = [4 * rows]
    if _field(message, batch, _COMPRESSION):
        vector = _vector(message, batch, _BUFFERS)
        (count,) = struct.unpack_from("<I", message, vector)
        for index in range(min(count, len(message) // 16)):
            start, size = struct.unpack_from("<qq", message, vector + 4 + 16 * index)
            if size:
                sizes.append(struct.unpack_from("<q", body, start)[0])
    largest = max(sizes)
    if largest > 4 * rows_max + 64:
        raise CorruptDataError(
            "a deletion file has more rows than its fragment; restore an earlier version",
            found=-(-largest // 4),
            rows_max=rows_max,
        )


def _vector(message: bytes, table: int, field: int) -> int:
    at = _field(message, table, field)
    if not at:
        raise CorruptDataError("a deletion file is not an Arrow file")
    return at + int(struct.unpack_from("<I", message, at)[0])


def _field(message: bytes, table: int, field: int) -> int:
    """Return the position of a field of a FlatBuffers table, 0 if it is absent."""
    offsets = table - struct.unpack_from("<i", message, table)[0]
    (size,) = struct.unpack_from("<H", message, offsets)
    if 4 + 2 * field >= size:
        return 0
    (offset,) = struct.unpack_from("<H", message, offsets + 4 + 2 * field)
    return int(table + offset) if offset else 0


def _number(text: bytes) -> int:
    try:
        return int(text, 16)
    except ValueError as error:
        raise CorruptDataError("the file name checksum of a deletion file is damaged") from error


def _checksum_of(offsets: npt.NDArray[np.uint32]) -> bytes:
    return f"{crc32c(offsets.view(np.uint8)):08x}".encode()


def _render_arrow(offsets: npt.NDArray[np.uint32], name: str) -> bytes:
    sink = io.BytesIO()
    options = _COMPRESSED if len(offsets) >= _COMPRESSED_FROM_ROWS else _PLAIN
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        batch = pa.record_batch([pa.array(offsets)], schema=_SCHEMA)
        notes = {
            _CHECKSUM: _checksum_of(offsets),
            _NAME: f"{name_checksum(name):08x}".encode(),
        }
        writer.write_batch(batch, custom_metadata=notes)
    return sink.getvalue()
