"""A cache of file metadata, shared by all readers of a file.

Readers parse the tail of a file, its schema, column metadata and page headers. The parsed metadata
is cached by the identity of the file, which changes when the file is rewritten:

    open a.lance   identity (device, inode, size, times)  -> miss: parse and cache
    open a.lance   same identity                          -> hit
    a.lance is overwritten                                -> new identity: miss

The cache also contains the set of verified blocks, so each block is verified once while the file
does not change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field

from lancelet.encodings.base import HeaderCache, StoredColumn
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.selection import OpenFields
from lancelet.file.v2.metadata import FileMetadata
from lancelet.format.schema import Field, Schema
from lancelet.io.cache import LruCache
from lancelet.io.metered import IoCounts
from lancelet.kernels import ColumnPlan
from lancelet.values import dataclass

_COLUMN_BYTES = 2048
"""The approximate memory usage of a column, without its stored metadata."""


@dataclass(slots=True, eq=False)
class CachedStatistics:
    """Zone and page statistics by field (None if absent), and the reads to load them.

    Writers that change a few rows reopen the table and prune fragments by these statistics.
    """

    zones: dict[Field, ZoneStatistics | None] = field(default_factory=dict)
    pages: dict[Field, PageStatistics | None] = field(default_factory=dict)
    reads: IoCounts = IoCounts()

    @property
    def memory_bytes(self) -> int:
        """The memory usage in bytes."""
        statistics = (*tuple(self.zones.values()), *tuple(self.pages.values()))
        return sum(each.memory_bytes for each in statistics if each is not None)


@dataclass(frozen=True, slots=True, eq=False)
class CachedFile:
    """The metadata of a file, with caches of columns and fields that are filled by reads.

    Threads may add entries concurrently, because entries with the same key are equal.
    """

    metadata: FileMetadata
    schema: Schema
    placement: Mapping[int, int]
    header_cache: HeaderCache | None
    columns: dict[int, StoredColumn] = field(default_factory=dict)
    opened: OpenFields = field(default_factory=OpenFields)
    plans: dict[int, tuple[tuple[int, ...], ColumnPlan | None]] = field(default_factory=dict)
    """By column index: the layout of the plan, and the plan, or None if it is not supported."""
    statistics: CachedStatistics = field(default_factory=CachedStatistics)

    @property
    def memory_bytes(self) -> int:
        """The memory usage in bytes, which grows with open fields and read pages."""
        stored = self.metadata.tail.nbytes + _COLUMN_BYTES * len(self.metadata.columns)
        plans = [plan for _, plan in tuple(self.plans.values()) if plan is not None]
        derived = self.opened.memory_bytes + self.statistics.memory_bytes
        return 2 * stored + derived + sum(plan.memory_bytes for plan in plans)


def find_cached(cache: LruCache, key: Hashable | None) -> CachedFile | None:
    """Return the cached metadata of a key, or None."""
    cached = None if key is None else cache.get(key)
    return cached if isinstance(cached, CachedFile) else None


def put_cached(cache: LruCache, key: Hashable | None, cached: CachedFile) -> None:
    """Cache the metadata of a file with a verified tail."""
    if key is not None:
        cache.put(key, cached, value_bytes=cached.memory_bytes)
