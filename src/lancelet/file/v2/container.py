"""Writing the container of a 2.x file: aligned buffers, then everything that describes them.

    place = container.write_buffer(values)      (position, size)
    ...
    container.finish(description)

The checksums (see `file.checksums`) lie before the descriptor and cover what comes behind them,
so all of that is put together first:

    ... last buffer | checksums | descriptor | column metadata | tables | footer
                                 <-------- made of known sizes, hashed, then written ------->
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import FileVersion
from lancelet.file.checksums import (
    CHECKSUM_BLOCK_BYTES,
    CHECKSUMS_MARK,
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

Place = tuple[int, int]
"""Position and size of bytes in the file."""

_SMALL_BYTES: Final = 64 * 1024
"""Buffers of fewer bytes are hashed and written together."""

_FEW_PAGES: Final = 8
"""So few pages are taken one by one sooner than all are laid out at once."""

_PADDING: Final = bytes([PADDING_BYTE]) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Description:
    """What the end of a file says of the rest: messages and the places of global buffers.

    Those of the columns are back to back; column i has what ends at `column_ends[i]`.
    """

    version: FileVersion
    descriptor: bytes
    columns: Bytes
    column_ends: Int64s
    buffers: Sequence[Place]


class Container:
    """A data file in the making. Buffers may be written from several threads."""

    def __init__(self, target: ObjectWriter, *, with_checksums: bool = True) -> None:
        """Write to `target`, from its beginning."""
        self._target = target
        self._lock = threading.Lock()
        self._checksums = ChecksumBuilder() if with_checksums else None
        self._position = target.position
        self._small = bytearray()
        """What was taken and is not written yet."""

    @property
    def position(self) -> int:
        """How many bytes were taken so far."""
        return self._position

    def write_buffer(self, data: Bytes) -> Place:
        """Write bytes at the next aligned position, which is returned with their size."""
        with self._lock:
            return self._take(data)

    def write_pages(self, buffers: Sequence[Slices]) -> list[Int64s]:
        """Write the slices i of all buffers, then those of i + 1; return where each slice is."""
        if not buffers:
            return []
        with self._lock:
            count = len(buffers[0])
            if count <= _FEW_PAGES:
                places = [
                    self._take(buffer.slice_bytes(page))[0]
                    for page in range(count)
                    for buffer in buffers
                ]
                return [*np.array(places).reshape(count, -1).T]
            room = [-(-buffer.size // ALIGNMENT) * ALIGNMENT for buffer in buffers]
            pages: Int64s = sum(room[1:], room[0])
            ends = pages.cumsum()
            within = [ends - pages]
            data = kernels.scatter_slices(buffers[0], within[0], int(ends[-1]), PADDING_BYTE)
            for buffer, before in zip(buffers[1:], room, strict=False):
                within.append(within[-1] + before)
                kernels.copy_slices(buffer, data, within[-1])
            position, _ = self._take(data)
            return [position + each for each in within]

    def finish(self, description: Description) -> int:
        """Write what describes the file, make it visible, and return its size."""
        self._write_small()
        start = self._position
        if self._checksums is None:
            self._target.write(_tail(start, description, description.buffers))
            return self._target.close()
        marked = replace(description, descriptor=description.descriptor + CHECKSUMS_MARK)
        size = _checksum_bytes(start, marked)
        padding = _PADDING[: padding_after(start + size)]
        tail_start = start + size + len(padding)
        tail = padding + _tail(tail_start, marked, (*marked.buffers, (start, size)))
        # Where the checksums themselves will be, bytes count as zeros.
        self._checksums.update(np.frombuffer(bytes(size) + tail, np.uint8))
        checksums = Checksums(
            CHECKSUM_BLOCK_BYTES, start, start + size + len(tail), self._checksums.finish()
        )
        self._target.write(checksums.to_bytes() + tail)
        return self._target.close()

    def abort(self) -> None:
        """Leave nothing behind."""
        self._target.abort()

    def _take(self, data: Bytes) -> Place:
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
        """Write what waits."""
        if self._small:
            waiting, self._small = np.frombuffer(self._small, np.uint8), bytearray()
            self._append(waiting)

    def _append(self, data: Bytes) -> None:
        self._target.write(data)
        if self._checksums is not None:
            self._checksums.update(data)


def _checksum_bytes(start: int, description: Description) -> int:
    """Return the size of the checksums of a file that they are themselves a part of."""
    tail_bytes = len(description.descriptor) + len(description.columns) + FOOTER_BYTES
    # A row per column and per buffer; the descriptor and the checksums are buffers too.
    num_rows = len(description.column_ends) + len(description.buffers) + 2
    tail_bytes += num_rows * TABLE_ROW_BYTES
    size = 0
    while True:
        end = start + size
        needed = checksum_size(end + padding_after(end) + tail_bytes)
        if needed == size:
            return size
        size = needed


def _tail(start: int, description: Description, buffers: Sequence[Place]) -> bytes:
    """Return the descriptor and all behind it, as they are at position `start`."""
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
