"""The table `__manifest` of a folder: the names of its namespaces and tables.

    object_id   object_type   location           metadata
    sales       namespace     null               {"owner": "ann"}
    sales$q     table         1f0c9a2e_sales$q   null

An id is the path of an object, joined with `$`. The id is the key of the table, so of two writers
who take the same name at once one is refused.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from lance_namespace import InvalidInputError

from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import AlreadyExistsError, DatasetNotFoundError
from lancelet.io.open import open_folder
from lancelet.io.uri import join, parse_uri, quote_path
from lancelet.table.manifests import find_latest
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

_SUFFIX: Final = ".lance"
_RESERVED: Final = ".lance-reserved"
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\]")


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


class Folder:
    """A folder of tables."""

    def __init__(self, root: str, storage_options: Mapping[str, str]) -> None:
        """Look at a folder."""
        self.root = root
        self.storage_options = dict(storage_options)
        self._store = open_folder(root, self.storage_options)

    def uri_of(self, location: str) -> str:
        """Return the URI of a table, as others name it: local paths are `file://` URIs."""
        uri = join(self.root, check_location(location))
        place = parse_uri(uri)
        if place.scheme == "file":
            # Whoever opens a URI decodes it, so names that look encoded have to be.
            root = parse_uri(self.root)
            within = quote_path(location)
            return f"file://{join(root.authority + quote_path(root.path), within)}"
        return uri if place.scheme == "memory" else join(self.root, quote_path(location))

    def new_location(self, path: Sequence[str], *, is_listed: bool) -> str:
        """Return where a new table goes: by its name where folders are listed, else apart."""
        if len(path) == 1 and is_listed:
            return f"{path[0]}{_SUFFIX}"
        return f"{uuid.uuid4().hex[:8]}_{SEPARATOR.join(path)}"

    def listed_tables(self) -> list[str]:
        """Return the names of the tables that lie in the folder itself."""
        folders = [name.rstrip("/") for name in self._store.list_delimited("").folders]
        names = [name.rpartition("/")[2] for name in folders]
        return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def has_table(self, location: str) -> bool:
        """Whether a table was written at a place."""
        return find_latest(self._store.at(check_location(location))) is not None

    def has_folder(self, location: str) -> bool:
        """Whether there is anything at a place."""
        found = self._store.list_delimited(check_location(location))
        return bool(found.folders or found.objects)

    def reserve(self, location: str) -> None:
        """Mark a place as taken by a table that is not written yet."""
        self._store.put(f"{check_location(location)}/{_RESERVED}", b"")

    def check_droppable(self, location: str) -> None:
        """Refuse to delete what is no table, such as a folder that holds others.

        Raises:
            InvalidInputError: Something else is there.
        """
        if not self.has_folder(location) or self.has_table(location):
            return
        if not self._store.exists(f"{location}/{_RESERVED}"):
            raise InvalidInputError(
                f"Invalid input: no table is at {location!r}, and something else is; deregister "
                "the name instead of dropping it"
            )

    def drop(self, location: str) -> None:
        """Delete a table."""
        self._store.delete_folder(check_location(location))


def check_location(location: str) -> str:
    """Return where a table is below the folder, unless that could be anywhere else.

    Paths are decoded when they are part of a URI, so `%2e%2e` is as bad as `..`.
    """
    if "://" in location:
        raise InvalidInputError(
            f"Absolute URIs are not allowed for register_table. Location must be relative to the "
            f"root directory: {location}"
        )
    if location.startswith("/"):
        raise InvalidInputError(
            f"Absolute paths are not allowed for register_table. Location must be relative to "
            f"the root directory: {location}"
        )
    for text in (location, unquote(location)):
        parts = text.split("/")
        if ".." in parts:
            raise InvalidInputError(f"Path traversal is not allowed: {location}")
        if not {"", "."}.isdisjoint(parts) or _UNSAFE.search(text):
            raise InvalidInputError(
                f"Invalid input: a location is a path of names below the root directory: "
                f"{location!r}"
            )
        if parts[0] == CATALOG_FOLDER:
            raise InvalidInputError(
                f"Invalid input: {CATALOG_FOLDER} holds the names of the namespace: {location}"
            )
    return location


def check_name(name: str) -> str:
    """Return a part of an id, unless it would be more than one part, or part of another path.

    Raises:
        InvalidInputError: It cannot name a namespace or a table.
    """
    is_path = name in {"", ".", ".."} or "/" in name or SEPARATOR in name
    if is_path or _UNSAFE.search(name):
        raise InvalidInputError(
            f"Invalid input: the parts of an id are not empty, have no '/', '\\', "
            f"'{SEPARATOR}' or control characters, and are not '.' or '..': {name!r}"
        )
    return name
