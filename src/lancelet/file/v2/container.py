"""Writing the container of 2.x files: aligned buffers, followed by metadata.

    position, size = container.write_buffer(values)
    ...
    container.finish(description)

The checksums (see `file.checksums`) precede the metadata and cover it, so the metadata is assembled
and hashed before the checksums are written:

    ... last buffer | checksums | descriptor | column metadata | tables | footer
                                 <------------ assembled, hashed, then written ------------->
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import FileVersion
from lancelet.file.checksums import (
    CHECKSUM_BLOCK_BYTES,
    CHECKSUM_MARKER,
    ChecksumBuilder,
    Checksums,
    checksum_size,
)
from lancelet.file.v2.footer import (
    ALIGNMENT,
    FOOTER_BYTES,
    PADDING_BYTE,
    TABLE_ROW_BYTES,
    Footer,
    padding_after,
    table_bytes,
)
from lancelet.io.store import ObjectWriter
from lancelet.values import dataclass, replace

BufferRange = tuple[int, int]
"""The position and size of a buffer in the file."""

_SMALL_BYTES: Final = 64 * 1024
"""Smaller buffers are hashed and written together."""

_FEW_PAGES: Final = 8
"""Up to this number of pages, writing each buffer is faster than joining them first."""

_PADDING: Final = bytes([PADDING_BYTE]) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Description:
    """The metadata at the end of a file: messages, and the positions of global buffers.

    `columns` contains the concatenated column metadata; column i ends at `column_ends[i]`.
    """

    version: FileVersion
    descriptor: bytes
    columns: Bytes
    column_ends: Int64s
    buffers: Sequence[BufferRange]


class Container:
    """Writes the buffers and metadata of a data file. Writing buffers is thread-safe."""

    def __init__(self, target: ObjectWriter, *, with_checksums: bool = True) -> None:
        """Start a file."""
        self._target = target
        self._lock = threading.Lock()
        self._checksums = ChecksumBuilder() if with_checksums else None
        self._position = target.position
        self._small = bytearray()
        """Small buffers that are not yet written."""

    @property
    def position(self) -> int:
        """The number of bytes so far, including unwritten small buffers."""
        return self._position

    def write_buffer(self, data: Bytes) -> BufferRange:
        """Write bytes at the next aligned position; return the position and size."""
        with self._lock:
            return self._take(data)

    def write_pages(self, buffers: Sequence[ByteSlices]) -> list[Int64s]:
        """Write pages, where page i consists of slice i of all buffers; return the positions."""
        if not buffers:
            return []
        with self._lock:
            count = len(buffers[0])
            total = sum(int(buffer.size.sum()) for buffer in buffers)
            if count <= _FEW_PAGES or total >= _SMALL_BYTES * count:
                starts = [
                    self._take(buffer.slice_bytes(page))[0]
                    for page in range(count)
                    for buffer in buffers
                ]
                return [*np.array(starts).reshape(count, -1).T]
            padded_sizes = [-(-buffer.size // ALIGNMENT) * ALIGNMENT for buffer in buffers]
            pages: Int64s = sum(padded_sizes[1:], padded_sizes[0])
            ends = pages.cumsum()
            positions = [ends - pages]
            data = kernels.scatter_slices(buffers[0], positions[0], int(ends[-1]), PADDING_BYTE)
            for buffer, before in zip(buffers[1:], padded_sizes, strict=False):
                positions.append(positions[-1] + before)
                kernels.copy_slices(buffer, data, positions[-1])
            position, _ = self._take(data)
            return [position + each for each in positions]

    def finish(self, description: Description) -> int:
        """Write the metadata, make the file visible and return its size."""
        self._write_small()
        start = self._position
        if self._checksums is None:
            self._target.write(_tail(start, description, description.buffers))
            return self._target.close()
        with_marker = replace(description, descriptor=description.descriptor + CHECKSUM_MARKER)
        size = _checksum_bytes(start, with_marker)
        padding = _PADDING[: padding_after(start + size)]
        tail_start = start + size + len(padding)
        tail = padding + _tail(tail_start, with_marker, (*with_marker.buffers, (start, size)))
        # The bytes of the checksums count as zeros.
        self._checksums.update(np.frombuffer(bytes(size) + tail, np.uint8))
        checksums = Checksums(
            CHECKSUM_BLOCK_BYTES, start, start + size + len(tail), self._checksums.finish()
        )
        self._target.write(checksums.to_bytes() + tail)
        return self._target.close()

    def abort(self) -> None:
        """Discard the file."""
        self._target.abort()

    def _take(self, data: Bytes) -> BufferRange:
        position, size = self._position, data.nbytes
        padding = _PADDING[: -(position + size) % ALIGNMENT]
        self._position += size + len(padding)
        if size >= _SMALL_BYTES:
            self._write_small()
            self._append(data)
        else:
            self._small += data.data
        self._small += padding
        if len(self._small) >= _SMALL_BYTES:
            self._write_small()
        return position, size

    def _write_small(self) -> None:
        """Write the small buffers."""
        if self._small:
            pending, self._small = np.frombuffer(self._small, np.uint8), bytearray()
            self._append(pending)

    def _append(self, data: Bytes) -> None:
        self._target.write(data)
        if self._checksums is not None:
            self._checksums.update(data)


def _checksum_bytes(start: int, description: Description) -> int:
    """Return the size of the checksums of a file, which includes the checksums."""
    tail_bytes = len(description.descriptor) + len(description.columns) + FOOTER_BYTES
    # A row per column and per buffer; the descriptor and the checksums are buffers as well.
    num_rows = len(description.column_ends) + len(description.buffers) + 2
    tail_bytes += num_rows * TABLE_ROW_BYTES
    size = 0
    while True:
        end = start + size
        needed = checksum_size(end + padding_after(end) + tail_bytes)
        if needed == size:
            return size
        size = needed


def _tail(start: int, description: Description, buffers: Sequence[BufferRange]) -> bytes:
    """Return the descriptor, column metadata, tables and footer, starting at `start`."""
    columns = start + len(description.descriptor)
    ends = description.column_ends
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1]
    column_table = table_bytes(columns + starts, ends - starts)
    buffer_table = table_bytes(*np.array([(start, len(description.descriptor)), *buffers]).T)
    table = columns + len(description.columns)
    footer = Footer(
        column_metadata=columns,
        column_table=table,
        buffer_table=table + len(column_table),
        num_buffers=1 + len(buffers),
        num_columns=len(ends),
        version=description.version,
    )
    metadata = description.columns.tobytes()
    return description.descriptor + metadata + column_table + buffer_table + footer.to_bytes()
