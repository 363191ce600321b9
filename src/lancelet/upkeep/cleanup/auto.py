"""Automatic cleanup after commits, configured per table.

    lance.auto_cleanup.interval = 20           every 20th version
    lance.auto_cleanup.older_than = 14days     deletes older versions
    lance.auto_cleanup.retain_versions = 100   except for the newest 100

The version is already committed, so that a failed cleanup raises a warning instead of an error.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TypeVar

from lancelet.errors import InvalidInputError, LanceletError
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.cleanup.policy import CleanupPolicy, ago
from lancelet.upkeep.cleanup.run import CleanupStats, cleanup_old_versions

PREFIX: Final = "lance.auto_cleanup."

T = TypeVar("T")

_UNITS: Final = {
    ("ns", "nsec"): timedelta(microseconds=0.001),
    ("us", "usec"): timedelta(microseconds=1),
    ("ms", "msec"): timedelta(milliseconds=1),
    ("s", "sec", "secs", "second", "seconds"): timedelta(seconds=1),
    ("m", "min", "mins", "minute", "minutes"): timedelta(minutes=1),
    ("h", "hr", "hrs", "hour", "hours"): timedelta(hours=1),
    ("d", "day", "days"): timedelta(days=1),
    ("w", "week", "weeks"): timedelta(weeks=1),
    ("M", "month", "months"): timedelta(days=30.44),
    ("y", "year", "years"): timedelta(days=365.25),
}
_BY_NAME: Final = {name: size for names, size in _UNITS.items() for name in names}
_DIGITS_MAX: Final = 20
_PART: Final = re.compile(r"\s*(\d+)\s*([A-Za-z]+)")


class CleanupWarning(RuntimeWarning):
    """Automatic cleanup failed after a successful commit."""


def auto_cleanup(snapshot: Snapshot) -> CleanupStats | None:
    """Clean up if it is due for a committed version."""
    config = snapshot.manifest.config
    if f"{PREFIX}interval" not in config:
        return None
    try:
        interval = _setting(config, "interval", _count)
        if not interval or snapshot.version % interval:
            return None
        policy = CleanupPolicy(
            before=ago(_setting(config, "older_than", parse_duration)),
            # The previous version is retained, since the committer may still use it.
            before_version=snapshot.version - 1,
            retain_versions=_setting(config, "retain_versions", _count),
            error_if_tagged_old_versions=False,
            delete_rate_limit=_setting(config, "delete_rate_limit", _count),
            delete_concurrency=_setting(config, "delete_concurrency", _count),
        )
        return cleanup_old_versions(snapshot, policy)
    except Exception as error:  # noqa: BLE001 - an error would suggest that the commit failed
        kind = "" if isinstance(error, LanceletError) else f"{type(error).__name__}: "
        warnings.warn(
            (
                f"version {snapshot.version} was committed, but automatic cleanup failed: "
                f"{kind}{error}"
            ),
            CleanupWarning,
            stacklevel=2,
        )
    return None


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    >>> parse_duration("1m 40s"), parse_duration("2days 3h")
    (datetime.timedelta(seconds=100), datetime.timedelta(days=2, seconds=10800))
    """
    total, offset = timedelta(), 0
    while match := _PART.match(text, offset):
        number, unit = match.groups()
        if unit not in _BY_NAME:
            raise InvalidInputError("unknown unit in duration", text=text, unit=unit)
        try:
            total += _number(number) * _BY_NAME[unit]
        except OverflowError:
            return timedelta.max  # No version is older.
        offset = match.end()
    if text[offset:].strip() or not offset:
        raise InvalidInputError(
            "a duration consists of numbers with units, such as `14days` or `1h 30m`", text=text
        )
    return total


def _setting(config: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    text = config.get(PREFIX + name)
    return None if text is None else parse(text)


def _count(text: str) -> int:
    return _number(text.strip())


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise InvalidInputError(
            "a setting of automatic cleanup must be a number", found=text[: 2 * _DIGITS_MAX]
        )
    return int(text)
