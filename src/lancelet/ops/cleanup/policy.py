"""Which versions may go, and what of the rest.

    older than 14 days, and not among the last 5      both have to hold
    versions 3, 7                                     these alone

The version that is looked at and those after it always stay, and so do tagged ones.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

UNVERIFIED_AGE: Final = timedelta(days=7)
"""From this age on, a file that no version mentions is not being written any more."""


class CleanupInputError(InvalidInputError, OSError):
    """What was asked of a cleanup makes no sense."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """What to clean up.

    Attributes:
        before: Versions that were committed earlier may go.
        before_version: Versions with a lower number may go.
        retain_versions: How many of the newest versions stay.
        versions: Only these may go.
        delete_unverified: Whether files that no version mentions go however new they are; only
            for a table that nobody is writing to.
        error_if_tagged_old_versions: Whether it is an error if a tag keeps a version.
        delete_rate_limit: The most files that are deleted in a second.
        delete_concurrency: How many files are deleted at a time.
        clones: The URIs of tables elsewhere that are shallow clones of this one; what they
            mention stays.
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
        """Refuse limits under which nothing can be done."""
        for name in ("retain_versions", "delete_rate_limit", "delete_concurrency"):
            found = getattr(self, name)
            if found is not None and found < 1:
                raise CleanupInputError(f"{name} must be greater than 0, got {found}")
        if self.versions is not None and not self.versions:
            raise CleanupInputError("versions must not be empty when specified")

    def selects(self, version: int, committed_at: datetime) -> bool:
        """Return whether a version may go, by what it is alone."""
        if self.before is not None and committed_at >= self.before:
            return False
        if self.before_version is not None and version >= self.before_version:
            return False
        return self.versions is None or version in self.versions


def ago(length: timedelta | None) -> datetime | None:
    """Return the moment that was so long ago, or the first that there is; None if nobody asked."""
    if length is None:
        return None
    try:
        return surroundings.now() - length
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
