"""Dictionary values in manifests, which tables of version 0.1 keep beside those in each file.

    manifest file   [red, green] ...   field `color`: values at 0, 2 of them
    data file a     [red, green]
    data file b     [red, green, blue]     later values go behind, so b's serve for both

Readers of old releases look values up in the manifest alone, so every commit writes them again,
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
    """Return a manifest that says where its dictionary values are, and the values as stored.

    The values go to the start of the manifest's file.
    """
    places: dict[int, DictionaryLocation] = {}
    stored: list[bytes] = []
    position = 0
    for field_id, array in values.items():
        batch = BatchEncoder(position)
        prepare_values(field_id, array).encode(0, len(array), batch)
        (page,) = batch.pages
        places[field_id] = DictionaryLocation(page.position, page.length)
        stored += [buffer.tobytes() for buffer in batch.buffers]
        position = batch.position
    if not places:
        return manifest, b""
    fields = tuple(_placed(field, places) for field in manifest.schema.fields)
    return replace(manifest, schema=replace(manifest.schema, fields=fields)), b"".join(stored)


def _newest_values(snapshot: Snapshot, node: Field) -> Iterator[pa.Array]:
    values = None
    for place in reversed(range(len(snapshot.fragments))):
        file = snapshot.fragments[place].file_of(node.id)
        if file is None:
            continue
        reader = snapshot.open_file(file)
        if isinstance(reader, v0_1.LegacyFileReader):
            values = reader.dictionary_values(node)
            if len(values):
                break
    if values is not None:
        # Also if there are none, as in lists that are all empty: readers want to know the place.
        yield values


def _placed(field: Field, places: Mapping[int, DictionaryLocation]) -> Field:
    return replace(
        field,
        dictionary=places.get(field.id, field.dictionary),
        children=tuple(_placed(child, places) for child in field.children),
    )
