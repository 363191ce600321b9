"""What is known of a file once somebody has opened it: shared by all who open it again.

Opening parses the tail of a file, its schema, the metadata of columns and the heads of pages.
None of it changes while the file stays as it is, so the second reader of a file finds the work
done:

    open a.lance   identity (device, inode, size, times) -> nothing kept: parse, keep
    open a.lance   the same identity                     -> what was kept
    a.lance is written again                             -> another identity: parse

What is kept says where things are and how they are encoded, and which blocks of the file were
compared with their checksums: while the file is the same, each block is compared once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field

from lancelet.encodings.base import Memo, StoredColumn
from lancelet.encodings.planned import PlannedColumns
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.selection import OpenedFields, Recent
from lancelet.file.v2.metadata import FileMetadata
from lancelet.format.schema import Field, Schema
from lancelet.io.cache import LruCache
from lancelet.io.metered import IoCounts
from lancelet.kernels import ColumnPlan
from lancelet.values import dataclass

_COLUMN_BYTES = 2048
"""What a column weighs besides its stored metadata, about."""


@dataclass(slots=True, eq=False)
class KnownPlans:
    """The plans of columns, some of which have none, and those that were used together of late."""

    each: dict[int, tuple[tuple[int, ...], ColumnPlan | None]] = field(default_factory=dict)
    """By column, with the form for which each was made."""
    recent: Recent[PlannedColumns] = field(default_factory=Recent)

    @property
    def memory_bytes(self) -> int:
        """How much memory the plans take by now."""
        return sum(plan.memory_bytes for _, plan in tuple(self.each.values()) if plan is not None)


@dataclass(slots=True, eq=False)
class KnownStatistics:
    """What the file keeps of fields per zone and per page, or None, and what reading that asked.

    Whoever changes a few rows opens the table anew, and looks where they can be.
    """

    zones: dict[Field, ZoneStatistics | None] = field(default_factory=dict)
    pages: dict[Field, PageStatistics | None] = field(default_factory=dict)
    reads: IoCounts = IoCounts()

    @property
    def memory_bytes(self) -> int:
        """How much memory they take by now."""
        found = (*tuple(self.zones.values()), *tuple(self.pages.values()))
        return sum(each.memory_bytes for each in found if each is not None)


@dataclass(frozen=True, slots=True, eq=False)
class KnownFile:
    """The metadata of a file and what was made of them: columns and fields fill as it is read.

    Threads may add to both at the same time: what they add under a key is the same.
    """

    metadata: FileMetadata
    schema: Schema
    placement: Mapping[int, int]
    memo: Memo | None
    columns: dict[int, StoredColumn] = field(default_factory=dict)
    opened: OpenedFields = field(default_factory=OpenedFields)
    plans: KnownPlans = field(default_factory=KnownPlans)
    statistics: KnownStatistics = field(default_factory=KnownStatistics)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, more with each field that is opened and each page read."""
        stored = self.metadata.tail.nbytes + _COLUMN_BYTES * len(self.metadata.columns)
        own = self.opened.memory_bytes + self.plans.memory_bytes + self.statistics.memory_bytes
        return 2 * stored + own


def find_known(cache: LruCache, key: Hashable | None) -> KnownFile | None:
    """Return what is kept under a key that begins with the identity of a file."""
    found = None if key is None else cache.get(key)
    return found if isinstance(found, KnownFile) else None


def keep_known(cache: LruCache, key: Hashable | None, known: KnownFile) -> None:
    """Keep what is known of a file, once its bytes were compared with their checksums."""
    if key is not None:
        cache.put(key, known, value_bytes=known.memory_bytes)
