"""Choosing the store that a URI names.

open_store("s3://bucket/t.lance/data/a.lance")   the store of the bucket, "t.lance/data/a.lance"
open_folder("s3://bucket/t.lance")               a store whose root is t.lance
"""

from __future__ import annotations

import os

from lancelet.errors import UnsupportedError
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from lancelet.io.store import StorageOptions, Store
from lancelet.io.uri import Location, parse_uri


def open_store(
    uri: str | os.PathLike[str], storage_options: StorageOptions | None = None
) -> tuple[Store, str]:
    """Return the store that a URI names and the path in it.

    >>> store, path = open_store("memory://shelf/tables/t.lance")
    >>> store.uri, path
    ('memory://shelf', 'tables/t.lance')
    """
    location = parse_uri(uri)
    return _store_of(location, storage_options or {}), location.path


def open_folder(
    uri: str | os.PathLike[str], storage_options: StorageOptions | None = None
) -> Store:
    """Return a store whose root is the folder that a URI names."""
    store, path = open_store(uri, storage_options)
    return store.at(path)


def _store_of(location: Location, storage_options: StorageOptions) -> Store:
    match location.scheme:
        case "file":
            return LocalStore(location.authority)
        case "memory":
            return MemoryStore(location.authority)
        case _:
            raise UnsupportedError("no store knows the scheme of the URI", scheme=location.scheme)
