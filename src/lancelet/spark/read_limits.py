"""Limits of a stream's batches.

Spark 4.2 and later pass a limit to the source, whose default is `getDefaultReadLimit`. Spark has no
limit of versions, so they are passed as a limit of files. Earlier releases read all new rows in
each batch.
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
        """Base class of sources that support the trigger `availableNow`."""


HAS_LIMITS: Final = limits is not None
"""Whether this release of Spark supports limits per batch."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Maximum numbers of rows, bytes and versions per batch, by their names in Spark."""

    max_rows: int | None = None
    max_bytes: int | None = None
    max_files: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether no limit is set."""
        return self.max_rows is None and self.max_bytes is None and self.max_files is None


def check_limits(options: StreamOptions) -> None:
    """Raise if limits are set but this release of Spark does not support them."""
    limits = (options.max_rows, options.max_bytes, options.max_versions)
    if not HAS_LIMITS and any(each is not None for each in limits):
        raise UnsupportedError(
            "Spark before 4.2 reads all new rows in each batch; omit the limit",
            spark=pyspark.__version__,
        )


def default_limit(options: StreamOptions) -> object:
    """Return the limit set by options as a value of Spark."""
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
    """Convert a limit of Spark."""
    return ReadLimit(
        getattr(limit, "max_rows", None),
        getattr(limit, "max_bytes", None),
        getattr(limit, "max_files", None),
    )


__all__ = ["HAS_LIMITS", "AvailableNow", "ReadLimit", "check_limits", "default_limit", "limit_of"]
