"""How much a batch of a stream may read, in releases of Spark that ask for it and in others.

From 4.2 on Spark hands a limit to the source and asks it for its own default; it has no limit of
versions, and passes them as its limit of files. Before, a batch is all there is.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancelet.spark.options import StreamOptions

try:
    from pyspark.sql.streaming import datasource as limits
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
except ImportError:  # before 4.2
    limits = None  # type: ignore[assignment]  # the module came later

    class AvailableNow:  # type: ignore[no-redef]  # stands in for the class that came later
        """What Spark knows a source by that can end with what is there at its start."""


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """The most rows, bytes and versions of a batch."""

    rows: int | None = None
    bytes: int | None = None
    versions: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether there is no limit."""
        return self.rows is None and self.bytes is None and self.versions is None


def default_limit(options: StreamOptions) -> object:
    """Return the limit that options set, as Spark's own value."""
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


__all__ = ["AvailableNow", "ReadLimit", "default_limit", "limit_of"]
