"""The policy that selects the versions and files to clean up.

    older than 14 days, and not among the last 5      both conditions must hold
    versions 3, 7                                     only these

The current version, newer versions and tagged versions are always retained.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.values import dataclass


class CleanupInputError(InvalidInputError, OSError):
    """The arguments of a cleanup are invalid."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The policy of a cleanup.

    Attributes:
        before: Removes versions committed before this time.
        before_version: Removes versions with a lower number.
        retain_versions: The number of newest versions to retain.
        versions: Restricts the removal to these versions.
        delete_unverified: Whether unreferenced files are deleted regardless of their age; requires
            that no other process writes to the table.
        error_if_tagged_old_versions: Whether a tag on a version to remove is an error.
        delete_rate_limit: The maximum number of files deleted per second.
        delete_concurrency: The number of concurrent deletions.
        clones: The URIs of shallow clones of this table, whose files are retained.
    """

    before: datetime | None = None
    before_version: int | None = None
    retain_versions: int | None = None
    versions: frozenset[int] | None = None
    delete_unverified: bool = False
    error_if_tagged_old_versions: bool = True
    delete_rate_limit: int | None = None
    delete_concurrency: int | None = None
    clones: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise for invalid limits."""
        for name in ("retain_versions", "delete_rate_limit", "delete_concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise CleanupInputError(f"{name} must be greater than 0, got {value}")
        if self.versions is not None and not self.versions:
            raise CleanupInputError("versions must not be empty when specified")

    def selects(self, version: int, committed_at: datetime) -> bool:
        """Return whether the policy selects a version by its number and commit time."""
        if self.before is not None and committed_at >= self.before:
            return False
        if self.before_version is not None and version >= self.before_version:
            return False
        return self.versions is None or version in self.versions


def ago(length: timedelta | None) -> datetime | None:
    """Return the time `length` before now, or the minimum datetime; None for None."""
    if length is None:
        return None
    try:
        return surroundings.now() - length
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
