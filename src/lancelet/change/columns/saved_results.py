"""Results of computed columns that are not committed yet.

    <folder>/<job>/12/70-95-<uuid>.arrow    row ids, row versions and values of some rows of
                                            fragment 12, with row ids from 70 to 95

A row with the same id and version has the same inputs, so its values can be used again: by a
refresh that found the fragment changed, or that continues one that was killed. Row ids and
versions only identify rows within a table. Therefore, a file also lists the data files of its
fragment, and is valid while the fragment has one of them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet import surroundings
from lancelet.buffers import Int64s
from lancelet.encodings.take import take_from_table
from lancelet.errors import ObjectNotFoundError
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.io import Store, open_folder
from lancelet.rowids.address import UInt64s
from lancelet.table.computed_columns import definitions_of, stored_definitions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_FILES: Final = b"lancelet.files"
_ROW_ID: Final = "lancelet.row_id"
_VERSION: Final = "lancelet.version"
_KEYS: Final = (_ROW_ID, _VERSION)


@dataclass(frozen=True, slots=True, eq=False)
class RowKeys:
    """The ids and versions of rows."""

    ids: UInt64s
    versions: UInt64s

    def take(self, indices: Int64s | slice) -> RowKeys:
        """Return some of the rows."""
        return RowKeys(self.ids[indices], self.versions[indices])


class SavedResults:
    """Results by row, in memory and, if there is a folder, on a store."""

    def __init__(self, folder: Store | None = None, job: str = "") -> None:
        """Create an empty store of results, or continue the one in a folder."""
        self._folder = folder
        self._job = job
        self._parts: dict[int, list[pa.Table]] = {}

    @staticmethod
    def of(snapshot: Snapshot, uri: str | None) -> SavedResults:
        """Return the results of the computed columns of a table in a folder."""
        if uri is None:
            return SavedResults()
        folder = open_folder(uri, dict(snapshot.location.storage_options or {}))
        text = json.dumps([snapshot.location.uri, *_described(snapshot.schema)])
        return SavedResults(folder, hashlib.sha256(text.encode()).hexdigest()[:32])

    def find(self, fragment: Fragment, rows: RowKeys) -> tuple[npt.NDArray[np.bool_], pa.Table]:
        """Return which of the rows have results, and these results in the order of the rows."""
        files = {file.path for file in fragment.files}
        parts = [part for part in self._loaded(fragment, rows) if _is_of(part, files)]
        if not parts:
            return np.zeros(len(rows.ids), np.bool_), pa.table({})
        whole = pa.concat_tables(parts)
        ids = whole.column(_ROW_ID).to_numpy()
        order = np.argsort(ids, kind="stable")
        indices = order[np.searchsorted(ids[order], rows.ids, side="right") - 1]
        found = ids[indices] == rows.ids
        found &= whole.column(_VERSION).to_numpy()[indices] == rows.versions
        return found, take_from_table(whole.drop_columns(list(_KEYS)), pa.array(indices[found]))

    def add(self, fragment: Fragment, rows: RowKeys, values: pa.Table) -> None:
        """Save the results of rows."""
        files = json.dumps([file.path for file in fragment.files]).encode()
        keys = {_ROW_ID: pa.array(rows.ids), _VERSION: pa.array(rows.versions)}
        columns = [*map(pa.chunked_array, ([each] for each in keys.values())), *values.columns]
        fields = [pa.field(name, pa.uint64()) for name in keys]
        schema = pa.schema([*fields, *values.schema], metadata={_FILES: files})
        part = pa.Table.from_arrays(columns, schema=schema)
        self._loaded(fragment, rows).append(part)
        if self._folder is not None:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_file(sink, part.schema) as writer:
                writer.write_table(part)
            name = f"{rows.ids.min()}-{rows.ids.max()}-{surroundings.new_uuid()}.arrow"
            path = f"{self._path(int(fragment.id))}/{name}"
            self._folder.put(path, np.frombuffer(sink.getvalue(), np.uint8))

    def forget(self, fragment_id: int) -> None:
        """Delete the results of a fragment, which were committed."""
        self.release(fragment_id)
        if self._folder is not None:
            self._folder.delete_folder(self._path(fragment_id))

    def release(self, fragment_id: int) -> None:
        """Release the memory of the results of a fragment."""
        self._parts.pop(fragment_id, None)

    def clear(self) -> None:
        """Delete all results."""
        self._parts.clear()
        if self._folder is not None:
            self._folder.delete_folder(self._job)

    def _path(self, fragment_id: int) -> str:
        return f"{self._job}/{fragment_id}"

    def _loaded(self, fragment: Fragment, rows: RowKeys) -> list[pa.Table]:
        number = int(fragment.id)
        if number not in self._parts:
            self._parts[number] = self._read(number, rows)
        return self._parts[number]

    def _read(self, fragment_id: int, rows: RowKeys) -> list[pa.Table]:
        """Read the files that may have results of rows; a task needs a part of a fragment."""
        if self._folder is None:
            return []
        parts, least, greatest = [], rows.ids.min(), rows.ids.max()
        for info in self._folder.list(self._path(fragment_id)):
            first, last, _ = info.path.rpartition("/")[2].split("-", 2)
            if int(last) < least or int(first) > greatest:
                continue
            try:
                data = self._folder.read(info.path)
            except ObjectNotFoundError:
                continue  # a concurrent refresh committed it
            with pa.ipc.open_file(pa.py_buffer(data)) as reader:
                parts.append(reader.read_all())
        return parts


def _is_of(part: pa.Table, files: set[str]) -> bool:
    return not files.isdisjoint(json.loads((part.schema.metadata or {})[_FILES]))


def _described(schema: Schema) -> list[list[str]]:
    types = [str(field.arrow_type) for field, _ in definitions_of(schema)]
    return [types, list(stored_definitions(schema))]
