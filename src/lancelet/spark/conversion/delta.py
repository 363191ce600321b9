"""Delta tables, through delta-rs: a version is pinned for reading, and written by one commit.

Tasks write Parquet files with unique names. The driver commits the files of one attempt of each
task.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import UnsupportedError
from lancelet.spark.conversion.parquet import SUFFIX, Options, ParquetFolder, WrittenFile
from lancelet.values import dataclass

if TYPE_CHECKING:
    import deltalake


@dataclass(frozen=True, slots=True)
class DeltaFolder:
    """A Delta table at a version, or the latest one."""

    uri: str
    options: Options = field(repr=False)
    version: int | None = None

    def pinned(self) -> DeltaFolder:
        """Return the table pinned to its latest version unless a version was specified."""
        return replace(self, version=self._open().version())

    def sizes(self) -> list[tuple[str, int]]:
        """Return the path and the bytes of each file."""
        actions = pa.table(self._open().get_add_actions())
        paths, sizes = actions["path"].to_pylist(), actions["size_bytes"].to_pylist()
        return list(zip(paths, sizes, strict=True))

    def schema(self) -> pa.Schema:
        """Return the schema of the table, without metadata."""
        schema: pa.Schema = self._open().to_pyarrow_dataset().schema
        return schema.remove_metadata()

    def read(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files, including partition columns."""
        del schema
        rows = self._open().to_pyarrow_dataset()
        selected = set(paths)
        for fragment in rows.get_fragments():
            if fragment.path in selected:
                yield from fragment.to_batches(schema=rows.schema)

    def write(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> WrittenFile:
        """Write the rows of a task to a file that belongs to no version yet."""
        folder = ParquetFolder(self.uri, self.options)
        return folder.write(f"part-{surroundings.new_uuid()}{SUFFIX}", batches, schema)

    def publish(self, files: Sequence[WrittenFile], schema: pa.Schema, mode: str) -> None:
        """Commit files as a version that creates, appends to or overwrites a table."""
        now_ms = surroundings.time_ns() // 1_000_000
        stored = _deltalake().Schema.from_arrow(schema)
        actions = [_added(file, now_ms) for file in files if file.rows]
        options: dict[str, str] | None = dict(self.options) or None
        if mode != "create" and _deltalake().DeltaTable.is_deltatable(self.uri, options):
            self._open().create_write_transaction(actions, mode, stored)
            return
        # The extra may be missing where this module is imported.
        from deltalake.transaction import create_table_with_add_actions  # noqa: PLC0415

        create_table_with_add_actions(self.uri, stored, actions, storage_options=options)

    def _open(self) -> deltalake.DeltaTable:
        options: dict[str, str] | None = dict(self.options) or None
        table: deltalake.DeltaTable = _deltalake().DeltaTable(
            self.uri, version=self.version, storage_options=options
        )
        return table


def _added(file: WrittenFile, now_ms: int) -> Any:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - an extra

    statistics = json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.size, {}, now_ms, data_change=True, stats=statistics)


def _deltalake() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UnsupportedError(
            "Delta tables need the extra `delta`: pip install 'lancelet[delta]'"
        ) from error
    return deltalake
