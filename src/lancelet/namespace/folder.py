"""Where the tables of a folder are: paths below it, and what is there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from lance_namespace import InvalidInputError

from lancelet.io.open import open_folder
from lancelet.io.uri import join, parse_uri, quote_path
from lancelet.namespace.catalog import CATALOG_FOLDER, SEPARATOR
from lancelet.table.manifests import find_latest

_SUFFIX: Final = ".lance"
_RESERVED: Final = ".lance-reserved"
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\]")


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
