"""Methods that list, check out and restore versions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypedDict, cast

from lancelet import change
from lancelet.dataset.handle import Handle, VersionTypeError, open_reference
from lancelet.dataset.show.listing import VERSION_COLUMNS, Listing, version_cells
from lancelet.errors import DatasetNotFoundError
from lancelet.format.manifest import NANOSECONDS
from lancelet.table.snapshot import Snapshot, open_entries, open_snapshot

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.handle import VersionLike


class Version(TypedDict):
    """A version with its commit time and metadata."""

    version: int
    timestamp: datetime
    metadata: dict[str, str]


class HistoryMethods:
    """Methods that list, check out and restore versions."""

    _handle: Handle

    @property
    def version(self) -> int:
        """The number of the checked-out version."""
        return self._handle.snapshot.version

    @property
    def latest_version(self) -> int:
        """The number of the latest version."""
        location = self._handle.location
        entry = location.handler.find_latest(location.store)
        if entry is None:
            raise DatasetNotFoundError("the dataset no longer exists", uri=location.uri)
        return entry.version

    def get_version(self) -> Version:
        """Return the checked-out version.

        Returns:
            The number, timestamp and metadata of the version.

        Example:
            ```python
            dataset.get_version()["version"]
            ```
        """
        return describe_version(self._handle.snapshot)

    def versions(self) -> list[Version]:
        """Return all versions, oldest first.

        Returns:
            The number, timestamp and metadata of each version.

        Example:
            ```python
            for version in dataset.versions():
                print(version["version"], version["timestamp"])
            ```
        """
        location = self._handle.location
        entries = location.handler.list_versions(location.store)
        found = (describe_version(version) for version in open_entries(location, entries))
        return Listing(found, VERSION_COLUMNS, version_cells)

    def checkout_version(self, version: VersionLike) -> LanceDataset:
        """Return the dataset at another version.

        Args:
            version: A number of this branch, a tag, or a pair of a branch and a number or None.

        Returns:
            The dataset at that version, pinned to it.

        Raises:
            VersionNotFoundError: If the version does not exist or was cleaned up.
            RefNotFoundError: If the tag or branch does not exist.

        Example:
            ```python
            dataset.delete("id < 5")
            dataset.checkout_version(1).count_rows()  # 20
            ```
        """
        if version is None:
            raise VersionTypeError("a version must be a number, a tag, or a branch with a number")
        return cast("LanceDataset", self).at(open_reference(self._handle, version))

    def checkout_latest(self) -> None:
        """Check out the latest version, in place.

        Raises:
            DatasetNotFoundError: If the dataset was deleted.

        Example:
            ```python
            same = lance.dataset(dataset.uri)
            same.delete("id = 3")
            dataset.checkout_latest()
            ```
        """
        handle = self._handle
        if self.latest_version != handle.snapshot.version:
            handle.snapshot = open_snapshot(handle.location)

    def restore(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Commit the checked-out version as the latest.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.delete("id < 5")
            old = dataset.checkout_version(1)
            old.restore()
            old.count_rows()  # 20
            ```
        """
        over, rows = self.latest_version, self._handle.snapshot.num_rows
        return self._handle.change(
            lambda current: change.settings.restore(current, over), rows, dry_run=dry_run
        )


def describe_version(snapshot: Snapshot) -> Version:
    """Return the number, local timestamp and metadata of a version."""
    fragments = snapshot.fragments
    num_files, num_bytes = fragments.count_files()
    rows, deleted = int(fragments.physical_rows.sum()), int(fragments.num_deleted_rows.sum())
    summary = {
        "total_data_file_rows": rows,
        "total_data_files": num_files,
        "total_deletion_file_rows": deleted,
        "total_deletion_files": int(fragments.has_deletion_file.sum()),
        "total_files_size": num_bytes,
        "total_fragments": len(fragments),
        "total_rows": rows - deleted,
    }
    return Version(
        version=snapshot.version,
        timestamp=local_time(snapshot.manifest.timestamp_ns),
        metadata={name: str(value) for name, value in summary.items()},
    )


def local_time(timestamp_ns: int) -> datetime:
    """Convert nanoseconds since 1970 to a naive local datetime."""
    seconds, rest_ns = divmod(timestamp_ns, NANOSECONDS)
    # A local datetime without a time zone is the intended result.
    moment = datetime.fromtimestamp(seconds)  # noqa: DTZ006
    return moment.replace(microsecond=rest_ns // 1000)
