"""Metadata of data files that other programs wrote into the folder of a dataset."""

from __future__ import annotations

from lancelet.errors import UnsupportedError
from lancelet.file.open import open_data_file
from lancelet.file.v2.generation import generation_of
from lancelet.file.v2.reader import FileReader
from lancelet.format.fragment import DataFile
from lancelet.format.paths import DATA, data_file_identity
from lancelet.table.snapshot import Snapshot


def describe_file(snapshot: Snapshot, path: str, *, base_id: int | None = None) -> DataFile:
    """Return the metadata of a file; its columns are matched with the dataset by name."""
    stored = snapshot.location.resolve(DATA, path, base_id, snapshot.manifest.bases)
    reader = open_data_file(stored.store, stored.path, name=data_file_identity(stored.path))
    if not isinstance(reader, FileReader):
        raise UnsupportedError("files of version 0.1 contain no column names", path=path)
    generation = generation_of(reader.version)
    ids: list[int] = []
    for own in reader.schema.fields:
        field = snapshot.schema.project([own.name]).fields[0]
        ids += [int(owner.id) for owner in generation.columns_of(field, reader.version)]
    return DataFile(
        path,
        tuple(ids),
        tuple(range(len(ids))),
        *reader.version.entry_numbers,
        stored.store.size(stored.path),
        base_id,
    )
