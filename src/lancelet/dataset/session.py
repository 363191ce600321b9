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
        """Take what the session may count as its own; one budget serves the whole process."""
        self._bytes_max: int | None = None
        if metadata_cache_size_bytes is not None:
            self._bytes_max = metadata_cache_size_bytes + (index_cache_size_bytes or 0)

    def size_bytes(self) -> int:
        """Return how many bytes are kept, at most as many as the session was to have."""
        kept = CACHE.stats.bytes
        return kept if self._bytes_max is None else min(kept, self._bytes_max)

    def is_same_as(self, other: Session) -> bool:
        """Say whether both share one cache, which they always do."""
        return isinstance(other, Session)
