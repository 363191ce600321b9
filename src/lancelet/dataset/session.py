"""Sessions: what pylance shares caches by."""

from __future__ import annotations

from lancelet.io.cache import CACHE


class Session:
    """Stands for the caches of the process, which all datasets share with or without one."""

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
    ) -> None:
        """Take sizes that have no effect: one budget serves all caches of the process."""
        del index_cache_size_bytes, metadata_cache_size_bytes

    def size_bytes(self) -> int:
        """Return how many bytes are kept."""
        return CACHE.stats.bytes

    def is_same_as(self, other: Session) -> bool:
        """Say whether both share one cache, which they always do."""
        return isinstance(other, Session)
