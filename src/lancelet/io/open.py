"""Choosing the store that a URI names.

open_store("s3://bucket/t.lance/data/a.lance")   the store of the bucket, "t.lance/data/a.lance"
open_folder("s3://bucket/t.lance")               a store whose root is t.lance
open_store("hf://datasets/org/name/t.lance")     what fsspec alone knows (`fsspec_store`)
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

from lancelet import surroundings
from lancelet.errors import InvalidInputError, StorageError, UnsupportedError
from lancelet.io.credentials import OptionsProvider
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from lancelet.io.options import FSSPEC, option_of
from lancelet.io.request_metrics import REQUEST_METRICS
from lancelet.io.store import StorageOptions, Store
from lancelet.io.trace_events import LISTENERS
from lancelet.io.uri import Location, parse_uri

_ROOTS_KEPT: Final = 16


class UnknownSchemeError(UnsupportedError, ValueError):
    """No store has the scheme of a URI."""


def open_store(
    uri: str | os.PathLike[str],
    storage_options: StorageOptions | None = None,
    *,
    provider: OptionsProvider | None = None,
) -> tuple[Store, str]:
    """Return the store that a URI names and the path in it.

    `provider` is asked for credentials, and again before they expire.

    >>> store, path = open_store("memory://shelf/tables/t.lance")
    >>> store.uri, path
    ('memory://shelf', 'tables/t.lance')
    """
    location = parse_uri(uri)
    store = surroundings.watched(_store_of(location, storage_options or {}, provider))
    store = REQUEST_METRICS.watched(store, location.scheme)
    return LISTENERS.watched(store), location.path


def open_folder(
    uri: str | os.PathLike[str],
    storage_options: StorageOptions | None = None,
    *,
    provider: OptionsProvider | None = None,
) -> Store:
    """Return a store whose root is the folder that a URI names."""
    store, path = open_store(uri, storage_options, provider=provider)
    return store.at(path)


def renew_memory(uri: str, storage_options: StorageOptions | None = None) -> None:
    """Forget what is in the bucket of a URI of memory that names nothing in it.

    A dataset is created there as in the reference, whose buckets of memory are always empty.
    """
    location = parse_uri(uri)
    if option_of(storage_options or {}, FSSPEC) is not None:
        return
    if location.scheme == "memory" and location.authority and not location.path:
        MemoryStore.renew(location.authority)


def _store_of(
    location: Location, storage_options: StorageOptions, provider: OptionsProvider | None
) -> Store:
    if option_of(storage_options, FSSPEC) is not None:
        return _fsspec_store(location, storage_options)
    match location.scheme:
        case "file":
            return _local_store(location.authority, _is_sync(storage_options))
        case "memory":
            is_named = bool(location.authority)
            return MemoryStore(location.authority) if is_named else MemoryStore.unnamed()
        case scheme:
            # What other stores need is imported with the first of them.
            from lancelet.io.client import REMOTE_SCHEMES, open_client  # noqa: PLC0415
            from lancelet.io.remote import RemoteStore  # noqa: PLC0415

            base = scheme.removesuffix("+ddb")
            if base not in REMOTE_SCHEMES:
                return _fsspec_store(location, storage_options)
            opened = open_client(base, location.authority, storage_options, provider)
            return RemoteStore(opened)


def _fsspec_store(location: Location, storage_options: StorageOptions) -> Store:
    from lancelet.io.client import REMOTE_SCHEMES  # noqa: PLC0415 - see `_store_of`
    from lancelet.io.fsspec_store import (  # noqa: PLC0415
        FsspecStore,
        is_local,
        open_filesystem,
    )

    base = f"{location.scheme}://{location.authority}"
    if location.scheme == "hf" and "@" in location.authority:
        raise InvalidInputError("a URI of hf has no user name and password; set HF_TOKEN instead")
    try:
        filesystem, root = open_filesystem(base, storage_options)
    except (ImportError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        known = sorted({"file", "memory", "s3+ddb", *REMOTE_SCHEMES})
        raise UnknownSchemeError(
            "no store has this scheme, and no file system of fsspec that is installed",
            scheme=location.scheme,
            known=known,
            reason=str(error),
        ) from error
    except OSError as error:
        raise StorageError(
            "the file system cannot be reached; check the URI and the storage options",
            uri=base,
            reason=str(error),
        ) from error
    if is_local(filesystem):
        return _local_store(location.authority or "/", _is_sync(storage_options))
    return FsspecStore(filesystem, base, root)


@lru_cache(_ROOTS_KEPT)
def _local_store(anchor: str, sync: bool) -> LocalStore:
    return LocalStore(anchor, sync=sync)


def _is_sync(storage_options: StorageOptions) -> bool:
    """Return whether what is written to a disk must survive a loss of power.

    `local_sync` is what `durability` was called before.
    """
    durability = option_of(storage_options, "durability")
    if durability is not None:
        if durability.lower() not in {"flushed", "written"}:
            raise InvalidInputError("`durability` is flushed or written", found=durability)
        return durability.lower() == "flushed"
    text = option_of(storage_options, "local_sync") or "true"
    if text.lower() not in {"true", "false"}:
        raise InvalidInputError("`local_sync` is true or false", found=text)
    return text.lower() == "true"
