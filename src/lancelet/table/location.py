"""The location of a table: its directory and the base paths that it references.

    data/a.lance, base none    <root>/data/a.lance
    a.lance, base 1 (root)     s3://cold/t/data/a.lance
    a.lance, base 2 (plain)    s3://landing/a.lance

A location is independent of versions. It opens one store per base and resolves manifest entries to
paths of stores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final, NamedTuple
from urllib.parse import unquote

from lancelet.format.base_paths import BasePath, get_base
from lancelet.format.paths import TREE, branch_path, check_relative_path
from lancelet.io import Store, open_folder
from lancelet.io.cache import CACHE, CacheScope
from lancelet.io.credentials import OptionsProvider
from lancelet.io.uri import join
from lancelet.table.handlers import CommitHandler, PutIfAbsent, handler_of
from lancelet.values import dataclass, replace

_BASE_OPTION: Final = re.compile(r"base_\d+\.")


class StorePath(NamedTuple):
    """A store and a path within it."""

    store: Store
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class TableLocation:
    """The directory of a table and the stores to access it.

    `base_options` has storage options by base path, for bases whose options differ from those of
    the table. Options may contain secrets and are excluded from `repr`. `handler` publishes and
    finds versions. `main` is the location of the main table if this is a branch opened through it.

    `metadata_cache` has decoded metadata, shared by the handles of a session; `open_files` has the
    open data files of this handle. Keys of both contain file names, which are never reused.
    """

    uri: str
    store: Store
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    metadata_cache: CacheScope = field(default_factory=CACHE.scope, repr=False)
    open_files: CacheScope = field(default_factory=CACHE.scope, repr=False)
    handler: CommitHandler = field(default_factory=PutIfAbsent)
    main: TableLocation | None = field(default=None, repr=False)
    _bases: dict[str, Store] = field(default_factory=dict, repr=False)

    @staticmethod
    def open(
        uri: str,
        storage_options: Mapping[str, str] | None = None,
        base_options: Mapping[str, Mapping[str, str]] | None = None,
        *,
        provider: OptionsProvider | None = None,
    ) -> TableLocation:
        """Return the location of a URI without reading from it.

        `provider` supplies credentials and refreshes them before they expire.
        """
        options = dict(storage_options or {})
        return TableLocation(
            uri,
            open_folder(uri, options, provider=provider),
            options,
            dict(base_options or {}),
            handler=handler_of(uri, options),
        )

    def below(self, folder: str) -> TableLocation:
        """Return the location of a table in a subfolder, such as a branch."""
        uri, separator, query = (
            self.uri.partition("?") if "+ddb:" in self.uri else (self.uri, "", "")
        )
        return replace(
            self,
            uri=join(uri, folder) + separator + query,
            store=self.store.at(folder),
            handler=self.handler.below(folder),
        )

    def resolve(
        self, directory: str, path: str, base_id: int | None, bases: Mapping[int, BasePath]
    ) -> StorePath:
        """Return the store and path of a file listed in a manifest under `directory` of a base."""
        check_relative_path(path)
        if base_id is None:
            return StorePath(self.store, f"{directory}/{path}")
        base = get_base(bases, base_id)
        within = f"{directory}/{path}" if base.is_dataset_root else path
        return StorePath(self.base_store(base), within)

    def reopened(self, store: Store) -> TableLocation:
        """Return the same location through another store with empty caches."""
        cache = self.metadata_cache.cache
        return replace(self, store=store, metadata_cache=cache.scope(), open_files=cache.scope())

    def with_stores(self, store: Store, bases: Mapping[str, Store]) -> TableLocation:
        """Return the same location with other stores for its directory and for base paths."""
        return replace(self, store=store, _bases=dict(bases))

    def base_store(self, base: BasePath) -> Store:
        """Return the store of a base, opened on first use."""
        store = self._bases.get(base.path)
        if store is None:
            store = self._bases.setdefault(base.path, self._open_base(base))
        return store

    def _open_base(self, base: BasePath) -> Store:
        """Open a base, or its new location if a table was moved with its branches.

        A branch refers to its table, or to its parent branch, by an absolute path.
        """
        store = open_folder(base.path, self.options_of(base))
        root = self._root_store() if base.is_dataset_root else None
        if root is None or _has_content(store):
            return store
        for match in re.finditer(f"/(?={TREE}/)", base.path):
            branch = root.at(base.path[match.end() :])
            if _has_content(branch):
                return branch
        return root if _has_content(root) else store

    def _root_store(self) -> Store | None:
        """Return the store of the main table if this is a branch, else None."""
        if self.main is not None:
            return self.main.store
        uri = (
            self.uri.partition("?")[0].rstrip("/") if "+ddb:" in self.uri else self.uri.rstrip("/")
        )
        for match in re.finditer(f"/{TREE}/", uri):
            name = unquote(uri[match.end() :]) if "://" in uri else uri[match.end() :]
            root = open_folder(uri[: match.start()], self.storage_options)
            if root.exists(branch_path(name)):
                return root
        return None

    def options_of(self, base: BasePath) -> Mapping[str, str]:
        """Return the options of a base: its specific options, else those of the table.

        Among the latter, `base_3.region` is the region of base 3 only.
        """
        if base.path in self.base_options:
            return self.base_options[base.path]
        shared = {
            key: value for key, value in self.storage_options.items() if not _BASE_OPTION.match(key)
        }
        prefix = f"base_{base.id}."
        specific = {
            key.removeprefix(prefix): value
            for key, value in self.storage_options.items()
            if key.startswith(prefix)
        }
        return {**shared, **specific}


def _has_content(store: Store) -> bool:
    """Return whether a folder contains anything."""
    listing = store.list_delimited("")
    return bool(listing.folders or listing.objects)
