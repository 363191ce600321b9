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
from dataclasses import dataclass, replace

import numpy as np

from lancelet.buffers import Bytes, Ranges
from lancelet.encodings.base import FileVersion
from lancelet.file.checksums import (
    CHECKSUM_BLOCK_BYTES,
    CHECKSUMS_MARK,
    ChecksumBuilder,
    Checksums,
    checksum_size,
)
from lancelet.file.v2.footer import PADDING_BYTE, Footer, padding_after, table_bytes
from lancelet.io.store import ObjectWriter

Place = tuple[int, int]
"""Position and size of bytes in the file."""


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

    @property
    def position(self) -> int:
        """How many bytes were written so far."""
        return self._target.position

    def write_buffer(self, data: Bytes) -> Place:
        """Write bytes at the next aligned position, which is returned with their size."""
        with self._lock:
            position = self._target.position
            padding = np.full(padding_after(position + data.nbytes), PADDING_BYTE, np.uint8)
            self._append(data, padding)
            return position, data.nbytes

    def finish(self, description: Description) -> int:
        """Write what describes the file, make it visible, and return its size."""
        start = self._target.position
        if self._checksums is None:
            self._target.write(_tail(start, description, description.buffers))
            return self._target.close()
        marked = replace(description, descriptor=description.descriptor + CHECKSUMS_MARK)
        size = self._checksum_bytes(marked)
        padding = np.full(padding_after(start + size), PADDING_BYTE, np.uint8)
        tail_start = start + size + padding.nbytes
        tail = _tail(tail_start, marked, (*marked.buffers, (start, size)))
        # Where the checksums themselves will be, bytes count as zeros.
        for part in (np.zeros(size, np.uint8), padding, np.frombuffer(tail, np.uint8)):
            self._checksums.update(part)
        checksums = Checksums(
            CHECKSUM_BLOCK_BYTES, start, tail_start + len(tail), self._checksums.finish()
        )
        self._target.write(checksums.to_bytes(), padding, tail)
        return self._target.close()

    def abort(self) -> None:
        """Leave nothing behind."""
        self._target.abort()

    def _append(self, *parts: Bytes) -> None:
        self._target.write(*parts)
        if self._checksums is not None:
            for part in parts:
                self._checksums.update(part)

    def _checksum_bytes(self, description: Description) -> int:
        """Return the size of the checksums of a file that they are themselves a part of."""
        tail_bytes = len(_tail(0, description, (*description.buffers, (0, 0))))
        size = 0
        while True:
            end = self._target.position + size
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
    column_table = table_bytes(Ranges.of(*places[1:]))
    buffer_table = table_bytes(Ranges.of(places[0], *buffers))
    footer = Footer(
        column_metadata=start + len(description.descriptor),
        column_table=position,
        buffer_table=position + len(column_table),
        num_buffers=1 + len(buffers),
        num_columns=len(description.columns),
        version=description.version,
    )
    return b"".join([*parts, column_table, buffer_table, footer.to_bytes()])
