"""Dictionaries of dictionary columns, shared by a file and its table.

Pages contain only keys, so all batches must use the same numbering. Batches with other dictionaries
are renumbered, and new values are appended:

    existing   [red, green]
    batch      [blue, red]      keys 0 1 1
    stored     [red, green, blue]    keys 2 0 0

Values are written after all batches, so they may grow until then; existing files remain valid,
since positions never change.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.format.field import Field


class Dictionaries:
    """The dictionary of each field, by field id."""

    def __init__(self, existing: Mapping[int, pa.Array] | None = None) -> None:
        """Start with the dictionaries of other files of the table."""
        self._values: dict[int, pa.Array] = dict(existing or {})

    def values_of(self, node: Field) -> pa.Array:
        """Return the dictionary of a field; empty if no batch was written."""
        return self._values.get(node.id, pa.array([], node.storage_type.value_type))

    def encode_keys(self, node: Field, array: pa.DictionaryArray) -> pa.Array:
        """Return the keys of an array in the numbering of the field; adds new values."""
        existing = self._values.setdefault(node.id, array.dictionary)
        if array.dictionary.equals(existing):
            return array.indices
        renumbered = pc.index_in(array.dictionary, existing)
        if renumbered.null_count:
            added = array.dictionary.filter(renumbered.is_null()).unique()
            existing = self._values[node.id] = pa.concat_arrays([existing, added])
            renumbered = pc.index_in(array.dictionary, existing)
        try:
            return pc.take(renumbered, array.indices).cast(array.indices.type)
        except pa.ArrowInvalid as error:
            raise UnsupportedError(
                "files of version 0.1 have one dictionary per column, which exceeds the range "
                "of its keys; use wider keys, or write a later version",
                column=node.name,
                key_type=str(array.indices.type),
                values=len(existing),
            ) from error
