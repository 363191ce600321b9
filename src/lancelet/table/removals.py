"""Records of removed versions, holds on versions and sweep markers.

    _versions/.removed-<3>-<7>-<id>.json    versions 3 to 7 are removed, with their transactions
    _versions/.hold-<5>-<id>                version 5 must be retained: a reference is being created

Once a manifest is deleted, the store would accept a delayed commit under the same version number.
Cleanup therefore first records the versions that it removes. A recorded number is never used again:
a writer that publishes it compares the recorded transaction with its own, and so detects whether
its version was committed and removed, or was too late.

Records and holds are safe if any process stops in between:

    cleanup          1 record   2 check holds, tags, branches   3 delete
    a new reference  1 hold     2 check records                 3 store the reference   4 release

If both concern the same version, at least one sees the other: held versions are retained, and
recorded versions cannot be referenced. If a recorded version is retained after all, the cleanup
rewrites its own record without it. Other cleanups that are about to remove the version have records
of their own, and versions merged from them are never removed from a record.

    _versions/.swept-<7>-<id>               at version 7, unreferenced files were deleted

A cleanup deletes such files if they are old, and clocks may be wrong about that. It puts this
marker first and reads new versions afterwards. A commit that read version 7 or an older one and
finds the marker after its put checks its files: they exist, and were less than a week old at the
time of the marker. A commit that read a later version wrote its files after the cleanup had listed
the files to delete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime, timedelta
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

UNVERIFIED_AGE: Final = timedelta(days=7)
"""Minimum age at which unreferenced files are assumed to have no active writer."""

_RECORD: Final = re.compile(r"\.removed-\d{20}-(\d{20})-[0-9a-f]{32}\.json")
_SWEEP: Final = re.compile(r"\.swept-(\d{20})-[0-9a-f]{32}")
_HOLD: Final = re.compile(r"\.hold-(\d{20})-[0-9a-f]{32}")

_RECORDS_MAX: Final = 4
"""Number of records that the next cleanup merges into one."""

_VERSIONS_MAX: Final = 4096
"""Maximum number of removed versions whose transactions are recorded."""

_DECODE_ERRORS: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)

_ATTEMPTS_MAX: Final = 100
"""Maximum number of attempts to read the records while they are being merged."""


@dataclass(frozen=True, slots=True)
class Removals:
    """The recorded removed versions.

    `transactions` has the transaction file names of the removed versions, empty for versions of old
    writers. Missing versions up to `forgotten` may have been removed without a remaining record.
    """

    transactions: Mapping[int, str] = field(default_factory=dict)
    forgotten: int = 0

    @staticmethod
    def load(store: Store, folder: VersionFolder | None = None) -> Removals:
        """Read the records, from `folder` if it was already listed."""
        for _ in range(_ATTEMPTS_MAX):
            dotted = (folder or VersionFolder.of(store)).dotted
            try:
                return Removals.merged(_read(store, each) for each in filter_records(dotted))
            except ObjectNotFoundError as error:
                folder, missing = None, error  # Records were merged in the meantime.
        raise missing

    @staticmethod
    def merged(several: Iterable[Removals]) -> Removals:
        """Merge several records."""
        transactions: dict[int, str] = {}
        forgotten = 0
        for each in several:
            transactions |= each.transactions
            forgotten = max(forgotten, each.forgotten)
        return Removals(transactions, forgotten)

    def is_forgotten(self, version: int) -> bool:
        """Return whether a version may have been removed without a remaining record."""
        return version <= self.forgotten and version not in self.transactions

    def without(self, versions: Iterable[int]) -> Removals:
        """Return the record without versions that are retained."""
        retained = set(versions)
        remaining = {each: name for each, name in self.transactions.items() if each not in retained}
        return Removals(remaining, self.forgotten)

    def bounded(self) -> Removals:
        """Return the record limited to the newest `_VERSIONS_MAX` versions."""
        versions = sorted(self.transactions)
        dropped = versions[: max(0, len(versions) - _VERSIONS_MAX)]
        if not dropped:
            return self
        return Removals(self.without(dropped).transactions, max(self.forgotten, dropped[-1]))

    def render(self) -> bytes:
        """Encode the record."""
        versions = {str(version): self.transactions[version] for version in self.transactions}
        return with_trailer(json.dumps({"forgotten": self.forgotten, "removed": versions}).encode())

    @staticmethod
    def parse(data: bytes) -> Removals:
        """Decode a record."""
        content = strip_trailer(np.frombuffer(data, np.uint8)).tobytes()
        try:
            record = json.loads(content)
            removed = {int(version): str(name) for version, name in record["removed"].items()}
            return Removals(removed, int(record["forgotten"]))
        except _DECODE_ERRORS as error:
            raise CorruptDataError("the record of removed versions cannot be read") from error


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record that a cleanup wrote, and the versions that no other cleanup had recorded."""

    path: str
    versions: frozenset[int]


def record_removals(store: Store, removed: Mapping[int, str]) -> NewRecord | None:
    """Record the versions about to be removed; return None if there are none.

    Versions in records of other cleanups are recorded again, because those cleanups may retain
    them. The record is synced to disk. If there are several records, they are merged and deleted
    afterwards.
    """
    if not removed:
        return None
    folder = VersionFolder.of(store)
    earlier, ours = Removals.load(store, folder), Removals(removed)
    new = frozenset(removed) - earlier.transactions.keys()
    files = filter_records(folder.dotted)
    if len(files) < _RECORDS_MAX:
        return NewRecord(_put(store, ours), new)
    path = _put(store, Removals.merged([earlier, ours]))
    store.delete_many([f"{VERSIONS}/{each}" for each in files])
    return NewRecord(path, new)


def retain_versions(store: Store, record: NewRecord, versions: Iterable[int]) -> None:
    """Remove versions that are retained after all from a record that was just written.

    Versions that another cleanup recorded remain: that cleanup may be about to delete them.
    """
    retained = record.versions.intersection(versions)
    if not retained:
        return
    try:
        remaining = Removals.parse(store.read(record.path)).without(retained)
    except ObjectNotFoundError:
        return  # Another cleanup merged the record: the versions exist, but get no new references.
    if remaining.transactions:
        _put(store, remaining)
    store.delete(record.path)


def filter_records(names: Iterable[str]) -> list[str]:
    """Return the file names that are removal records."""
    return [each for each in names if _RECORD.fullmatch(each)]


def held_versions(store: Store) -> set[int]:
    """Return the versions with a hold."""
    matches = map(_HOLD.fullmatch, VersionFolder.of(store).dotted)
    return {int(each[1]) for each in matches if each is not None}


def is_hold(name: str) -> bool:
    """Return whether a file name in the folder of versions is that of a hold."""
    return _HOLD.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A deletion of unreferenced files: the newest version before, and the time of the store."""

    version: int
    time: datetime


def record_sweep(store: Store, version: int) -> datetime:
    """Record that unreferenced files are about to be deleted; return the time of the store."""
    path = f"{VERSIONS}/.swept-{version:020}-{surroundings.new_uuid().hex}"
    store.put(path, b"{}")
    earlier = [each for each in VersionFolder.of(store).dotted if _parse_sweep(each) < version]
    store.delete_many([f"{VERSIONS}/{each}" for each in earlier if _SWEEP.fullmatch(each)])
    return store.info(path).modified


def sweep_version(folder: VersionFolder) -> int:
    """Return the version of the last deletion of unreferenced files, or -1."""
    return max(map(_parse_sweep, folder.dotted), default=-1)


def last_sweep(store: Store, folder: VersionFolder) -> Sweep | None:
    """Return the last deletion of unreferenced files, or None; it may still be running."""
    found: Sweep | None = None
    for each in filter(_SWEEP.fullmatch, folder.dotted):
        try:
            info = store.info(f"{VERSIONS}/{each}")
        except ObjectNotFoundError:  # A later cleanup replaces the marker of an earlier one.
            continue
        if found is None or info.modified > found.time:
            found = Sweep(_parse_sweep(each), info.modified)
    return found


def _parse_sweep(name: str) -> int:
    match = _SWEEP.fullmatch(name)
    return -1 if match is None else int(match[1])


@contextmanager
def hold_version(location: TableLocation, version: int) -> Iterator[ManifestEntry]:
    """Prevent the cleanup of a version while a reference to it is created.

    Yields the manifest entry.

    Raises:
        VersionNotFoundError: The version does not exist, or a cleanup is about to remove it.
    """
    store = location.store
    path = f"{VERSIONS}/.hold-{version:020}-{surroundings.new_uuid().hex}"
    store.put_best_effort(path, b"{}")
    try:
        if version in Removals.load(store).transactions:
            raise VersionRemovedError(
                "the version is being cleaned up and cannot be referenced",
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
