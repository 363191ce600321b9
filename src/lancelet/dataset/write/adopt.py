"""Describing a data file that somebody wrote into a dataset's folder."""

from __future__ import annotations

from lancelet.errors import UnsupportedError
from lancelet.file.open import open_data_file
from lancelet.file.v2.generation import generation_of
from lancelet.file.v2.reader import FileReader
from lancelet.format.fragment import DataFile
from lancelet.format.paths import DATA, data_file_identity
from lancelet.table.snapshot import Snapshot


def describe_file(snapshot: Snapshot, path: str, *, base_id: int | None = None) -> DataFile:
    """Return the entry of a file, whose columns are matched with the dataset's by name."""
    place = snapshot.location.resolve(DATA, path, base_id, snapshot.manifest.bases)
    reader = open_data_file(place.store, place.path, name=data_file_identity(place.path))
    if not isinstance(reader, FileReader):
        raise UnsupportedError("a file of version 0.1 does not name its columns", path=path)
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
        place.store.size(place.path),
        base_id,
    )
