"""Versions that a namespace decides: those of tables it describes with `managed_versioning`.

    put       _versions/7.manifest-<id>                 staged, seen by nobody
    create_table_version(version=7, manifest_path=..)   decides, and gives the manifest its name
    list_table_versions(limit=1, descending=True)       the latest
    describe_table_version(version=7)                   where the manifest of a version is

Requests are dicts but for the list, as pylance asks and answers.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from lancelet.dataset.named_table import namespace_module
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    VersionNotFoundError,
)
from lancelet.format.paths import (
    TREE,
    VERSIONS,
    is_detached,
    parse_manifest_name,
    staged_manifest_path,
)
from lancelet.io import Store
from lancelet.io.uri import join, name
from lancelet.table.handlers import CommitHandler
from lancelet.table.manifests import ManifestEntry, find_version
from lancelet.values import dataclass

_BRANCHES: Final = f"{TREE}/"


@dataclass(frozen=True, slots=True)
class NamespaceVersions(CommitHandler):
    """Publishes and finds versions by asking a namespace for them.

    `client` is the namespace, and `root` the table's path from the root of its store.
    """

    client: Any
    table_id: tuple[str, ...]
    root: str
    branch: str | None = None

    def publish(self, store: Store, path: str, data: bytes, *, version: int) -> None:
        """Stage the manifest, and let the namespace decide."""
        if is_detached(version):
            # No other writer can want its name, and no reader asks the namespace for it.
            store.put_if_absent(path, data)
            return
        staged = staged_manifest_path(path, uuid.uuid4())
        store.put(staged, data)
        errors = namespace_module()
        found = parse_manifest_name(name(path))
        assert found is not None, "it is the path of a manifest"
        wanted = self._request(
            version=version,
            manifest_path=join(self.root, staged),
            manifest_size=len(data),
            naming_scheme=found.naming.name,
        )
        try:
            self.client.create_table_version(wanted)
        except errors.ConcurrentModificationError as error:
            store.delete(staged)
            raise AlreadyExistsError("another writer has the version", version=version) from error
        except (errors.ServiceUnavailableError, errors.InternalError) as error:
            raise CommitOutcomeUnknownError(
                "the namespace did not say whether it took the version", version=version
            ) from error
        store.delete(staged)

    def find_latest(self, store: Store) -> ManifestEntry | None:
        """Return the manifest of the highest version, or None if there is no table."""
        names = namespace_module()
        wanted = self._request(limit=1, descending=True)
        try:
            answer = self.client.list_table_versions(names.ListTableVersionsRequest(**wanted))
        except (names.TableNotFoundError, names.TableBranchNotFoundError):
            return None
        for found in _fields(answer)["versions"][:1]:
            return self._entry(store, _fields(found))
        return None

    @property
    def frees_numbers(self) -> bool:
        """Return False: the namespace keeps what it took, also of versions that were removed."""
        return False

    def find_version(self, store: Store, version: int, *, uri: str) -> ManifestEntry:
        """Return the manifest of a version."""
        if is_detached(version):
            return find_version(store, version, uri=uri)
        errors = namespace_module()
        try:
            answer = self.client.describe_table_version(self._request(version=version))
        except (errors.TableVersionNotFoundError, errors.TableNotFoundError) as error:
            raise VersionNotFoundError(
                "the namespace knows of no such version", uri=uri, version=version
            ) from error
        return self._entry(store, _fields(_fields(answer)["version"]))

    def below(self, folder: str) -> NamespaceVersions:
        """Return the handler of a branch."""
        branch = folder.removeprefix(_BRANCHES)
        return replace(self, root=join(self.root, folder), branch=branch)

    def _request(self, **fields: Any) -> dict[str, Any]:
        branch = {} if self.branch is None else {"branch": self.branch}
        return {"id": list(self.table_id), **branch, **fields}

    def _entry(self, store: Store, version: Mapping[str, Any]) -> ManifestEntry:
        number, file = version["version"], name(version["manifest_path"])
        found = parse_manifest_name(file)
        if found is None or found.version != number:
            raise CorruptDataError(
                "the namespace has a manifest under another version than its own",
                path=version["manifest_path"],
                version=number,
            )
        path, size = f"{VERSIONS}/{file}", version.get("manifest_size")
        if size is None:
            info = store.info(path)
            return ManifestEntry(number, found.naming, path, info.size, info.modified, info.etag)
        unknown = datetime.fromtimestamp(0, UTC)
        return ManifestEntry(number, found.naming, path, size, unknown, version.get("e_tag"))


def _fields(answer: Any) -> Mapping[str, Any]:
    """Return the fields of an answer, which is a dict or a value of the namespace's models."""
    if isinstance(answer, Mapping):
        return answer
    fields: dict[str, Any] = answer.model_dump(exclude_none=True)
    return fields
