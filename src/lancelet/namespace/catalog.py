"""The table `__manifest` of a folder: the names of its namespaces and tables.

    object_id          object_type   location           metadata
    sales              namespace     null               {"owner": "ann"}
    sales$q            table         1f0c9a2e_sales$q   null
    .dropped/5d3e01ab  dropped       orders.lance       {"object_id": "orders"}

An id is the path of an object, joined with `$`. The id is the primary key of the table, so if two
writers add the same name at once, one of them is refused. Every change of a name is one commit.
A dropped table keeps a row, under an id that is no name, until its files are deleted.
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
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.write.write import write_dataset
from lancelet.errors import AlreadyExistsError, CommitConflictError, DatasetNotFoundError
from lancelet.format.paths import VERSIONS
from lancelet.io.open import open_folder
from lancelet.io.uri import join, name, parse_uri, quote_path
from lancelet.ops.merge_insert.decide import MergeMatchError
from lancelet.table.manifests import find_latest
from lancelet.values import dataclass

SEPARATOR: Final = "$"
TABLE: Final = "table"
NAMESPACE: Final = "namespace"
DROPPED: Final = "dropped"

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
        path: The parts of its id.
        object_type: `table`, `namespace` or `dropped`.
        location: Where the table is, relative to the root folder.
        properties: Properties that the creator gave.
        is_recorded: Whether the catalog has a row for it; otherwise a listing of the folder
            showed it.
    """

    path: tuple[str, ...]
    object_type: str
    location: str | None = None
    properties: Mapping[str, str] | None = None
    is_recorded: bool = True

    @property
    def object_id(self) -> str:
        """The path as one text."""
        return SEPARATOR.join(self.path)


class Catalog:
    """Reads and changes the names of one folder."""

    def __init__(self, root: str, storage_options: Mapping[str, str]) -> None:
        """Open the catalog of a folder; its table is created with the first name."""
        self._uri = join(root, CATALOG_FOLDER)
        self._options = dict(storage_options)

    def find(self, path: Sequence[str], location: str | None = None) -> list[Entry]:
        """Return the entry of a name, and every entry with a location if one is given."""
        condition = _is_id(SEPARATOR.join(path))
        if location is not None:
            condition += f" OR {_is_text('location', location)}"
        return self._read(condition)

    def at_location(self, location: str) -> list[Entry]:
        """Return the entries with a location; that of a dropped table is among them."""
        return self._read(_is_text("location", location))

    def dropped(self, path: Sequence[str]) -> list[Entry]:
        """Return the dropped tables of a name whose files may not be deleted yet."""
        object_id = SEPARATOR.join(path)
        return [
            entry
            for entry in self._read(f"object_type = '{DROPPED}'")
            if (entry.properties or {}).get("object_id") == object_id
        ]

    def children(self, parent: Sequence[str], object_type: str | None = None) -> list[Entry]:
        """Return the entries directly below a namespace, ordered by name."""
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
        """Add an entry, and return whether its name was free."""
        merge = self._opened().merge_insert("object_id").when_not_matched_insert_all()
        return bool(merge.execute(_rows([entry]))["num_inserted_rows"])

    def rename(self, entry: Entry, target: Sequence[str]) -> bool | None:
        """Give an entry another id in one commit.

        Returns:
            True if it was renamed, False if the id is taken, None if the entry is gone.
        """
        renamed = Entry(tuple(target), entry.object_type, entry.location, entry.properties)
        return self._replace(entry, renamed)

    def drop(self, entry: Entry) -> Entry | None:
        """Remove the name of a table in one commit, and return the entry that keeps its location.

        Returns:
            The entry to `remove` once the files of the table are deleted; None if the entry is
            gone.
        """
        dropped = Entry(
            (f"{_DROPPED_FOLDER}{surroundings.new_uuid().hex}",),
            DROPPED,
            entry.location,
            {"object_id": entry.object_id},
        )
        return dropped if self._replace(entry, dropped) else None

    def remove(self, entry: Entry) -> bool:
        """Remove an entry, and return whether it was there."""
        done = self._opened().delete(_is_entry(entry))
        return bool(done["num_deleted_rows"])

    def _replace(self, entry: Entry, other: Entry) -> bool | None:
        """Replace an entry in one commit; see `rename`.

        The rows are looked at anew in each attempt: a merge that retried by itself would add
        `other` although another writer has removed `entry` meanwhile.
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
        except AlreadyExistsError:  # another program made it meanwhile
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
    """What a folder at the location of a table shows.

    `ABSENT` includes a folder with files but without a version, which a failed write leaves.
    """

    ABSENT = "absent"
    DECLARED = "declared"
    WRITTEN = "written"
    DEREGISTERED = "deregistered"
    DROPPED = "dropped"


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

    def new_location(self, path: Sequence[str]) -> str:
        """Return a location that no table has."""
        return f"{surroundings.new_uuid().hex[:8]}_{SEPARATOR.join(path)}"

    def listed_names(self, excluded: Collection[str]) -> list[str]:
        """Return the names of the tables that the folder itself shows, ordered.

        Args:
            excluded: Locations to pass over.
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
        """Return what is at a location."""
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
        """Return whether a location has a version of a table."""
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

        The versions go first, so that nobody opens a table with some of its files gone, and
        what excludes the table from listings goes last.
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
        """Return whether a table is in the folder and not behind a symbolic link."""
        return self._store.is_own(f"{check_location(location)}/{VERSIONS}")

    def _drop_link(self, location: str) -> None:
        """Delete a link to a table of others; the table stays.

        Raises:
            InvalidInputError: A folder above the table is the link, so others may need it.
        """
        if not self._store.is_own(location):
            raise InvalidInputError(
                f"Invalid input: the table at {location!r} is behind a symbolic link; deregister "
                "the name instead of dropping it"
            )
        self._store.delete_folder(location)


def listed_location(path: Sequence[str]) -> str:
    """Return where a listing finds the table of a name of the root."""
    return f"{path[-1]}{_SUFFIX}"


def is_listed_location(location: str) -> bool:
    """Return whether a listing of the root shows a location."""
    return location.endswith(_SUFFIX) and "/" not in location


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
