"""Checking the files of one fragment: there, openable, as written, decodable.

What was read of a file before is not trusted: each is opened anew, and its blocks are summed up
again, whatever was verified earlier in this process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Ranges
from lancelet.encodings.base import RowRange
from lancelet.encodings.blob_v2 import BlobKind
from lancelet.errors import CorruptDataError, LanceletError, ObjectNotFoundError
from lancelet.file.base import DataFileReader
from lancelet.file.checksums import Checksums
from lancelet.file.memo import CachedHeads
from lancelet.file.open import open_data_file
from lancelet.file.storage import check_nulls, to_storage
from lancelet.file.v2.reader import FileReader
from lancelet.format.field import Field
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.paths import DATA, DELETIONS, data_file_identity
from lancelet.io.store import Store
from lancelet.io.uri import name
from lancelet.ops.check.finding import Coverage, Finding, Level, Severity
from lancelet.query.blobs import resolve_descriptors
from lancelet.query.scan_types import read_as
from lancelet.rowids.address import addresses_of
from lancelet.rowids.deletion import DeletionVector
from lancelet.table.location import Place
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_RESTORE: Final = "restore the object from a copy, or repair the table"

_STEP_BLOCKS: Final = 512
_BATCH_ROWS: Final = 64 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class FragmentCheck:
    """Checks a fragment of a version to some level."""

    snapshot: Snapshot
    fragment: Fragment
    level: Level
    coverage: Coverage = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        object.__setattr__(self, "coverage", Coverage(self.level))

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong."""
        if not self.fragment.files:
            yield self._error("the fragment has no files", DATA)
        for file in self.fragment.files:
            yield from self._guarded(f"{DATA}/{file.path}", self._of_file(file))
        deletion = self.fragment.deletion_file
        if deletion is not None:
            yield from self._guarded(deletion.path(self.fragment.id), self._of_deletions())

    def _guarded(self, path: str, findings: Iterator[Finding]) -> Iterator[Finding]:
        """Yield findings, and the error that ends them, if one does."""
        try:
            yield from findings
        except ObjectNotFoundError:
            yield self._error("the file is missing", path)
        except LanceletError as error:
            yield self._error(str(error), path)

    def _of_file(self, file: DataFile) -> Iterator[Finding]:
        self.coverage.files += 1
        place = self._place(DATA, file.path, file.base_id)
        size = place.store.size(place.path)
        path = f"{DATA}/{file.path}"
        if file.size_bytes and size != file.size_bytes:
            yield self._error(f"the file has {size} bytes instead of {file.size_bytes}", path)
            return
        if self.level < Level.FOOTERS:
            return
        reader = open_data_file(
            place.store,
            place.path,
            size=size,
            stored=self.snapshot.stored_fields(file),
            name=data_file_identity(place.path),
            memo=CachedHeads(),
        )
        try:
            yield from self._of_reader(reader, file, path)
        finally:
            reader.close()

    def _of_reader(
        self, reader: FileReader | DataFileReader, file: DataFile, path: str
    ) -> Iterator[Finding]:
        rows = self.snapshot.physical_rows(self.fragment)
        if reader.num_rows != rows:
            yield self._error(
                f"the file has {reader.num_rows} rows, and the fragment has {rows}",
                path,
                "rebuild the counts of the table if the file is right",
            )
            return
        if reader.version is not file.version:
            yield self._error(
                f"the file is of version {reader.version.value}, and the manifest says "
                f"{file.version.value}",
                path,
            )
        if self.level >= Level.CHECKSUMS:
            checksums = reader.metadata.checksums if isinstance(reader, FileReader) else None
            if checksums is None:
                self.coverage.files_without_checksums += 1
            else:
                self.coverage.verified_files += 1
                place = self._place(DATA, file.path, file.base_id)
                for what in wrong_bytes(place, checksums):
                    yield self._error(what, path)
        if self.level >= Level.DECODE:
            for batch in decoded(reader):
                yield from self._of_blobs(reader.schema.fields, batch)

    def _of_blobs(self, fields: Sequence[Field], batch: pa.RecordBatch) -> Iterator[Finding]:
        """Yield the sidecars that blobs should be in, and are not."""
        for field, array in zip(fields, batch.columns, strict=True):
            if not field.is_blob_v2:
                continue
            rows = [
                None if row is None or row["kind"] == BlobKind.EXTERNAL else row
                for row in array.to_pylist()
            ]
            addresses = addresses_of(self.fragment.id, np.zeros(len(rows), np.int64))
            ends: dict[str, tuple[Store, int]] = {}
            for place in resolve_descriptors(self.snapshot, field, rows, addresses):
                if place is not None and place.size:
                    end = max(place.position + place.size, ends.get(place.path, (None, 0))[1])
                    ends[place.path] = place.store, end
            for path, (store, end) in ends.items():
                found = store.size(path) if store.exists(path) else None
                if found is None or found < end:
                    what = "is missing" if found is None else f"ends at {found}, before {end}"
                    yield self._error(f"the file of blobs of {field.name} {what}", path)

    def _of_deletions(self) -> Iterator[Finding]:
        deletion = self.fragment.deletion_file
        assert deletion is not None
        path = deletion.path(self.fragment.id)
        place = self._place(DELETIONS, name(path), deletion.base_id)
        if self.level < Level.FOOTERS:
            place.store.size(place.path)
            return
        stored = place.store.read(place.path)
        rows = self.snapshot.physical_rows(self.fragment)
        deleted = DeletionVector.parse(stored, deletion.file_type, path, physical_rows=rows)
        stated = deletion.num_deleted_rows
        if stated and stated != len(deleted):
            yield self._error(
                f"the file deletes {len(deleted)} rows, and the manifest says {stated}",
                path,
                "rebuild the counts of the table",
            )
        deleted.check_within(rows)

    def _place(self, directory: str, path: str, base_id: int | None) -> Place:
        return self.snapshot.location.place(directory, path, base_id, self.snapshot.manifest.bases)

    def _error(self, what: str, path: str, advice: str = _RESTORE) -> Finding:
        return Finding(Severity.ERROR, path, what, advice, fragment_id=int(self.fragment.id))


def wrong_bytes(place: Place, checksums: Checksums) -> Iterator[str]:
    """Yield a sentence for each block of a file that is not what was written."""
    count, size = len(checksums.crcs), checksums.block_bytes
    with place.store.open_reader(place.path, checksums.file_bytes) as source:
        for first in range(0, count, _STEP_BLOCKS):
            blocks = np.arange(first, min(first + _STEP_BLOCKS, count), dtype=np.int64)
            start = first * size
            stop = min((first + len(blocks)) * size, checksums.file_bytes)
            found = source.read_ranges(Ranges.of((start, stop - start)))
            shift = int(found.position[0]) - start
            wrong = checksums.wrong_blocks(blocks, found.source, blocks * size + shift)
            for block in wrong.tolist():
                end = min((block + 1) * size, checksums.file_bytes)
                yield f"bytes {block * size} to {end} are not what was written"


def decoded(reader: FileReader | DataFileReader) -> Iterator[pa.RecordBatch]:
    """Yield every value of a file, in bounded memory; raise unless arrays are whole."""
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
                    f"the values of a field are not whole: {error}", field=field.name
                ) from error
            if not any(node.is_blob for node in field.walk()):
                check_nulls(to_storage(array, field), field)
        yield batch
