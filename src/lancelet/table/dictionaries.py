"""Dictionary values in manifests of version 0.1 tables, in addition to those in each file.

    manifest file   [red, green] ...   field `color`: values at 0, 2 of them
    data file a     [red, green]
    data file b     [red, green, blue]     new values are appended, so b's values fit both files

Readers of old releases use only the values in the manifest, so every commit writes them again,
taken from the newest file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from lancelet.encodings.v0_1 import BatchEncoder, dictionary_fields, prepare_values
from lancelet.file import v0_1
from lancelet.format.field import DictionaryLocation, Field
from lancelet.format.manifest import Manifest
from lancelet.format.version import FileVersion
from lancelet.table.snapshot import Snapshot
from lancelet.values import replace


def dictionary_values_of(snapshot: Snapshot) -> dict[int, pa.Array]:
    """Return the values of the dictionary columns of a 0.1 table, by field id."""
    if snapshot.manifest.data_version is not FileVersion.V0_1:
        return {}
    nodes = dictionary_fields(snapshot.schema.fields)
    return {node.id: values for node in nodes for values in _newest_values(snapshot, node)}


def with_dictionaries(manifest: Manifest, values: Mapping[int, pa.Array]) -> tuple[Manifest, bytes]:
    """Return a manifest with the positions of its dictionary values, and the encoded values.

    The values are stored at the start of the manifest file.
    """
    locations: dict[int, DictionaryLocation] = {}
    stored: list[bytes] = []
    position = 0
    for field_id, array in values.items():
        batch = BatchEncoder(position)
        prepare_values(field_id, array).encode(0, len(array), batch)
        (page,) = batch.pages
        locations[field_id] = DictionaryLocation(page.position, page.length)
        stored += [buffer.tobytes() for buffer in batch.buffers]
        position = batch.position
    if not locations:
        return manifest, b""
    fields = tuple(_with_locations(field, locations) for field in manifest.schema.fields)
    return replace(manifest, schema=replace(manifest.schema, fields=fields)), b"".join(stored)


def _newest_values(snapshot: Snapshot, node: Field) -> Iterator[pa.Array]:
    values = None
    for position in reversed(range(len(snapshot.fragments))):
        file = snapshot.fragments[position].find_file(node.id)
        if file is None:
            continue
        reader = snapshot.open_file(file)
        if isinstance(reader, v0_1.LegacyFileReader):
            values = reader.dictionary_values(node)
            if len(values):
                break
    if values is not None:
        # Yield empty values as well, as for empty lists: readers require a dictionary location.
        yield values


def _with_locations(field: Field, locations: Mapping[int, DictionaryLocation]) -> Field:
    return replace(
        field,
        dictionary=locations.get(field.id, field.dictionary),
        children=tuple(_with_locations(child, locations) for child in field.children),
    )
