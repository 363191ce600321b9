"""Plan a compaction as independent tasks of fragments that are rewritten together.

    rows        10  10  100  10  10(9 deleted)  200(90 deleted)      target 50
    candidate   n   n   -    n   self           self
    bins        [10 10]      [10 10 200]
    tasks       [10 10]      [10 10 200]

Fragments with few rows are rewritten with their neighbours (n), those with many deleted rows also
alone (self). Fragments share a task only if the same indices cover them, since indices cover whole
fragments. A bin with rows for several new fragments is split into tasks that each have enough rows
for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np

from lancelet.errors import VersionNotFoundError
from lancelet.format.fragment import Fragment
from lancelet.format.fragment_json import fragment_from_json, fragment_to_json
from lancelet.format.index_metadata import IndexMetadata
from lancelet.table.conflict.rebase import file_layout
from lancelet.table.overlays import overlaid_since
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Fragments of a version to rewrite together."""

    fragments: tuple[Fragment, ...]
    read_version: int
    options: CompactionOptions

    @property
    def num_rows(self) -> int:
        """The number of live rows in the fragments."""
        return sum(fragment.num_rows for fragment in self.fragments)

    @property
    def num_bytes(self) -> int:
        """The bytes of the data files of the fragments."""
        return sum(fragment.data_bytes for fragment in self.fragments)

    def to_json(self) -> dict[str, Any]:
        """Return the task as JSON values."""
        return {
            "task": {"fragments": list(map(fragment_to_json, self.fragments))},
            "read_version": self.read_version,
            "options": self.options.to_json(),
        }

    @staticmethod
    def from_json(form: dict[str, Any]) -> CompactionTask:
        """Parse a task from JSON values."""
        return CompactionTask(
            tuple(map(fragment_from_json, form["task"]["fragments"])),
            form["read_version"],
            CompactionOptions.from_json(form["options"]),
        )


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The tasks of a compaction, which are independent of each other."""

    tasks: tuple[CompactionTask, ...]
    read_version: int
    options: CompactionOptions

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "tasks": [task.to_json()["task"] for task in self.tasks],
            "read_version": self.read_version,
            "options": self.options.to_json(),
        }

    @staticmethod
    def from_json(form: dict[str, Any]) -> CompactionPlan:
        """Parse a plan from JSON values."""
        shared = {"read_version": form["read_version"], "options": form["options"]}
        tasks = [CompactionTask.from_json({"task": task, **shared}) for task in form["tasks"]]
        options = CompactionOptions.from_json(form["options"])
        return CompactionPlan(tuple(tasks), form["read_version"], options)


def open_planned_version(
    snapshot: Snapshot, read_version: int, fragments: Iterable[Fragment]
) -> Snapshot:
    """Return the version that a compaction was planned for, after checking its fragments.

    Raises:
        VersionNotFoundError: The version was removed, or the table was deleted and created again.
    """
    read = snapshot
    if snapshot.version != read_version:
        read = open_snapshot(snapshot.location, read_version)
    existing = set(read.fragments.ids.tolist())
    for fragment in fragments:
        current = read.fragments.by_id(fragment.id) if int(fragment.id) in existing else None
        if current is None or file_layout(current) != file_layout(fragment):
            raise VersionNotFoundError(
                "a fragment of the compaction plan does not exist in this version, because the "
                "table was deleted and created again; plan the compaction again",
                uri=read.location.uri,
                version=read_version,
                fragment_id=int(fragment.id),
            )
    return read


class _Candidacy(Enum):
    UNCHANGED = 0
    WITH_NEIGHBOURS = 1
    ALONE = 2


@dataclass(frozen=True, slots=True)
class _Candidate:
    fragment: Fragment
    candidacy: _Candidacy
    covered_by: frozenset[int]


def plan_compaction(snapshot: Snapshot, options: CompactionOptions) -> CompactionPlan:
    """Plan the compaction of a version; reads only the manifest if it has all row counts."""
    tasks = (
        CompactionTask(fragments, snapshot.version, options)
        for bin_ in _bins(_candidates(snapshot, options))
        for fragments in _split(bin_, options.target_rows_per_fragment)
    )
    return CompactionPlan(tuple(_limit_tasks(tasks, options)), snapshot.version, options)


def _candidates(snapshot: Snapshot, options: CompactionOptions) -> Iterator[_Candidate]:
    segments = [index for index in snapshot.indices.indices if not index.is_system]
    excluded = set(options.excluded_fragment_ids)
    fragments = snapshot.fragments
    is_small = (fragments.physical_rows < options.target_rows_per_fragment) | (
        fragments.physical_rows == 0
    )
    may_change = is_small | fragments.has_deletion_file | fragments.has_overlays
    # Outdated index entries must not be remapped as if they were current.
    for index in segments if fragments.has_overlays.any() else ():
        excluded |= overlaid_since(snapshot, index)
    for index_position in np.flatnonzero(may_change | np.roll(may_change, 1)).tolist():
        fragment = with_row_counts(snapshot, fragments[index_position])
        is_unchanged = fragment.id in excluded or not may_change[index_position]
        candidacy = _Candidacy.UNCHANGED if is_unchanged else _candidacy(fragment, options)
        yield _Candidate(fragment, candidacy, _covering(segments, fragment))


def with_row_counts(snapshot: Snapshot, fragment: Fragment) -> Fragment:
    """Return a fragment with its row counts, which the manifests of old tables lack."""
    deletion = fragment.deletion_file
    if deletion is not None and not deletion.num_deleted_rows:
        deletion = replace(deletion, num_deleted_rows=len(snapshot.deletions(fragment)))
    if fragment.physical_rows and deletion is fragment.deletion_file:
        return fragment
    rows = snapshot.physical_rows(fragment)
    return replace(fragment, physical_rows=rows, deletion_file=deletion)


def _candidacy(fragment: Fragment, options: CompactionOptions) -> _Candidacy:
    threshold = options.materialize_deletions_threshold
    may_drop = options.materialize_deletions and threshold < 1
    if may_drop and fragment.num_deleted_rows > threshold * fragment.physical_rows:
        return _Candidacy.ALONE
    if len(fragment.overlays) > options.max_overlays_per_fragment:
        return _Candidacy.ALONE
    if fragment.physical_rows < options.target_rows_per_fragment:
        return _Candidacy.WITH_NEIGHBOURS
    return _Candidacy.UNCHANGED


def _covering(segments: Iterable[IndexMetadata], fragment: Fragment) -> frozenset[int]:
    """Return the positions of the segments that may cover a fragment; without a bitmap, any may."""
    return frozenset(
        position
        for position, index in enumerate(segments)
        if index.fragment_bitmap is None or fragment.id in index.fragment_bitmap
    )


def _bins(candidates: Iterable[_Candidate]) -> Iterator[list[_Candidate]]:
    """Yield runs of neighbouring fragments that can be rewritten together."""
    current: list[_Candidate] = []
    for candidate in candidates:
        is_unchanged = candidate.candidacy is _Candidacy.UNCHANGED
        if current and (is_unchanged or candidate.covered_by != current[0].covered_by):
            if _changes_something(current):
                yield current
            current = []
        if not is_unchanged:
            current.append(candidate)
    if _changes_something(current):
        yield current


def _changes_something(candidates: list[_Candidate]) -> bool:
    if len(candidates) == 1:
        return candidates[0].candidacy is _Candidacy.ALONE
    return bool(candidates)


def _split(candidates: list[_Candidate], target_rows: int) -> Iterator[tuple[Fragment, ...]]:
    """Split a bin into parts with at least `target_rows` live rows each."""
    rest = sum(candidate.fragment.num_rows for candidate in candidates)
    part: list[Fragment] = []
    rows = 0
    for candidate in candidates:
        part.append(candidate.fragment)
        rows += candidate.fragment.num_rows
        rest -= candidate.fragment.num_rows
        if rows >= target_rows and rest >= target_rows:
            yield tuple(part)
            part, rows = [], 0
    if part:
        yield tuple(part)


def _limit_tasks(
    tasks: Iterable[CompactionTask], options: CompactionOptions
) -> Iterator[CompactionTask]:
    """Yield the leading tasks that stay within the limits."""
    fragments = rows = size = 0
    for task in tasks:
        fragments += len(task.fragments)
        rows += task.num_rows
        size += task.num_bytes
        if _exceeds(fragments, options.max_source_fragments):
            return
        if _exceeds(rows, options.max_source_rows) or _exceeds(size, options.max_source_bytes):
            return
        yield task


def _exceeds(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit
