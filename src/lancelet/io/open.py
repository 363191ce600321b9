"""Creation of the store for a URI.

For example:

    open_store("s3://bucket/t.lance/data/a.lance")   the store of the bucket, "t.lance/data/a.lance"
    open_folder("s3://bucket/t.lance")               a store with the root t.lance
    open_store("hf://datasets/org/name/t.lance")     a scheme that only fsspec supports
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
from lancelet.io.options import FSSPEC, LOCAL_CACHE, LOCAL_CACHE_BYTES, get_option
from lancelet.io.request_metrics import REQUEST_METRICS
from lancelet.io.store import StorageOptions, Store
from lancelet.io.trace_events import EVENT_SINKS
from lancelet.io.uri import Location, parse_uri

_CACHED_ROOTS_MAX: Final = 16


class UnknownSchemeError(UnsupportedError, ValueError):
    """No store supports the scheme of a URI."""


def open_store(
    uri: str | os.PathLike[str],
    storage_options: StorageOptions | None = None,
    *,
    provider: OptionsProvider | None = None,
) -> tuple[Store, str]:
    """Return the store for a URI, and the path of the URI in it.

    `provider` supplies credentials, and is called again before they expire.

    >>> store, path = open_store("memory://shelf/tables/t.lance")
    >>> store.uri, path
    ('memory://shelf', 'tables/t.lance')
    """
    location = parse_uri(uri)
    store = surroundings.wrap_store(_make_store(location, storage_options or {}, provider))
    store = REQUEST_METRICS.wrap(store, location.scheme)
    if get_option(storage_options or {}, LOCAL_CACHE, LOCAL_CACHE_BYTES) is not None:
        from lancelet.io.block_cache import with_local_cache  # noqa: PLC0415 - rarely used

        store = with_local_cache(store, storage_options or {})
    return EVENT_SINKS.wrap(store), location.path


def open_folder(
    uri: str | os.PathLike[str],
    storage_options: StorageOptions | None = None,
    *,
    provider: OptionsProvider | None = None,
) -> Store:
    """Return a store with the directory of a URI as its root."""
    store, path = open_store(uri, storage_options, provider=provider)
    return store.at(path)


def renew_memory(uri: str, storage_options: StorageOptions | None = None) -> None:
    """Clear the bucket of a memory URI without a path.

    Like in the reference, creating a dataset in such a bucket starts with an empty bucket.
    """
    location = parse_uri(uri)
    if get_option(storage_options or {}, FSSPEC) is not None:
        return
    if location.scheme == "memory" and location.authority and not location.path:
        MemoryStore.reset(location.authority)


def _make_store(
    location: Location, storage_options: StorageOptions, provider: OptionsProvider | None
) -> Store:
    if get_option(storage_options, FSSPEC) is not None:
        return _fsspec_store(location, storage_options)
    match location.scheme:
        case "file":
            return _local_store(location.authority, _is_sync(storage_options))
        case "memory":
            is_named = bool(location.authority)
            return MemoryStore(location.authority) if is_named else MemoryStore.unnamed()
        case scheme:
            # Dependencies of remote stores are imported on first use.
            from lancelet.io.client import REMOTE_SCHEMES, open_client  # noqa: PLC0415
            from lancelet.io.remote import RemoteStore  # noqa: PLC0415

            base = scheme.removesuffix("+ddb")
            if base not in REMOTE_SCHEMES:
                return _fsspec_store(location, storage_options)
            opened = open_client(base, location.authority, storage_options, provider)
            return RemoteStore(opened)


def _fsspec_store(location: Location, storage_options: StorageOptions) -> Store:
    from lancelet.io.client import REMOTE_SCHEMES  # noqa: PLC0415 - see `_make_store`
    from lancelet.io.fsspec_store import (  # noqa: PLC0415
        FsspecStore,
        is_local,
        open_filesystem,
    )

    base = f"{location.scheme}://{location.authority}"
    if location.scheme == "hf" and "@" in location.authority:
        raise InvalidInputError(
            "an hf URI must not contain a user name or password; set HF_TOKEN instead"
        )
    try:
        filesystem, root = open_filesystem(base, storage_options)
    except (ImportError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        supported = sorted({"file", "memory", "s3+ddb", *REMOTE_SCHEMES})
        raise UnknownSchemeError(
            "no store supports this scheme, and no installed fsspec file system does",
            scheme=location.scheme,
            expected=supported,
            reason=str(error),
        ) from error
    except OSError as error:
        raise StorageError(
            "the file system is not reachable; check the URI and the storage options",
            uri=base,
            reason=str(error),
        ) from error
    if is_local(filesystem):
        return _local_store(location.authority or "/", _is_sync(storage_options))
    return FsspecStore(filesystem, base, root)


@lru_cache(_CACHED_ROOTS_MAX)
def _local_store(anchor: str, sync: bool) -> LocalStore:
    return LocalStore(anchor, sync=sync)


def _is_sync(storage_options: StorageOptions) -> bool:
    """Return whether local writes must survive a power loss.

    `local_sync` is the former name of `durability`.
    """
    durability = get_option(storage_options, "durability")
    if durability is not None:
        if durability.lower() not in {"flushed", "written"}:
            raise InvalidInputError("`durability` must be flushed or written", found=durability)
        return durability.lower() == "flushed"
    text = get_option(storage_options, "local_sync") or "true"
    if text.lower() not in {"true", "false"}:
        raise InvalidInputError("`local_sync` must be true or false", found=text)
    return text.lower() == "true"
