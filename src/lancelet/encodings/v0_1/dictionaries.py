"""The values of dictionary columns: kept once for a file, and for the table it belongs to.

Pages hold keys only, so all batches must count the same values the same way. Batches that come
with other dictionaries are renumbered, and values that are new go behind those that are known:

    known      [red, green]
    batch      [blue, red]      keys 0 1 1
    stored     [red, green, blue]    keys 2 0 0

Values are written behind all batches, so they may grow until then; files that were written
before keep their meaning, since nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.format.field import Field


class Dictionaries:
    """The values of dictionary fields so far, by the id of the field."""

    def __init__(self, known: Mapping[int, pa.Array] | None = None) -> None:
        """Go on from values that other files of the table have."""
        self._values: dict[int, pa.Array] = dict(known or {})

    def values_of(self, node: Field) -> pa.Array:
        """Return the values of a field; none, if no batch was written."""
        return self._values.get(node.id, pa.array([], node.storage_type.value_type))

    def keys_of(self, node: Field, array: pa.DictionaryArray) -> pa.Array:
        """Return the keys of an array in the field's own numbering; new values are added."""
        known = self._values.setdefault(node.id, array.dictionary)
        if array.dictionary.equals(known):
            return array.indices
        renumbered = pc.index_in(array.dictionary, known)
        if renumbered.null_count:
            added = array.dictionary.filter(renumbered.is_null()).unique()
            known = self._values[node.id] = pa.concat_arrays([known, added])
            renumbered = pc.index_in(array.dictionary, known)
        try:
            return pc.take(renumbered, array.indices).cast(array.indices.type)
        except pa.ArrowInvalid as error:
            raise UnsupportedError(
                "files of version 0.1 keep one dictionary per column, which has outgrown its keys; "
                "use wider keys, or write a later version",
                column=node.name,
                key_type=str(array.indices.type),
                values=len(known),
            ) from error
