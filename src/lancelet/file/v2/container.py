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
from dataclasses import replace
from typing import Final

import numpy as np

from lancelet.buffers import Bytes
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
from lancelet.values import dataclass

Place = tuple[int, int]
"""Position and size of bytes in the file."""

_SMALL_BYTES: Final = 64 * 1024
"""Buffers of fewer bytes are hashed and written together."""

_PADDING: Final = bytes([PADDING_BYTE]) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Description:
    """What the end of a file says of the rest: messages and the places of global buffers."""

    version: FileVersion
    descriptor: bytes
    columns: Sequence[bytes]
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

    def write_buffers(self, buffers: Sequence[Bytes]) -> list[Place]:
        """Write buffers one after another, and return their places."""
        with self._lock:
            return list(map(self._take, buffers))

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
    tail_bytes = len(description.descriptor) + sum(map(len, description.columns)) + FOOTER_BYTES
    # A row per column and per buffer; the descriptor and the checksums are buffers too.
    num_rows = len(description.columns) + len(description.buffers) + 2
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
    parts = [description.descriptor, *description.columns]
    places: list[Place] = []
    position = start
    for part in parts:
        places.append((position, len(part)))
        position += len(part)
    column_table = table_bytes(places[1:])
    buffer_table = table_bytes([places[0], *buffers])
    footer = Footer(
        column_metadata=start + len(description.descriptor),
        column_table=position,
        buffer_table=position + len(column_table),
        num_buffers=1 + len(buffers),
        num_columns=len(description.columns),
        version=description.version,
    )
    return b"".join([*parts, column_table, buffer_table, footer.to_bytes()])
