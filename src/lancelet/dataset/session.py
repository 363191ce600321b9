"""Sessions: caches of metadata and indices, and their size limits.

    Session()                          shares the process-wide cache, the default of all tables
    Session(64_000_000, 16_000_000)    has separate caches of indices and of metadata

Datasets of one table that share a cache hold each index in memory once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from lancelet.config import CACHE_BYTES
from lancelet.dataset.show import display
from lancelet.errors import InvalidInputError
from lancelet.io.cache import CACHE, INDEX, METADATA, CacheStats, LruCache

_KIND: Final = "moka"
_KEYS: Final = ("kind", "options")


class Session:
    """Caches of metadata and index partitions that datasets can share."""

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_backend: str | Mapping[str, Any] | None = None,
        metadata_cache_backend: str | Mapping[str, Any] | None = None,
        store_registry: Any = None,
    ) -> None:
        """Create caches of the given sizes, or share the process-wide cache by default.

        Args:
            index_cache_size_bytes: The size of the index cache; by default that of the process-wide
                cache.
            metadata_cache_size_bytes: The size of the metadata cache; by default that of the
                process-wide cache.
            index_cache_backend: The index cache size as a URI or as a kind with options.
            metadata_cache_backend: The metadata cache size in the same form.
            store_registry: Has no effect: stores are selected by URI.
        """
        del store_registry
        index = _capacity("index_cache", index_cache_size_bytes, index_cache_backend)
        other = _capacity("metadata_cache", metadata_cache_size_bytes, metadata_cache_backend)
        self.cache = CACHE
        if index is not None or other is not None:
            index = CACHE_BYTES if index is None else index
            other = CACHE_BYTES if other is None else other
            self.cache = LruCache(index + other, {INDEX: index, METADATA: other})

    @property
    def stats(self) -> CacheStats:
        """The cached bytes and the hit counts."""
        return self.cache.stats

    def __repr__(self) -> str:
        """Show the current and the maximum size."""
        stats = self.stats
        return display.line(
            "Session",
            size_bytes=stats.bytes,
            index_bytes=stats.index_bytes,
            budget_bytes=stats.budget_bytes,
        )

    def _repr_html_(self) -> str:
        """Render the sizes for notebooks."""
        stats = self.stats
        facts = {
            "size": display.size_text(stats.bytes),
            "index bytes": display.size_text(stats.index_bytes),
            "limit": display.size_text(stats.budget_bytes),
        }
        return display.card("Session", facts)

    def size_bytes(self) -> int:
        """Return the size of the caches.

        Returns:
            The number of bytes.

        Example:
            ```python
            dataset.session().size_bytes()
            ```
        """
        return self.cache.stats.bytes

    def index_cache_size_bytes(self) -> int:
        """Return the size of the index cache.

        Returns:
            The number of bytes.

        Example:
            ```python
            dataset.session().index_cache_size_bytes()
            ```
        """
        return self.cache.stats.index_bytes

    def is_same_as(self, other: Session) -> bool:
        """Compare two sessions by identity.

        Args:
            other: The other session.

        Returns:
            Whether both share their caches.

        Example:
            ```python
            dataset.session().is_same_as(dataset.session())  # True
            ```
        """
        return self is other


def _capacity(name: str, size: int | None, backend: str | Mapping[str, Any] | None) -> int | None:
    """Return the cache size from either of the two arguments."""
    if backend is None:
        return size
    argument = f"{name}_backend"
    if size is not None:
        raise InvalidInputError(f"{name}_size_bytes and {argument} are mutually exclusive")
    kind, options = _backend(argument, backend)
    if kind.lower() != _KIND:
        raise InvalidInputError(f'{argument}: unknown cache backend kind: "{kind}"')
    unknown = sorted(set(options) - {"capacity"})
    if unknown:
        raise InvalidInputError(f'{argument}: moka cache backend: unknown option "{unknown[0]}"')
    capacity = options.get("capacity")
    if capacity is None:
        raise InvalidInputError(f"{argument}: moka cache backend: capacity is required")
    if not capacity:
        raise InvalidInputError(f"{argument}: moka cache backend: capacity must not be empty")
    if not capacity.isdecimal():
        raise InvalidInputError(
            f'{argument}: moka cache backend: cannot parse capacity "{capacity}"'
        )
    return int(capacity)


def _backend(argument: str, backend: Any) -> tuple[str, Mapping[str, str]]:
    if isinstance(backend, str):
        if ":" not in backend:
            raise InvalidInputError(f"{argument}: cache backend uri \"{backend}\" is missing ':'")
        parts = urlsplit(backend)
        return parts.scheme, dict(parse_qsl(parts.query, keep_blank_values=True))
    if not isinstance(backend, Mapping):
        raise InvalidInputError(
            f"{argument}: expected str (URI) or dict with 'kind'/'options' keys, "
            f"got {type(backend).__name__}"
        )
    unknown = [key for key in backend if key not in _KEYS]
    if unknown:
        raise InvalidInputError(
            f"{argument}: unknown dict key \"{unknown[0]}\"; expected 'kind' or 'options'"
        )
    if "kind" not in backend:
        raise InvalidInputError(f"{argument}: dict must contain a 'kind' key")
    options = backend.get("options", {})
    if not all(isinstance(value, str) for value in options.values()):
        raise InvalidInputError(f"{argument}: 'options' values must be strings")
    return backend["kind"], options
