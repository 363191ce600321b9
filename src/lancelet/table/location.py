"""Where the files of a table are: its own directory, and the bases it borrows from.

    data/a.lance, base none    <root>/data/a.lance
    a.lance, base 1 (root)     s3://cold/t/data/a.lance
    a.lance, base 2 (plain)    s3://landing/a.lance

A location knows no version. It opens stores, each base once, and says which path of which store
an entry of a manifest means.
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

_OF_BASE: Final = re.compile(r"base_\d+\.")


class Place(NamedTuple):
    """A path of a store."""

    store: Store
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class TableLocation:
    """The directory of a table, as a store whose root it is.

    `base_options` has storage options for bases that need others than the table, by their path.
    Options may be secrets, and are never part of what is shown.
    `handler` is how versions are published and found. `main` is where the main table is, for a
    branch that was found through it.

    `kept` is what was read of the table, which handles of one session share; `open_files` are the
    data files that are open through this handle. Both have the names of files, which are never used
    again, in their keys.
    """

    uri: str
    store: Store
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    base_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    kept: CacheScope = field(default_factory=CACHE.scope, repr=False)
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
        """Return the location that a URI names; nothing is read yet.

        `provider` is asked for credentials, and again before they expire.
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
        """Return the location of a table within this one's directory, such as a branch."""
        uri, mark, query = self.uri.partition("?") if "+ddb:" in self.uri else (self.uri, "", "")
        return replace(
            self,
            uri=join(uri, folder) + mark + query,
            store=self.store.at(folder),
            handler=self.handler.below(folder),
        )

    def place(
        self, directory: str, path: str, base_id: int | None, bases: Mapping[int, BasePath]
    ) -> Place:
        """Return where a file is that a manifest lists under `directory` of a base."""
        check_relative_path(path)
        if base_id is None:
            return Place(self.store, f"{directory}/{path}")
        base = get_base(bases, base_id)
        within = f"{directory}/{path}" if base.is_dataset_root else path
        return Place(self.base_store(base), within)

    def apart(self, store: Store) -> TableLocation:
        """Return the same location through another store, with nothing of it in memory."""
        cache = self.kept.cache
        return replace(self, store=store, kept=cache.scope(), open_files=cache.scope())

    def with_stores(self, store: Store, bases: Mapping[str, Store]) -> TableLocation:
        """Return the same location with other stores: its own, and those of bases by path."""
        return replace(self, store=store, _bases=dict(bases))

    def base_store(self, base: BasePath) -> Store:
        """Return a store whose root is a base."""
        store = self._bases.get(base.path)
        if store is None:
            store = self._bases.setdefault(base.path, self._open_base(base))
        return store

    def _open_base(self, base: BasePath) -> Store:
        """Open a base, or what it is now that a table was moved with its branches.

        A branch borrows from its table, or from the branch it was made of, by an absolute path.
        """
        store = open_folder(base.path, self.options_of(base))
        root = self._root_store() if base.is_dataset_root else None
        if root is None or _has_anything(store):
            return store
        for found in re.finditer(f"/(?={TREE}/)", base.path):
            branch = root.at(base.path[found.end() :])
            if _has_anything(branch):
                return branch
        return root if _has_anything(root) else store

    def _root_store(self) -> Store | None:
        """Return the store of the main table if this is a branch, else None."""
        if self.main is not None:
            return self.main.store
        uri = (
            self.uri.partition("?")[0].rstrip("/") if "+ddb:" in self.uri else self.uri.rstrip("/")
        )
        for found in re.finditer(f"/{TREE}/", uri):
            name = unquote(uri[found.end() :]) if "://" in uri else uri[found.end() :]
            root = open_folder(uri[: found.start()], self.storage_options)
            if root.exists(branch_path(name)):
                return root
        return None

    def options_of(self, base: BasePath) -> Mapping[str, str]:
        """Return the options of a base: its own, or those of the table.

        Among the latter `base_3.region` is the region of base 3, and of nothing else.
        """
        if base.path in self.base_options:
            return self.base_options[base.path]
        shared = {
            key: value for key, value in self.storage_options.items() if not _OF_BASE.match(key)
        }
        prefix = f"base_{base.id}."
        own = {
            key.removeprefix(prefix): value
            for key, value in self.storage_options.items()
            if key.startswith(prefix)
        }
        return {**shared, **own}


def _has_anything(store: Store) -> bool:
    """Return whether a folder is there and not empty."""
    found = store.list_delimited("")
    return bool(found.folders or found.objects)
