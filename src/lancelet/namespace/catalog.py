"""The table `__manifest` of a folder: the names of its namespaces and tables.

    object_id   object_type   location           metadata
    sales       namespace     null               {"owner": "ann"}
    sales$q     table         1f0c9a2e_sales$q   null

An id is the path of an object, joined with `$`. The id is the key of the table, so of two writers
who take the same name at once one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import AlreadyExistsError, DatasetNotFoundError
from lancelet.io.uri import join
from lancelet.values import dataclass

SEPARATOR: Final = "$"
TABLE: Final = "table"
NAMESPACE: Final = "namespace"

CATALOG_FOLDER: Final = "__manifest"
"""The folder of the table of names."""

_KEY: Final = {"lance-schema:unenforced-primary-key:position": "0"}
_SCHEMA: Final = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A namespace or a table; `location` is where the table is, below the folder."""

    path: tuple[str, ...]
    object_type: str
    location: str | None = None
    properties: Mapping[str, str] | None = None

    @property
    def object_id(self) -> str:
        """The path as one text."""
        return SEPARATOR.join(self.path)


class Catalog:
    """Reads and changes the names of one folder."""

    def __init__(self, root: str, storage_options: Mapping[str, str]) -> None:
        """Look at a folder; the table is made when the first name is taken."""
        self._uri = join(root, CATALOG_FOLDER)
        self._options = dict(storage_options)

    def find(self, path: Sequence[str]) -> Entry | None:
        """Return what has a name, or None."""
        wanted = SEPARATOR.join(path).replace("'", "''")
        found = self._read(f"object_id = '{wanted}'")
        return found[0] if found else None

    def children(self, parent: Sequence[str], object_type: str | None = None) -> list[Entry]:
        """Return what lies directly below a namespace, by name."""
        depth = len(parent) + 1
        found = [
            entry
            for entry in self.all()
            if len(entry.path) == depth
            and entry.path[:-1] == tuple(parent)
            and object_type in {None, entry.object_type}
        ]
        return sorted(found, key=lambda entry: entry.path)

    def all(self) -> list[Entry]:
        """Return everything that has a name."""
        return self._read(None)

    def add(self, entry: Entry) -> bool:
        """Take a name, and return whether it was free."""
        properties = None if entry.properties is None else json.dumps(dict(entry.properties))
        row = {
            "object_id": entry.object_id,
            "object_type": entry.object_type,
            "location": entry.location,
            "metadata": properties,
            "base_objects": None,
        }
        rows = pa.Table.from_pylist([row], _SCHEMA)
        merge = self._opened().merge_insert("object_id").when_not_matched_insert_all()
        return bool(merge.execute(rows)["num_inserted_rows"])

    def remove(self, path: Sequence[str]) -> None:
        """Give a name up."""
        name = SEPARATOR.join(path).replace("'", "''")
        self._opened().delete(f"object_id = '{name}'")

    def _read(self, condition: str | None) -> list[Entry]:
        try:
            dataset = LanceDataset(self._uri, storage_options=self._options)
        except DatasetNotFoundError:
            return []
        names = ["object_id", "object_type", "location", "metadata"]
        return [
            Entry(
                tuple(row["object_id"].split(SEPARATOR)),
                row["object_type"],
                row["location"],
                None if row["metadata"] is None else json.loads(row["metadata"]),
            )
            for row in dataset.to_table(names, filter=condition).to_pylist()
        ]

    def _opened(self) -> LanceDataset:
        try:
            return LanceDataset(self._uri, storage_options=self._options)
        except DatasetNotFoundError:
            pass
        try:
            return write_dataset(_SCHEMA.empty_table(), self._uri, storage_options=self._options)
        except AlreadyExistsError:  # another program made it meanwhile
            return LanceDataset(self._uri, storage_options=self._options)
