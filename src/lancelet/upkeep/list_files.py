"""List the files that versions refer to, and the files stored in the folder of a table.

    version   base_uri   path                          type
    3         /t         _versions/<..>.manifest       manifest
    3         /t         data/a.lance                  data file
    3         s3://cold  data/b.lance                  data file

Stored files that no version refers to are candidates for cleanup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from lancelet.format.paths import DATA, DELETIONS, TRANSACTIONS
from lancelet.io.uri import name
from lancelet.table.location import TableLocation
from lancelet.table.manifests import list_versions
from lancelet.table.snapshot import Snapshot, open_entries

FILES_SCHEMA: Final = pa.schema(
    [
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
TRACKED_SCHEMA: Final = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("type", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    ]
)
_BATCH_ROWS: Final = 8192


class TrackedFile(NamedTuple):
    """A file that a version refers to."""

    version: int
    base_uri: str
    path: str
    type: str


def stored_files(location: TableLocation) -> Iterator[pa.RecordBatch]:
    """Yield the files stored in the folder of a table."""
    rows: list[tuple[object, ...]] = []
    for info in location.store.list():
        rows.append((location.uri, info.path, info.size, info.modified))
        if len(rows) == _BATCH_ROWS:
            yield _batch(rows, FILES_SCHEMA)
            rows = []
    if rows:
        yield _batch(rows, FILES_SCHEMA)


def tracked_files(
    location: TableLocation,
    *,
    min_version: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a batch of files per version.

    `progress` is called with the number of processed versions and their total.
    """
    entries = [
        entry for entry in list_versions(location.store) if entry.version >= (min_version or 0)
    ]
    for done, version in enumerate(open_entries(location, entries), start=1):
        yield _batch(list(list_tracked_files(version)), TRACKED_SCHEMA)
        if progress is not None:
            progress(done, len(entries))


def list_tracked_files(snapshot: Snapshot) -> Iterator[TrackedFile]:
    """Yield the files that one version refers to."""
    version, bases = snapshot.version, snapshot.manifest.bases

    def file(path: str, kind: str, base_id: int | None = None) -> TrackedFile:
        root = snapshot.location.uri if base_id is None else bases[base_id].path
        return TrackedFile(version, root, path, kind)

    yield file(snapshot.entry.path, "manifest")
    if snapshot.manifest.transaction_file:
        yield file(f"{TRANSACTIONS}/{snapshot.manifest.transaction_file}", "transaction file")
    for fragment in snapshot.fragments:
        for data in fragment.files:
            in_root = data.base_id is None or bases[data.base_id].is_dataset_root
            path = f"{DATA}/{data.path}" if in_root else data.path
            yield file(path, "data file", data.base_id)
        deletion = fragment.deletion_file
        if deletion is not None:
            path = f"{DELETIONS}/{name(deletion.path(fragment.id))}"
            yield file(path, "deletion file", deletion.base_id)
    for index in snapshot.indices.indices:
        for part in index.files:
            yield file(f"{index.directory}/{part.path}", "index file", index.base_id)


def _batch(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
