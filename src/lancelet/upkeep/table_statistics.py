"""Statistics of a table that decide about maintenance, read from manifests and listings.

    fragments 120   deleted rows 4,000   unindexed rows 80,000 (v_idx)   expired versions 310

Data files are not read. The cost of a scan is estimated without a plan: one request for the
metadata and one per column of each data file, and one per deletion file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import datetime

from lancelet import surroundings
from lancelet.errors import ObjectNotFoundError
from lancelet.table.fragment_reuse import remapped_indices
from lancelet.table.manifests import ManifestEntry
from lancelet.table.refs import list_tags, main_location
from lancelet.table.snapshot import Snapshot, open_entry
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.compact.plan import CompactionTask, plan_compaction
from lancelet.upkeep.indexing.describe import compute_coverage
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class RewriteCandidate:
    """Fragments that a compaction would rewrite together.

    Attributes:
        fragments: The ids of the fragments.
        rows: Their number of rows, including deleted ones.
        deleted_rows: Their number of deleted rows.
        bytes: The size of their data files.
        has_many_overlays: Whether one has more overlays than the compaction options permit.
    """

    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    deleted_rows: int
    bytes: int
    has_many_overlays: bool = False


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """The coverage of an index."""

    name: str
    segments: int
    indexed_rows: int
    unindexed_rows: int


@dataclass(frozen=True, slots=True)
class LogSize:
    """The flushed tables of the write-ahead log that are not merged into the table."""

    tables: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """The state of the latest version of a table.

    Attributes:
        version: The number of the version.
        rows: The number of live rows.
        deleted_rows: The number of deleted rows that files still contain.
        fragments: The number of fragments.
        files: The number of data and deletion files.
        bytes: The size of the data files.
        candidates: The fragments that a compaction would rewrite.
        indices: The coverage of the indices.
        versions: The number of versions.
        oldest_age_seconds: The age of the oldest version.
        expired_versions: The number of versions that a cleanup would delete.
        log: The unmerged part of the write-ahead log.
        scan_requests: The estimated number of requests of a scan of all columns.
    """

    version: int
    rows: int
    deleted_rows: int
    fragments: int
    files: int
    bytes: int
    candidates: tuple[RewriteCandidate, ...] = ()
    indices: tuple[IndexCoverage, ...] = ()
    versions: int = 1
    oldest_age_seconds: float = 0.0
    expired_versions: int = 0
    log: LogSize = LogSize()
    scan_requests: int = 0

    @property
    def unindexed_rows(self) -> int:
        """The number of unindexed rows of the index with the most, which searches compare."""
        return max((index.unindexed_rows for index in self.indices), default=0)


def read_statistics(
    snapshot: Snapshot,
    compaction: CompactionOptions,
    log: LogSize,
    *,
    expires: datetime | None,
    retain_versions: int,
) -> TableStatistics:
    """Return the statistics of a version.

    Versions committed before `expires` count as expired, except for the newest `retain_versions`
    and tagged ones.
    """
    fragments = snapshot.fragments
    files = [file for fragment in fragments for file in fragment.files]
    deletion_files = int(fragments.has_deletion_file.sum())
    entries = snapshot.location.handler.list_versions(snapshot.location.store)
    oldest = _committed_at(snapshot, entries[0]) if entries else None
    age = 0.0 if oldest is None else (surroundings.now() - oldest).total_seconds()
    return TableStatistics(
        version=snapshot.version,
        rows=snapshot.num_rows,
        deleted_rows=int(snapshot.deleted_by_fragment.sum()),
        fragments=len(fragments),
        files=len(files) + deletion_files,
        bytes=sum(fragment.data_bytes for fragment in fragments),
        candidates=tuple(
            _candidate(task, compaction) for task in plan_compaction(snapshot, compaction).tasks
        ),
        indices=_coverages(snapshot),
        versions=len(entries),
        oldest_age_seconds=max(0.0, age),
        expired_versions=_count_expired(snapshot, entries, expires, max(1, retain_versions)),
        log=log,
        scan_requests=sum(1 + len(file.fields) for file in files) + deletion_files,
    )


def _candidate(task: CompactionTask, options: CompactionOptions) -> RewriteCandidate:
    return RewriteCandidate(
        tuple(int(fragment.id) for fragment in task.fragments),
        sum(fragment.physical_rows for fragment in task.fragments),
        sum(fragment.num_deleted_rows for fragment in task.fragments),
        task.num_bytes,
        any(
            len(fragment.overlays) > options.max_overlays_per_fragment
            for fragment in task.fragments
        ),
    )


def _coverages(snapshot: Snapshot) -> tuple[IndexCoverage, ...]:
    """Return the coverage of each index whose column still exists."""
    fields = snapshot.schema.by_id
    segments = [
        segment
        for segment in remapped_indices(snapshot)
        if not segment.is_system and not segment.missing_fields(fields)
    ]
    found = []
    for name in dict.fromkeys(segment.name for segment in segments):
        own = [segment for segment in segments if segment.name == name]
        coverage = compute_coverage(snapshot, own)
        found.append(IndexCoverage(name, len(own), coverage.indexed_rows, coverage.unindexed_rows))
    return tuple(found)


def _count_expired(
    snapshot: Snapshot,
    entries: Sequence[ManifestEntry],
    expires: datetime | None,
    retain_versions: int,
) -> int:
    """Count the versions that a cleanup would delete; opens a logarithmic number of manifests."""
    if expires is None:
        return 0
    low, high = 0, max(0, len(entries) - retain_versions)
    while low < high:
        middle = (low + high) // 2
        moment = _committed_at(snapshot, entries[middle])
        if moment is None or moment < expires:
            low = middle + 1
        else:
            high = middle
    expired = {entry.version for entry in entries[:low]}
    tags = list_tags(main_location(snapshot)).values() if expired else ()
    branch = snapshot.manifest.branch
    return len(expired - {tag.version for tag in tags if tag.branch == branch})


def _committed_at(snapshot: Snapshot, entry: ManifestEntry) -> datetime | None:
    """Return the time of a version, or None if a cleanup deleted it since the listing."""
    try:
        return open_entry(snapshot.location, entry).manifest.timestamp
    except ObjectNotFoundError:
        return None
