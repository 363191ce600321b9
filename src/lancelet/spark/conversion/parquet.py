"""Folders of Parquet files: read in groups, and written under hidden names first.

For example:

    out/_lancelet/3f.parquet    while tasks run; readers of Parquet skip names with an underscore
    out/3f.parquet              when all tasks are done
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lancelet import surroundings
from lancelet.errors import DatasetNotFoundError, SchemaMismatchError, UnsupportedError
from lancelet.io import Store, open_folder
from lancelet.spark.conversion.streams import StoredFile, UnfinishedFile
from lancelet.values import dataclass

SUFFIX: Final = ".parquet"
_HIDDEN: Final = "_lancelet"

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task wrote."""

    path: str
    size: int
    rows: int


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """Parquet files of one schema below a folder."""

    uri: str
    options: Options = field(repr=False)

    def sizes(self) -> list[tuple[str, int]]:
        """Return the path and the bytes of each file.

        Raises:
            DatasetNotFoundError: The folder has no Parquet files.
            UnsupportedError: The folder is partitioned by column values.
        """
        found = [(info.path, info.size) for info in self.store().list() if _is_data(info.path)]
        if not found:
            raise DatasetNotFoundError("there are no Parquet files", uri=self.uri)
        partitioned = [path for path, _ in found if "=" in path.rpartition("/")[0]]
        if partitioned:
            raise UnsupportedError(
                "partitioned folders are not supported; read the folder with Spark and write the "
                "data frame",
                path=partitioned[0],
            )
        return found

    def schema(self) -> pa.Schema:
        """Return the schema of the first file."""
        with self.open(self.sizes()[0][0]) as file:
            return file.schema_arrow.remove_metadata()

    def read(self, paths: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files.

        Raises:
            SchemaMismatchError: The schema of a file differs from that of the first file.
        """
        for path in paths:
            with self.open(path) as file:
                if file.schema_arrow.names != schema.names:
                    raise SchemaMismatchError(
                        "the columns of a file differ from those of the first file",
                        path=path,
                        expected=schema.names,
                        found=file.schema_arrow.names,
                    )
                yield from file.iter_batches()

    def open(self, path: str) -> pq.ParquetFile:
        """Open a file; closing it also closes the underlying reader."""
        return pq.ParquetFile(StoredFile(self.store().open_reader(path)), pre_buffer=False)

    def store(self) -> Store:
        """Return the folder."""
        return open_folder(self.uri, dict(self.options))

    def write_hidden(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> WrittenFile:
        """Write the rows of a task under a unique hidden name."""
        return self.write(f"{_HIDDEN}/{surroundings.new_uuid()}{SUFFIX}", batches, schema)

    def write(self, path: str, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> WrittenFile:
        """Write a Parquet file."""
        rows = 0
        with (
            self.store().open_writer(path) as target,
            pq.ParquetWriter(UnfinishedFile(target), schema, compression="zstd") as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
                rows += batch.num_rows
        return WrittenFile(path, self.store().size(path), rows)

    def publish(self, files: Sequence[WrittenFile]) -> None:
        """Rename the files to their visible names, one at a time."""
        store = self.store()
        for file in files:
            if file.rows:
                store.rename_if_absent(file.path, file.path.removeprefix(f"{_HIDDEN}/"))
        store.delete_folder(_HIDDEN)


def _is_data(path: str) -> bool:
    hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
    return path.endswith(SUFFIX) and not hidden
