"""Check the files of a fragment: existence, size, footers, checksums and values.

Every file is opened without caches, and its checksums are verified again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges
from lancelet.encodings.base import RowRange
from lancelet.encodings.blobs.v2 import BlobKind
from lancelet.errors import CorruptDataError, LanceletError, ObjectNotFoundError
from lancelet.expr.scan_types import read_as
from lancelet.file.base import DataFileReader
from lancelet.file.checksums import Checksums
from lancelet.file.header_cache import PageHeaderCache
from lancelet.file.open import open_data_file
from lancelet.file.storage import check_nulls, to_storage
from lancelet.file.v2.reader import FileReader
from lancelet.format.field import Field
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.paths import DATA, DELETIONS, data_file_identity
from lancelet.io.store import Store
from lancelet.io.uri import name
from lancelet.rowids.address import addresses_of
from lancelet.rowids.deletion import DeletionVector
from lancelet.scan.blobs import resolve_descriptors
from lancelet.table.location import StorePath
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.check.finding import Coverage, Finding, Level, Severity
from lancelet.values import dataclass

_RESTORE: Final = "restore the object from a copy, or repair the table"

_STEP_BLOCKS: Final = 512
_BATCH_ROWS: Final = 64 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class FragmentCheck:
    """Checks a fragment of a version at a level."""

    snapshot: Snapshot
    fragment: Fragment
    level: Level
    coverage: Coverage = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Initialize the coverage."""
        object.__setattr__(self, "coverage", Coverage(self.level))

    def findings(self) -> Iterator[Finding]:
        """Yield the findings of the fragment."""
        if not self.fragment.files:
            yield self._error("the fragment has no files", DATA)
        for file in self.fragment.files:
            yield from self._report_errors(f"{DATA}/{file.path}", self._check_file(file))
        deletion = self.fragment.deletion_file
        if deletion is not None:
            yield from self._report_errors(deletion.path(self.fragment.id), self._check_deletions())

    def _report_errors(self, path: str, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Yield findings; an error becomes the last finding."""
        try:
            yield from findings
        except ObjectNotFoundError:
            yield self._error("the file is missing", path)
        except LanceletError as error:
            yield self._error(str(error), path)

    def _check_file(self, file: DataFile) -> Iterator[Finding]:
        self.coverage.files += 1
        location = self._locate(DATA, file.path, file.base_id)
        size = location.store.size(location.path)
        path = f"{DATA}/{file.path}"
        if file.size_bytes and size != file.size_bytes:
            yield self._error(f"the file has {size} bytes instead of {file.size_bytes}", path)
            return
        if self.level < Level.FOOTERS:
            return
        reader = open_data_file(
            location.store,
            location.path,
            size=size,
            stored=self.snapshot.stored_fields(file),
            name=data_file_identity(location.path),
            header_cache=PageHeaderCache(),
        )
        try:
            yield from self._check_reader(reader, file, path)
        finally:
            reader.close()

    def _check_reader(
        self, reader: FileReader | DataFileReader, file: DataFile, path: str
    ) -> Iterator[Finding]:
        rows = self.snapshot.physical_rows(self.fragment)
        if reader.num_rows != rows:
            yield self._error(
                f"the file has {reader.num_rows} rows, but the fragment has {rows}",
                path,
                "rebuild the counts of the table if the file is correct",
            )
            return
        if reader.version is not file.version:
            yield self._error(
                f"the file has version {reader.version.value}, but the manifest has "
                f"{file.version.value}",
                path,
            )
        if self.level >= Level.CHECKSUMS:
            checksums = reader.metadata.checksums if isinstance(reader, FileReader) else None
            if checksums is None:
                self.coverage.files_without_checksums += 1
            else:
                self.coverage.verified_files += 1
                location = self._locate(DATA, file.path, file.base_id)
                for message in verify_checksums(location, checksums):
                    yield self._error(message, path)
        if self.level >= Level.DECODE:
            for batch in decode_all(reader):
                yield from self._check_blobs(reader.schema.fields, batch)

    def _check_blobs(self, fields: Sequence[Field], batch: pa.RecordBatch) -> Iterator[Finding]:
        """Yield missing or truncated blob files."""
        for field, array in zip(fields, batch.columns, strict=True):
            if not field.is_blob_v2:
                continue
            rows = [
                None if row is None or row["kind"] == BlobKind.EXTERNAL else row
                for row in array.to_pylist()
            ]
            addresses = addresses_of(self.fragment.id, np.zeros(len(rows), np.int64))
            ends: dict[str, tuple[Store, int]] = {}
            for extent in resolve_descriptors(self.snapshot, field, rows, addresses):
                if extent is not None and extent.size:
                    end = max(extent.position + extent.size, ends.get(extent.path, (None, 0))[1])
                    ends[extent.path] = extent.store, end
            for path, (store, end) in ends.items():
                size = store.size(path) if store.exists(path) else None
                if size is None or size < end:
                    problem = "is missing" if size is None else f"has {size} bytes instead of {end}"
                    yield self._error(f"the blob file of column {field.name} {problem}", path)

    def _check_deletions(self) -> Iterator[Finding]:
        deletion = self.fragment.deletion_file
        assert deletion is not None
        path = deletion.path(self.fragment.id)
        location = self._locate(DELETIONS, name(path), deletion.base_id)
        if self.level < Level.FOOTERS:
            location.store.size(location.path)
            return
        stored = location.store.read(location.path)
        rows = self.snapshot.physical_rows(self.fragment)
        deleted = DeletionVector.parse(stored, deletion.file_type, path, physical_rows=rows)
        num_deleted = deletion.num_deleted_rows
        if num_deleted and num_deleted != len(deleted):
            yield self._error(
                f"the file has {len(deleted)} deleted rows, but the manifest has {num_deleted}",
                path,
                "rebuild the counts of the table",
            )
        deleted.check_within(rows)

    def _locate(self, directory: str, path: str, base_id: int | None) -> StorePath:
        return self.snapshot.location.resolve(
            directory, path, base_id, self.snapshot.manifest.bases
        )

    def _error(self, message: str, path: str, advice: str = _RESTORE) -> Finding:
        return Finding(Severity.ERROR, path, message, advice, fragment_id=int(self.fragment.id))


def verify_checksums(location: StorePath, checksums: Checksums) -> Iterator[str]:
    """Yield a message for each block of a file with a wrong checksum."""
    count, size = len(checksums.crcs), checksums.block_bytes
    with location.store.open_reader(location.path, checksums.file_bytes) as source:
        for first in range(0, count, _STEP_BLOCKS):
            blocks = np.arange(first, min(first + _STEP_BLOCKS, count), dtype=np.int64)
            start = first * size
            stop = min((first + len(blocks)) * size, checksums.file_bytes)
            data = source.read_ranges(ByteRanges.of((start, stop - start)))
            shift = int(data.position[0]) - start
            wrong = checksums.damaged_blocks(blocks, data.source, blocks * size + shift)
            for block in wrong.tolist():
                end = min((block + 1) * size, checksums.file_bytes)
                yield f"wrong checksum of bytes {block * size} to {end}"


def decode_all(reader: FileReader | DataFileReader) -> Iterator[pa.RecordBatch]:
    """Yield all values of a file in batches; raise if arrays are invalid."""
    fields = reader.schema.fields
    if not fields:
        return
    read = [read_as(field) for field in fields]
    for batch in reader.iter_batches(read, RowRange(0, reader.num_rows), _BATCH_ROWS):
        for field, array in zip(fields, batch.columns, strict=True):
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise CorruptDataError(
                    f"the values of a field are invalid: {error}", field=field.name
                ) from error
            if not any(node.is_blob for node in field.walk()):
                check_nulls(to_storage(array, field), field)
        yield batch
