"""Sessions: what pylance shares caches by, and what is counted here.

All tables of a process share its caches. A session counts what its own tables read:

    Session()                                                  counts all of it
    Session(index_cache_backend="moka://?capacity=1048576")    at most so much
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from lancelet.dataset import display
from lancelet.errors import InvalidInputError
from lancelet.io.cache import CACHE
from lancelet.io.metered import PROCESS_METER

_KIND: Final = "moka"
_KEYS: Final = ("kind", "options")


class Session:
    """What the tables that are opened with it may keep in memory."""

    def __init__(
        self,
        index_cache_size_bytes: int | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_backend: str | Mapping[str, Any] | None = None,
        metadata_cache_backend: str | Mapping[str, Any] | None = None,
        store_registry: Any = None,
    ) -> None:
        """Take what the session may count as its own; one budget serves the whole process.

        Args:
            index_cache_size_bytes: The most bytes of indices that it counts.
            metadata_cache_size_bytes: The most bytes of all else that it counts.
            index_cache_backend: The same as the first, as a URI or as a kind with options.
            metadata_cache_backend: The same as the second.
            store_registry: Has no effect: stores are chosen by their URIs.
        """
        del store_registry
        index = _capacity("index_cache", index_cache_size_bytes, index_cache_backend)
        other = _capacity("metadata_cache", metadata_cache_size_bytes, metadata_cache_backend)
        self._bytes_max = None if other is None else other + (index or 0)
        self.meter = PROCESS_METER.scope()
        """Counts what the tables of the session ask of their stores."""

    def __repr__(self) -> str:
        """Show how much is kept."""
        return display.line("Session", size_bytes=self.size_bytes())

    def size_bytes(self) -> int:
        """Return how many bytes may be kept, at most as many as the session was to have.

        These are the bytes in the caches of the process, and all that tables of the session
        read, which maps of local files keep as long as there is room.
        """
        kept = CACHE.stats.bytes + self.meter.counts.read_bytes
        return kept if self._bytes_max is None else min(kept, self._bytes_max)

    def index_cache_size_bytes(self) -> int:
        """Return how many bytes are kept of indices alone: none, as they are kept by tables."""
        return 0

    def is_same_as(self, other: Session) -> bool:
        """Say whether this is the same session."""
        return self is other


def _capacity(name: str, size: int | None, backend: str | Mapping[str, Any] | None) -> int | None:
    """Return the most bytes of a cache, however a caller says it."""
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
