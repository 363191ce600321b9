"""Conversion of timestamps, and k-means and HNSW. Mirrors the pylance module of this name."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from lancelet.dataset.scan.search import validate_vector_index
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


_PARTITION_ROWS: Final = 8192
_PARTITIONS_MAX: Final = 4096


class TimeTypeError(InvalidInputError, TypeError):
    """A value is not a timestamp."""


def sanitize_ts(ts: str | datetime) -> datetime:
    """Convert text or a pandas timestamp to a `datetime`.

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
        raise TimeTypeError("a timestamp must be text or a datetime", found=str(type(ts)))
    return ts


def td_to_micros(td: timedelta) -> int:
    """Return the number of microseconds of a duration.

    >>> td_to_micros(timedelta(seconds=1, milliseconds=2))
    1002000
    """
    return round(td / timedelta(microseconds=1))


def _target_partition_size_to_num_partitions(
    num_rows: int, target_partition_size: int | None
) -> int:
    """Return pylance's number of partitions for a number of rows and a target partition size.

    >>> _target_partition_size_to_num_partitions(100_000, None)
    12
    """
    rows = _PARTITION_ROWS if target_partition_size is None else target_partition_size
    return min(max(1, num_rows // rows), _PARTITIONS_MAX)
