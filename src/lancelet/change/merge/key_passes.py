"""Index the source keys in one pass if they fit in memory, or else in several passes.

    keys 7 3 7 9     fit           one pass with an index of all keys
                     do not fit    files by the lowest bits of the hash:  7 7 | 3 9
                                   one pass per group of files that fits

Equal keys have equal hashes and are in the same pass. The table keys are read once per pass, so
that a lower memory limit requires more reads. Null keys never match and are not part of any pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.change.merge.key_index import KeyIndex, Keys
from lancelet.io.spill_folder import SpillFolder
from lancelet.values import dataclass

_FILES: Final = 64
_KEYS_PART: Final = 8
"""The keys of a pass take this part of the memory limit; their index and the pairs that are found
take about four times as much.
"""


@dataclass(frozen=True, slots=True, eq=False)
class KeyPass:
    """An index of some source keys; `rows` are their source rows, None for all keys."""

    index: KeyIndex
    rows: Int64s | None

    def source_rows(self, found: Int64s) -> Int64s:
        """Return the source rows for rows of the index."""
        return found if self.rows is None else self.rows[found]


class KeyPasses:
    """Collects keys and returns them as indices; closing it deletes temporary files."""

    def __init__(self, memory_limit: int) -> None:
        """Hold keys in memory as long as their index fits into the memory limit."""
        self.num_rows = 0
        self._most = max(memory_limit // _KEYS_PART, 1)
        self._buffered: list[Keys] = []
        self._bytes = 0
        self._files: _Files | None = None

    def add(self, keys: Keys) -> None:
        """Add the keys of the next rows."""
        self.num_rows += len(keys)
        if self._files is not None:
            self._files.write(keys)
            return
        self._buffered.append(keys)
        self._bytes += keys.nbytes
        if self._bytes > self._most:
            self._files = _Files()
            for part in self._buffered:
                self._files.write(part)
            self._buffered = []

    @property
    def num_passes(self) -> int:
        """The number of times that the keys of the table are read."""
        return 1 if self._files is None else len(self._files.groups(self._most))

    def passes(self) -> Iterator[KeyPass]:
        """Yield indices; each key is in one of them."""
        if self._files is None:
            keys = Keys.concat(self._buffered)
            self._buffered = [keys]
            yield KeyPass(KeyIndex.build(keys), None)
            return
        for group in self._files.groups(self._most):
            rows, keys = self._files.read(group)
            yield KeyPass(KeyIndex.build(keys), rows)

    def close(self) -> None:
        """Delete the keys."""
        self._buffered = []
        if self._files is not None:
            self._files.close()


class _Files:
    """Keys and their source rows, partitioned by the lowest bits of the hash."""

    def __init__(self) -> None:
        self._folder = SpillFolder("keys")
        self._writers: dict[int, pa.RecordBatchStreamWriter] = {}
        self._sizes = [0] * _FILES
        self._num_rows = 0

    def write(self, keys: Keys) -> None:
        rows = np.arange(self._num_rows, self._num_rows + len(keys))
        self._num_rows += len(keys)
        columns = {"row": pa.array(rows), "hash": pa.array(keys.hashes)}
        if keys.stored is not None:
            columns["key"] = keys.stored
        batch = pa.RecordBatch.from_pydict(columns)
        file = keys.hashes % np.uint64(_FILES)
        for number in range(_FILES):
            mine = file == number
            if keys.valid is not None:
                mine &= keys.valid
            part = batch.filter(pa.array(mine))
            if part.num_rows:
                self._writer(number, batch.schema).write_batch(part)
                self._sizes[number] += part.nbytes

    def groups(self, most: int) -> list[list[int]]:
        """Return the files of the next pass, at least one, with up to `most` bytes."""
        groups: list[list[int]] = []
        room = 0
        for number, size in enumerate(self._sizes):
            if not size:
                continue
            if not groups or size > room:
                groups.append([])
                room = most
            groups[-1].append(number)
            room -= size
        return groups

    def read(self, group: list[int]) -> tuple[Int64s, Keys]:
        tables = []
        for number in group:
            writer = self._writers.pop(number, None)
            if writer is not None:
                writer.close()
            with pa.OSFile(self._path(number)) as file, pa.ipc.open_stream(file) as reader:
                tables.append(reader.read_all())
        table = pa.concat_tables(tables).combine_chunks()
        # Sort by source row, so that the first of several rows with the same key is found.
        order = np.argsort(table.column("row").to_numpy(), kind="stable")
        table = table.take(pa.array(order)).combine_chunks()
        stored = None
        if "key" in table.schema.names:
            stored = pa.concat_arrays(table.column("key").chunks)
        keys = Keys(table.column("hash").to_numpy(), stored, None)
        return table.column("row").to_numpy(), keys

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
        self._folder.close()

    def _writer(self, number: int, schema: pa.Schema) -> pa.RecordBatchStreamWriter:
        if number not in self._writers:
            self._writers[number] = pa.ipc.new_stream(self._path(number), schema)
        return self._writers[number]

    def _path(self, number: int) -> str:
        return str(self._folder.path / f"{number}.arrow")
