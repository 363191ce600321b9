"""Times as callers write them, clusters and graphs, under pylance's name for the module."""

from __future__ import annotations

from datetime import datetime, timedelta

from lancelet.dataset.vector_checks import validate_vector_index
from lancelet.errors import InvalidInputError
from lancelet.indices.hnsw import HNSW
from lancelet.indices.kmeans import KMeans

__all__ = [
    "HNSW",
    "KMeans",
    "TimeTypeError",
    "sanitize_ts",
    "td_to_micros",
    "validate_vector_index",
]


class TimeTypeError(InvalidInputError, TypeError):
    """A value is no time."""


def sanitize_ts(ts: str | datetime) -> datetime:
    """Return a time that is given as text, as pandas has it, or as what it is.

    >>> sanitize_ts("2026-01-31 12:00:00")
    datetime.datetime(2026, 1, 31, 12, 0)
    """
    if isinstance(ts, str):
        try:
            return datetime.fromisoformat(ts)
        except ValueError as error:
            raise InvalidInputError(f"Failed to parse timestamp string {ts}") from error
    if hasattr(ts, "to_pydatetime"):
        found: datetime = ts.to_pydatetime()
        return found
    if not isinstance(ts, datetime):
        raise TimeTypeError("a time is text or a datetime", found=str(type(ts)))
    return ts


def td_to_micros(td: timedelta) -> int:
    """Return how many microseconds a duration has.

    >>> td_to_micros(timedelta(seconds=1, milliseconds=2))
    1002000
    """
    return round(td / timedelta(microseconds=1))
