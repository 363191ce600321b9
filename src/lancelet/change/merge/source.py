"""The rows of a merge source, which are read repeatedly: to match, to write and to retry.

    a table            read directly
    a stream           held in memory up to a limit, and then spilled to a temporary file

Keys are collected when the stream is consumed. The file is read sequentially without a memory map,
so that it does not occupy memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.rows import RowStream
from lancelet.encodings.take import take_from_batch, take_from_table
from lancelet.io.spill_folder import SpillFolder
from lancelet.values import dataclass

_BATCH_ROWS: Final = 65536


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch of the source, and the index of its first row."""

    first: int
    batch: pa.RecordBatch

    @property
    def stop(self) -> int:
        """The index after its last row."""
        return self.first + int(self.batch.num_rows)


class SourceRows:
    """Rows that can be read repeatedly; closing it releases memory and temporary files."""

    def __init__(self, schema: pa.Schema) -> None:
        """Create an empty source."""
        self.schema = schema
        self.num_rows = 0
        self.num_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._folder: SpillFolder | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    @staticmethod
    def read(
        stream: RowStream,
        *,
        memory_limit: int | None = None,
        watch: Callable[[pa.RecordBatch], None] | None = None,
    ) -> SourceRows:
        """Consume a stream, and spill rows beyond `memory_limit` bytes to a file.

        `watch` is called with every batch. Without a limit, rows are not copied.
        """
        rows = SourceRows(stream.schema)
        try:
            for batch in stream.batches:
                rows._add(batch)
                if watch is not None:
                    watch(batch)
                if memory_limit is not None and rows.num_bytes > memory_limit:
                    rows._spill()
            rows._finish()
        except BaseException:
            rows.close()
            raise
        return rows

    @property
    def is_spilled(self) -> bool:
        """Whether the rows are in a file."""
        return self._folder is not None

    def batches(self) -> Iterator[Placed]:
        """Yield the rows in order, in batches of limited size."""
        first = 0
        for whole in self._stored():
            for start in range(0, whole.num_rows, _BATCH_ROWS):
                batch = whole.slice(start, _BATCH_ROWS)
                yield Placed(first, batch)
                first += batch.num_rows

    def take(self, rows: Int64s) -> pa.Table:
        """Return rows by index, in any order; a spilled file is read completely."""
        if not self.is_spilled:
            return take_from_table(
                pa.Table.from_batches(self._batches, self.schema), pa.array(rows)
            )
        order = np.argsort(rows, kind="stable")
        parts = [
            take_from_batch(placed.batch, pa.array(own - placed.first))
            for placed in self.batches()
            if len(own := _between(rows[order], placed.first, placed.stop))
        ]
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        return take_from_table(pa.Table.from_batches(parts, self.schema), pa.array(position))

    def close(self) -> None:
        """Release the rows."""
        self._batches = []
        self._finish()
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def __enter__(self) -> Self:
        """Return the rows."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the rows."""
        self.close()

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self.num_rows += batch.num_rows
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self.num_bytes += batch.nbytes
        self._batches.append(batch)

    def _spill(self) -> None:
        if self._writer is not None:
            return
        self._folder = SpillFolder("merge")
        self._writer = pa.ipc.new_file(self._path, self.schema)
        for batch in self._batches:
            self._writer.write_batch(batch)
        self._batches = []

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _stored(self) -> Iterator[pa.RecordBatch]:
        if not self.is_spilled:
            yield from self._batches
            return
        with pa.OSFile(self._path) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)

    @property
    def _path(self) -> str:
        assert self._folder is not None
        return str(self._folder.path / "rows.arrow")


def _between(ascending: Int64s, first: int, stop: int) -> Int64s:
    low, high = np.searchsorted(ascending, [first, stop])
    return ascending[low:high]
