"""Where the tables of a folder are: paths below it, and what is there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from lance_namespace import InvalidInputError

from lancelet.io.open import open_folder
from lancelet.io.uri import join, parse_uri
from lancelet.namespace.catalog import SEPARATOR
from lancelet.table.manifests import find_latest

_SUFFIX: Final = ".lance"
_RESERVED: Final = ".lance-reserved"


class Folder:
    """A folder of tables."""

    def __init__(self, root: str, storage_options: Mapping[str, str]) -> None:
        """Look at a folder."""
        self.root = root
        self.storage_options = dict(storage_options)
        self._store = open_folder(root, self.storage_options)

    def uri_of(self, location: str) -> str:
        """Return the URI of a table, as others name it: local paths are `file://` URIs."""
        uri = join(self.root, location)
        place = parse_uri(uri)
        return f"file://{place.authority}{place.path}" if place.scheme == "file" else uri

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
        return find_latest(self._store.at(location)) is not None

    def has_folder(self, location: str) -> bool:
        """Whether there is anything at a place."""
        found = self._store.list_delimited(location)
        return bool(found.folders or found.objects)

    def reserve(self, location: str) -> None:
        """Mark a place as taken by a table that is not written yet."""
        self._store.put(f"{location}/{_RESERVED}", b"")

    def drop(self, location: str) -> None:
        """Delete a table."""
        self._store.delete_folder(location)


def check_location(location: str) -> str:
    """Return a path that a caller gives, if it stays within the folder."""
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
    if ".." in location.split("/"):
        raise InvalidInputError(f"Path traversal is not allowed: {location}")
    return location
