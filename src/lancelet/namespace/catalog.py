"""The catalog table `__manifest` of a folder: its namespaces and tables.

    object_id          object_type   location           metadata
    sales              namespace     null               {"owner": "ann"}
    sales$q            table         1f0c9a2e_sales$q   null
    .dropped/5d3e01ab  dropped       orders.lance       {"object_id": "orders"}

An id is the path of an object, joined with `$`. The id is the primary key of the table, so one of
two concurrent inserts of the same name is rejected. Every change of a name is one commit. A dropped
table has a row with a reserved id until its files are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from lance_namespace import InvalidInputError

from lancelet import surroundings
from lancelet.change.merge.decide import MergeMatchError
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import AlreadyExistsError, CommitConflictError, DatasetNotFoundError
from lancelet.format.paths import VERSIONS
from lancelet.io.open import open_folder
from lancelet.io.uri import join, name, parse_uri, quote_path
from lancelet.table.manifests import find_latest
from lancelet.values import dataclass

SEPARATOR: Final = "$"
TABLE: Final = "table"
NAMESPACE: Final = "namespace"
DROPPED: Final = "dropped"

CATALOG_FOLDER: Final = "__manifest"
"""The folder of the catalog table."""

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
_DEREGISTERED: Final = ".lance-deregistered"
_DROPPED_CONTENT: Final = b"dropped"
_DROPPED_FOLDER: Final = ".dropped/"

_RENAME_ATTEMPTS_MAX: Final = 20
_LISTING_THREADS: Final = 16
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A namespace or a table.

    Attributes:
        path: The parts of the id.
        object_type: `table`, `namespace` or `dropped`.
        location: The path of the table relative to the root folder.
        properties: The properties given at creation.
        is_recorded: Whether the catalog contains the entry; otherwise it was found by listing
            the folder.
    """

    path: tuple[str, ...]
    object_type: str
    location: str | None = None
    properties: Mapping[str, str] | None = None
    is_recorded: bool = True

    @property
    def object_id(self) -> str:
        """The parts of the path, joined."""
        return SEPARATOR.join(self.path)


class Catalog:
    """Reads and changes the catalog of a folder."""

    def __init__(self, root: str, storage_options: Mapping[str, str]) -> None:
        """Open the catalog of a folder; the first entry creates its table."""
        self._uri = join(root, CATALOG_FOLDER)
        self._options = dict(storage_options)

    def find(self, path: Sequence[str], location: str | None = None) -> list[Entry]:
        """Return the entry of a name, and all entries of a location if given."""
        condition = _is_id(SEPARATOR.join(path))
        if location is not None:
            condition += f" OR {_is_text('location', location)}"
        return self._read(condition)

    def at_location(self, location: str) -> list[Entry]:
        """Return the entries of a location, including dropped tables."""
        return self._read(_is_text("location", location))

    def dropped(self, path: Sequence[str]) -> list[Entry]:
        """Return dropped tables of a name; their files may still exist."""
        object_id = SEPARATOR.join(path)
        return [
            entry
            for entry in self._read(f"object_type = '{DROPPED}'")
            if (entry.properties or {}).get("object_id") == object_id
        ]

    def children(self, parent: Sequence[str], object_type: str | None = None) -> list[Entry]:
        """Return the direct children of a namespace, ordered by name."""
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
        """Return all entries."""
        return self._read(None)

    def add(self, entry: Entry) -> bool:
        """Add an entry, and return False if its name already exists."""
        merge = self._opened().merge_insert("object_id").when_not_matched_insert_all()
        return bool(merge.execute(_rows([entry]))["num_inserted_rows"])

    def rename(self, entry: Entry, target: Sequence[str]) -> bool | None:
        """Change the id of an entry in one commit.

        Returns:
            True if renamed, False if the id already exists, None if the entry does not exist.
        """
        renamed = Entry(tuple(target), entry.object_type, entry.location, entry.properties)
        return self._replace(entry, renamed)

    def drop(self, entry: Entry) -> Entry | None:
        """Mark a table as dropped in one commit, and return the entry with its location.

        Returns:
            The entry, to `remove` after the files of the table are deleted; None if it does not
            exist.
        """
        dropped = Entry(
            (f"{_DROPPED_FOLDER}{surroundings.new_uuid().hex}",),
            DROPPED,
            entry.location,
            {"object_id": entry.object_id},
        )
        return dropped if self._replace(entry, dropped) else None

    def remove(self, entry: Entry) -> bool:
        """Remove an entry, and return whether it existed."""
        done = self._opened().delete(_is_entry(entry))
        return bool(done["num_deleted_rows"])

    def _replace(self, entry: Entry, other: Entry) -> bool | None:
        """Replace an entry in one commit; see `rename`.

        Each attempt reads the rows again: an automatically retried merge would add `other` even if
        another writer has removed `entry`.
        """
        for attempt in range(1, _RENAME_ATTEMPTS_MAX + 1):
            dataset = self._opened()
            if not dataset.count_rows(_is_entry(entry)):
                return None
            merge = (
                dataset.merge_insert("object_id")
                .when_matched_fail()
                .when_not_matched_insert_all()
                .when_not_matched_by_source_delete(_is_entry(entry))
                .conflict_retries(0)
            )
            try:
                merge.execute(_rows([other]))
            except MergeMatchError:
                return False
            except CommitConflictError:
                if attempt == _RENAME_ATTEMPTS_MAX:
                    raise
            else:
                return True
        raise AssertionError

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
        except AlreadyExistsError:  # created by a concurrent process
            return LanceDataset(self._uri, storage_options=self._options)


def _rows(entries: Sequence[Entry]) -> pa.Table:
    rows = [
        {
            "object_id": entry.object_id,
            "object_type": entry.object_type,
            "location": entry.location,
            "metadata": None if entry.properties is None else json.dumps(dict(entry.properties)),
            "base_objects": None,
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, _SCHEMA)


def _is_entry(entry: Entry) -> str:
    location = entry.location
    at = "location IS NULL" if location is None else _is_text("location", location)
    return f"{_is_id(entry.object_id)} AND {at}"


def _is_id(object_id: str) -> str:
    return _is_text("object_id", object_id)


def _is_text(column: str, text: str) -> str:
    quoted = text.replace("'", "''")
    return f"{column} = '{quoted}'"


class TableState(Enum):
    """The state of a table location.

    `ABSENT` includes a folder with files but no version, which a failed write leaves.
    """

    ABSENT = "absent"
    DECLARED = "declared"
    WRITTEN = "written"
    DEREGISTERED = "deregistered"
    DROPPED = "dropped"


class Folder:
    """The root folder of the tables."""

    def __init__(self, root: str, storage_options: Mapping[str, str]) -> None:
        """Open a folder."""
        self.root = root
        self.storage_options = dict(storage_options)
        self._store = open_folder(root, self.storage_options)

    def uri_of(self, location: str) -> str:
        """Return the URI of a table; local paths become `file://` URIs."""
        uri = join(self.root, check_location(location))
        parsed = parse_uri(uri)
        if parsed.scheme == "file":
            # Readers decode URIs, so percent signs in names must be encoded.
            root = parse_uri(self.root)
            within = quote_path(location)
            return f"file://{join(root.authority + quote_path(root.path), within)}"
        return uri if parsed.scheme == "memory" else join(self.root, quote_path(location))

    def new_location(self, path: Sequence[str]) -> str:
        """Return an unused location."""
        return f"{surroundings.new_uuid().hex[:8]}_{SEPARATOR.join(path)}"

    def listed_names(self, excluded: Collection[str]) -> list[str]:
        """Return the names of the tables found by listing the folder, ordered.

        Args:
            excluded: Locations to skip.
        """
        folders = [name(each.rstrip("/")) for each in self._store.list_delimited("").folders]
        found = sorted(each for each in folders if each.endswith(_SUFFIX) and each not in excluded)
        with surroundings.executor(_LISTING_THREADS, "lancelet-tables") as pool:
            states = pool.map(self.state_of, found)
            shown = {TableState.WRITTEN, TableState.DECLARED}
            return [
                location.removesuffix(_SUFFIX)
                for location, state in zip(found, states, strict=True)
                if state in shown
            ]

    def state_of(self, location: str) -> TableState:
        """Return the state of a location."""
        listing = self._store.list_delimited(check_location(location))
        names = {name(each.path) for each in listing.objects}
        if _DEREGISTERED in names:
            content = self._store.read(f"{location}/{_DEREGISTERED}")
            is_dropped = content == _DROPPED_CONTENT
            return TableState.DROPPED if is_dropped else TableState.DEREGISTERED
        if self.has_table(location):
            return TableState.WRITTEN
        return TableState.DECLARED if _RESERVED in names else TableState.ABSENT

    def has_table(self, location: str) -> bool:
        """Return whether a location contains a version of a table."""
        return find_latest(self._store.at(check_location(location))) is not None

    def has_folder(self, location: str) -> bool:
        """Return whether a location contains any files."""
        found = self._store.list_delimited(check_location(location))
        return bool(found.folders or found.objects)

    def reserve(self, location: str) -> None:
        """Reserve a location for a table that is not yet written."""
        self._store.put(f"{check_location(location)}/{_RESERVED}", b"")

    def check_droppable(self, location: str) -> None:
        """Raise if a location is not a table, such as a folder with other tables.

        Raises:
            InvalidInputError: If the location is not a table.
        """
        if not self.has_folder(location) or self.has_table(location):
            return
        if not self._store.exists(f"{location}/{_RESERVED}"):
            raise InvalidInputError(
                f"Invalid input: the folder at {location!r} is not a table; deregister "
                "the name instead of dropping it"
            )

    def hide(self, location: str, *, drops: bool = False) -> None:
        """Exclude a table from listings, because it was deregistered or is being dropped."""
        if not self._is_own(location):
            return
        content = _DROPPED_CONTENT if drops else b""
        self._store.put(f"{check_location(location)}/{_DEREGISTERED}", content)

    def show(self, location: str) -> None:
        """Include a table in listings again."""
        self._store.delete(f"{check_location(location)}/{_DEREGISTERED}")

    def drop(self, location: str) -> None:
        """Delete the files of a table.

        The versions are deleted first, so readers never open an incomplete table. The file that
        excludes the table from listings is deleted last.
        """
        if not self._is_own(location):
            self._drop_link(location)
            return
        listing = self._store.list_delimited(check_location(location))
        for folder in sorted(listing.folders, key=lambda each: name(each.rstrip("/")) != VERSIONS):
            self._store.delete_folder(folder.rstrip("/"))
        for each in listing.objects:
            if name(each.path) != _DEREGISTERED:
                self._store.delete(each.path)
        self._store.delete_folder(location)

    def _is_own(self, location: str) -> bool:
        """Return whether a table is in the folder, without symbolic links in its path."""
        return self._store.is_own(f"{check_location(location)}/{VERSIONS}")

    def _drop_link(self, location: str) -> None:
        """Delete a link to an external table; the table is not deleted.

        Raises:
            InvalidInputError: If a parent folder is the link, because other tables may use it.
        """
        if not self._store.is_own(location):
            raise InvalidInputError(
                f"Invalid input: the path of {location!r} contains a symbolic link; deregister "
                "the name instead of dropping it"
            )
        self._store.delete_folder(location)


def listed_location(path: Sequence[str]) -> str:
    """Return the listed location of a table of the root namespace."""
    return f"{path[-1]}{_SUFFIX}"


def is_listed_location(location: str) -> bool:
    """Return whether a listing of the root contains a location."""
    return location.endswith(_SUFFIX) and "/" not in location


def check_location(location: str) -> str:
    """Validate and return a location relative to the root folder.

    Paths are decoded when they are part of a URI, so `%2e%2e` is rejected like `..`.
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
                f"Invalid input: a location must be a relative path below the root directory: "
                f"{location!r}"
            )
        if parts[0] == CATALOG_FOLDER:
            raise InvalidInputError(
                f"Invalid input: {CATALOG_FOLDER} is reserved for the catalog: {location}"
            )
    return location


def check_name(name: str) -> str:
    """Validate and return one part of an id.

    Raises:
        InvalidInputError: If the name is not valid for a namespace or table.
    """
    is_path = name in {"", ".", ".."} or "/" in name or SEPARATOR in name
    if is_path or _UNSAFE.search(name):
        raise InvalidInputError(
            f"Invalid input: parts of an id must not be empty, '.' or '..', or contain '/', '\\', "
            f"'{SEPARATOR}' or control characters: {name!r}"
        )
    return name
