"""What is known of versions that were removed, and what is held against removing it.

    _versions/.removed-<3>-<7>-<id>.json    versions 3 to 7 go, and which transactions they were
    _versions/.hold-<5>-<id>                version 5 must stay: somebody is about to refer to it

The number of a version is free again when its manifest is deleted, and the store would let a
commit that was held up have it. So cleaning up first records what it is about to remove. A number
in a record is never a version again: whoever published it after all finds its own transaction in
the record, or another's, and so knows whether it was the version or came too late.

Records and holds make two promises, whichever processes stop in between:

    cleaning up      1 record   2 look for holds, tags, branches   3 delete
    a new reference  1 hold     2 look for records                 3 refer to it   4 let go

Of two that want the same version at least one sees the other: what is held stays, and what is
recorded cannot be referred to. A record that spares a version after all is written anew without it.

    _versions/.swept-<7>-<id>               at version 7, unreferenced files were deleted

A cleanup deletes such files if they are old, and clocks may be wrong about that. It puts this
marker first and reads new versions afterwards. A commit that read version 7 or an older one and
finds the marker after its put checks that its files still exist. A commit that read a later version
wrote its files after the cleanup had listed the files to delete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.errors import (
    CorruptDataError,
    ObjectNotFoundError,
    VersionRemovedError,
    corrupt_within,
)
from lancelet.format.paths import VERSIONS
from lancelet.format.trailer import strip_trailer, with_trailer
from lancelet.io import Store
from lancelet.table.location import TableLocation
from lancelet.table.manifests import ManifestEntry, VersionFolder
from lancelet.values import dataclass

_RECORD: Final = re.compile(r"\.removed-\d{20}-(\d{20})-[0-9a-f]{32}\.json")
_SWEEP: Final = re.compile(r"\.swept-(\d{20})-[0-9a-f]{32}")
_HOLD: Final = re.compile(r"\.hold-(\d{20})-[0-9a-f]{32}")

_RECORDS_MAX: Final = 4
"""So many records are joined to one by the next cleanup."""

_VERSIONS_MAX: Final = 4096
"""Of so many removed versions it is known which transactions they were."""

_NO_RECORD: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)

_LOOKS_MAX: Final = 100
"""How often records may be joined by others while they are read, before that is an error."""


@dataclass(frozen=True, slots=True)
class Removals:
    """Which versions were removed.

    `transactions` has the names of the transaction files of the removed versions, empty for those
    of old writers. Of versions up to `forgotten` that are not there, nothing is known any more.
    """

    transactions: Mapping[int, str] = field(default_factory=dict)
    forgotten: int = 0

    @staticmethod
    def of(store: Store, folder: VersionFolder | None = None) -> Removals:
        """Return what is recorded in a folder of versions, which may have been listed already."""
        for _ in range(_LOOKS_MAX):
            dotted = (folder or VersionFolder.of(store)).dotted
            try:
                return Removals.joined(_read(store, each) for each in records_among(dotted))
            except ObjectNotFoundError as error:
                folder, missing = None, error  # joined meanwhile; look again
        raise missing

    @staticmethod
    def joined(several: Iterable[Removals]) -> Removals:
        """Return what several records say together."""
        transactions: dict[int, str] = {}
        forgotten = 0
        for each in several:
            transactions |= each.transactions
            forgotten = max(forgotten, each.forgotten)
        return Removals(transactions, forgotten)

    def is_forgotten(self, version: int) -> bool:
        """Return whether a version may have been removed so long ago that nobody knows of it."""
        return version <= self.forgotten and version not in self.transactions

    def without(self, versions: Iterable[int]) -> Removals:
        """Return what is left when some versions stay after all."""
        kept = set(versions)
        left = {each: name for each, name in self.transactions.items() if each not in kept}
        return Removals(left, self.forgotten)

    def bounded(self) -> Removals:
        """Return the same without the oldest of very many versions."""
        known = sorted(self.transactions)
        dropped = known[: max(0, len(known) - _VERSIONS_MAX)]
        if not dropped:
            return self
        return Removals(self.without(dropped).transactions, max(self.forgotten, dropped[-1]))

    def render(self) -> bytes:
        """Return the bytes of a record."""
        versions = {str(version): self.transactions[version] for version in self.transactions}
        return with_trailer(json.dumps({"forgotten": self.forgotten, "removed": versions}).encode())

    @staticmethod
    def parse(data: bytes) -> Removals:
        """Return what a record says."""
        content = strip_trailer(np.frombuffer(data, np.uint8)).tobytes()
        try:
            found = json.loads(content)
            removed = {int(version): str(name) for version, name in found["removed"].items()}
            return Removals(removed, int(found["forgotten"]))
        except _NO_RECORD as error:
            raise CorruptDataError("the record of removed versions cannot be read") from error


def record_removals(store: Store, removed: Mapping[int, str]) -> str | None:
    """Record, so that it survives, which versions are about to be removed; return the file.

    What a number stands for is recorded once, so nothing is written if all are recorded. A few
    records are joined: the new one says what they say before they are deleted.
    """
    folder = VersionFolder.of(store)
    earlier = Removals.of(store, folder)
    new = {each: removed[each] for each in removed if each not in earlier.transactions}
    if not new:
        return None
    files = records_among(folder.dotted)
    if len(files) < _RECORDS_MAX:
        return _put(store, Removals(new))
    path = _put(store, Removals.joined([earlier, Removals(new)]))
    store.delete_many([f"{VERSIONS}/{each}" for each in files])
    return path


def spare(store: Store, record: str, versions: Iterable[int]) -> None:
    """Take versions that stay after all out of a record that was just written."""
    left = Removals.parse(store.read(record)).without(versions)
    if left.transactions:
        _put(store, left)
    store.delete(record)


def records_among(names: Iterable[str]) -> list[str]:
    """Return the records among names of the folder of versions."""
    return [each for each in names if _RECORD.fullmatch(each)]


def held_versions(store: Store) -> set[int]:
    """Return the versions that somebody is about to refer to."""
    found = map(_HOLD.fullmatch, VersionFolder.of(store).dotted)
    return {int(each[1]) for each in found if each is not None}


def is_hold(name: str) -> bool:
    """Return whether a name of the folder of versions is that of a hold."""
    return _HOLD.fullmatch(name) is not None


def record_sweep(store: Store, version: int) -> datetime:
    """Record that files of no version are about to be deleted, and return the time of the store."""
    path = f"{VERSIONS}/.swept-{version:020}-{surroundings.new_uuid().hex}"
    store.put(path, b"{}")
    earlier = [each for each in VersionFolder.of(store).dotted if _swept(each) < version]
    store.delete_many([f"{VERSIONS}/{each}" for each in earlier if _SWEEP.fullmatch(each)])
    return store.info(path).modified


def last_sweep(folder: VersionFolder) -> int:
    """Return the version at which files of no version were last deleted; -1 if never."""
    return max(map(_swept, folder.dotted), default=-1)


def _swept(name: str) -> int:
    found = _SWEEP.fullmatch(name)
    return -1 if found is None else int(found[1])


@contextmanager
def held(location: TableLocation, version: int) -> Iterator[ManifestEntry]:
    """Keep a version, and whatever it needs, from being cleaned up while somebody refers to it.

    Yields its manifest.

    Raises:
        VersionNotFoundError: It is not there, or a cleanup is about to remove it.
    """
    store = location.store
    path = f"{VERSIONS}/.hold-{version:020}-{surroundings.new_uuid().hex}"
    store.put_note(path, b"{}")
    try:
        if version in Removals.of(store).transactions:
            raise VersionRemovedError(
                "the version is being cleaned up, so that nothing can refer to it any more",
                uri=location.uri,
                version=version,
            )
        yield location.handler.find_version(store, version, uri=location.uri)
    finally:
        store.delete(path)


def _read(store: Store, name: str) -> Removals:
    path = f"{VERSIONS}/{name}"
    with corrupt_within(path=path, uri=store.uri):
        return Removals.parse(store.read(path))


def _put(store: Store, record: Removals) -> str:
    record = record.bounded()
    lowest, highest = min(record.transactions), max(record.transactions)
    path = f"{VERSIONS}/.removed-{lowest:020}-{highest:020}-{surroundings.new_uuid().hex}.json"
    store.put(path, record.render())
    return path
