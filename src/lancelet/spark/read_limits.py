"""How much a batch of a stream may read, in releases of Spark that ask for it and in others.

From 4.2 on Spark hands a limit to the source and asks it for its own default; it has no limit of
versions, and passes them as its limit of files. Before, a batch is all there is.
"""

from __future__ import annotations

from typing import Final

import pyspark

from lancelet.errors import UnsupportedError
from lancelet.spark.options import StreamOptions
from lancelet.values import dataclass

try:
    from pyspark.sql.streaming import datasource as limits
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
except ImportError:  # before 4.2
    limits = None  # type: ignore[assignment]  # the module came later

    class AvailableNow:  # type: ignore[no-redef]  # stands in for the class that came later
        """What Spark knows a source by that can end with what is there at its start."""


HAS_LIMITS: Final = limits is not None
"""Whether this release of Spark lets a source limit its batches."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """The most rows, bytes and versions of a batch, by the names of Spark."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether there is no limit."""
        return self.max_rows is None and self.max_bytes is None and self.max_files is None


def check_limits(options: StreamOptions) -> None:
    """Refuse limits where Spark would not ask for them."""
    wanted = (options.max_rows, options.max_bytes, options.max_versions)
    if not HAS_LIMITS and any(each is not None for each in wanted):
        raise UnsupportedError(
            "releases of Spark before 4.2 read all there is in each batch; leave the limit out",
            spark=pyspark.__version__,
        )


def default_limit(options: StreamOptions) -> object:
    """Return the limit that options set, as Spark's own value."""
    if not HAS_LIMITS:
        return None
    if options.max_rows is not None:
        return limits.ReadMaxRows(options.max_rows)
    if options.max_bytes is not None:
        return limits.ReadMaxBytes(options.max_bytes)
    if options.max_versions is not None:
        return limits.ReadMaxFiles(options.max_versions)
    return limits.ReadAllAvailable()


def limit_of(limit: object) -> ReadLimit:
    """Return what Spark's limit says."""
    return ReadLimit(
        getattr(limit, "max_rows", None),
        getattr(limit, "max_bytes", None),
        getattr(limit, "max_files", None),
    )


__all__ = ["HAS_LIMITS", "AvailableNow", "ReadLimit", "check_limits", "default_limit", "limit_of"]
