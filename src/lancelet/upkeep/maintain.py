"""Decide from statistics which maintenance a table needs, and run it within a budget.

    statistics                                   steps, with the default policy
    12 flushed tables in the write-ahead log     merge log
    v_idx: 80,000 of 200,000 rows unindexed      optimize index v_idx
    120 fragments of 1,000 rows                  compact: rewrite them as one
    310 versions older than 14 days              clean up

`plan_maintenance` is a pure function. Execution follows this order and plans again after each kind
of step: merged rows have to be indexed, and fragments that the same index covers can be compacted
together. Each step commits by itself: if the process ends between steps, the table is valid and the
next call continues. Steps retry conflicts with concurrent writers; a step that still conflicts is
reported and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, Protocol

import numpy as np

from lancelet import surroundings
from lancelet.errors import (
    CommitConflictError,
    CommitContentionError,
    InvalidInputError,
    UnsupportedError,
)
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.cleanup.policy import CleanupPolicy, ago
from lancelet.upkeep.cleanup.run import CleanupStats
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.indexing.optimize import OptimizeIndices
from lancelet.upkeep.table_statistics import (
    IndexCoverage,
    LogSize,
    RewriteCandidate,
    TableStatistics,
    read_statistics,
)
from lancelet.values import dataclass

_ROUND_BYTES: Final = 1 << 30
"""The bytes that a compaction rewrites between two checks of the time limit."""


_MINIMUMS: Final = {
    "target_rows_per_fragment": 1,
    "min_fragments": 2,
    "max_unindexed_rows": 0,
    "max_index_segments": 1,
    "max_log_tables": 0,
    "max_log_bytes": 0,
    "retain_versions": 1,
    "max_bytes": 0,
    "max_seconds": 0,
}
"""The smallest value of each number of a policy."""

_UNLIMITED: Final = {"target_rows_per_fragment", "max_bytes", "max_seconds"}
"""The numbers that may be None."""


class PolicyTypeError(InvalidInputError, TypeError):
    """A value of a policy has the wrong type."""


def _check_type(name: str, value: object, *types: type) -> None:
    if isinstance(value, bool) or not isinstance(value, types):
        expected = " or ".join(each.__name__ for each in types)
        raise PolicyTypeError(
            "a value of a policy has the wrong type",
            name=name,
            expected=expected,
            found=type(value).__name__,
        )


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """The thresholds and the budget of `LanceDataset.maintain`.

    Attributes:
        target_rows_per_fragment: The target of the compaction; by default the setting of the table
            or 1,048,576.
        min_fragments: Compact neighbouring small fragments if there are at least this many.
        max_deleted_share: Rewrite fragments with a larger share of deleted rows.
        max_unindexed_rows: Optimize an index with more unindexed rows.
        max_unindexed_share: Optimize an index with a larger share of unindexed rows.
        max_index_segments: Merge the segments of an index with more segments.
        max_log_tables: Merge the write-ahead log if it has more flushed tables.
        max_log_bytes: Merge the write-ahead log if its flushed tables are larger.
        older_than: Delete versions older than this; None to keep all versions.
        retain_versions: The number of newest versions to retain regardless of their age.
        clones: The URIs of shallow clones of the table, whose files are retained.
        max_bytes: The maximum number of bytes to read and rewrite; by default unlimited.
        max_seconds: No step starts after this time; by default unlimited.
    """

    target_rows_per_fragment: int | None = None
    min_fragments: int = 8
    max_deleted_share: float = 0.1
    max_unindexed_rows: int = 50_000
    max_unindexed_share: float = 0.05
    max_index_segments: int = 8
    max_log_tables: int = 4
    max_log_bytes: int = 64 << 20
    older_than: timedelta | None = timedelta(days=14)
    retain_versions: int = 1
    clones: tuple[str, ...] = ()
    max_bytes: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Raise for values out of range or of the wrong type."""
        clones: object = self.clones  # a string would be a sequence of characters
        if not isinstance(clones, tuple | list) or not all(isinstance(uri, str) for uri in clones):
            raise PolicyTypeError("clones must be a sequence of URIs", found=self.clones)
        if self.older_than is not None:
            _check_type("older_than", self.older_than, timedelta)
            if self.older_than < timedelta(0):
                raise InvalidInputError("older_than must not be negative", found=self.older_than)
        for name, minimum in _MINIMUMS.items():
            value = getattr(self, name)
            if value is None and name in _UNLIMITED:
                continue
            _check_type(name, value, *((int, float) if name == "max_seconds" else (int,)))
            if not value >= minimum:
                raise InvalidInputError(f"{name} must be at least {minimum}", found=value)
        for name in ("max_deleted_share", "max_unindexed_share"):
            share = getattr(self, name)
            _check_type(name, share, int, float)
            if not 0 <= share <= 1:
                raise InvalidInputError(f"{name} must be between 0 and 1", found=share)

    def compaction(self, snapshot: Snapshot) -> CompactionOptions:
        """Return the options of the compaction of a table."""
        arguments = {
            "target_rows_per_fragment": self.target_rows_per_fragment,
            "materialize_deletions_threshold": self.max_deleted_share,
        }
        return CompactionOptions.parse(arguments, snapshot.manifest.config)


class StepKind(StrEnum):
    """The kind of a step, in the order of execution."""

    MERGE_LOG = "merge log"
    OPTIMIZE_INDEX = "optimize index"
    COMPACT = "compact"
    CLEANUP = "clean up"


class Outcome(StrEnum):
    """What happened to a step."""

    PLANNED = "planned"
    DONE = "done"
    CONFLICT = "conflict"
    OUT_OF_TIME = "out of time"
    OVER_BUDGET = "over budget"
    UNSUPPORTED = "unsupported"


_NOT_STARTED: Final = frozenset({Outcome.OUT_OF_TIME, Outcome.OVER_BUDGET})
_PHASES: Final = (
    StepKind.MERGE_LOG,
    StepKind.OPTIMIZE_INDEX,
    StepKind.COMPACT,
    StepKind.OPTIMIZE_INDEX,  # indices that cannot be remapped lose the rewritten fragments
    StepKind.CLEANUP,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan.

    Attributes:
        kind: The kind.
        reason: The statistics that require the step.
        bytes: The estimated number of bytes to read.
        index: The index to optimize.
        merges: The number of index segments to merge, or None for the latest.
        candidates: The fragments to rewrite.
        is_within_budget: Whether the step fits into `max_bytes`.
    """

    kind: StepKind
    reason: str
    bytes: int = 0
    index: str = ""
    merges: int | None = None
    candidates: tuple[RewriteCandidate, ...] = ()
    is_within_budget: bool = True


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step with its outcome; `detail` describes the effect or the error."""

    step: Step
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Maintained:
    """The steps of a maintenance, with the statistics before and after it."""

    steps: tuple[StepResult, ...]
    before: TableStatistics
    after: TableStatistics
    seconds: float = 0.0


class Operations(Protocol):
    """The operations of a table; each works on the latest version and retries conflicts."""

    def latest(self) -> Snapshot:
        """Return the latest version."""

    def log_size(self, snapshot: Snapshot) -> LogSize:
        """Return the size of the unmerged part of the write-ahead log."""

    def merge_log(self) -> str:
        """Merge the flushed tables of the log, and describe the effect."""

    def compact(self, options: CompactionOptions) -> str:
        """Compact fragments, and describe the effect."""

    def optimize_indices(self, request: OptimizeIndices) -> str:
        """Optimize indices, and describe the effect."""

    def cleanup(self, policy: CleanupPolicy) -> CleanupStats:
        """Delete old versions."""


def plan_maintenance(statistics: TableStatistics, policy: MaintenancePolicy) -> tuple[Step, ...]:
    """Return the steps that the statistics require, in the order of execution.

    Steps are assigned to the budget of bytes in this order; those that do not fit have
    `is_within_budget=False`.

    >>> table = TableStatistics(3, 100, 0, 9, 9, 900, (RewriteCandidate((1, 2), 20, 9, 80),))
    >>> [(step.kind.value, step.bytes) for step in plan_maintenance(table, MaintenancePolicy())]
    [('compact', 80)]
    """
    remaining = policy.max_bytes
    steps = []
    for step in (
        *_log_steps(statistics.log, policy),
        *(step for index in statistics.indices for step in _index_steps(index, statistics, policy)),
        *_compaction_steps(statistics.candidates, policy),
        *_cleanup_steps(statistics),
    ):
        for part in _fit(step, remaining):
            steps.append(part)
            if remaining is not None and part.is_within_budget:
                remaining -= part.bytes
    return tuple(steps)


def _log_steps(log: LogSize, policy: MaintenancePolicy) -> Iterator[Step]:
    if log.tables > policy.max_log_tables or log.bytes > policy.max_log_bytes:
        reason = f"{log.tables:,} flushed tables with {log.rows:,} rows"
        yield Step(StepKind.MERGE_LOG, reason, log.bytes)


def _compaction_steps(
    candidates: Iterable[RewriteCandidate], policy: MaintenancePolicy
) -> Iterator[Step]:
    chosen = tuple(candidate for candidate in candidates if _is_worthwhile(candidate, policy))
    if chosen:
        yield _compaction(chosen)


def _is_worthwhile(candidate: RewriteCandidate, policy: MaintenancePolicy) -> bool:
    return (
        len(candidate.fragments) >= policy.min_fragments
        or candidate.deleted_rows > policy.max_deleted_share * candidate.rows
        or candidate.has_many_overlays
    )


def _compaction(chosen: Sequence[RewriteCandidate]) -> Step:
    fragments = sum(len(candidate.fragments) for candidate in chosen)
    rows = sum(candidate.rows for candidate in chosen)
    deleted = sum(candidate.deleted_rows for candidate in chosen)
    reason = f"{fragments:,} fragments, {rows:,} rows, {deleted:,} deleted"
    size = sum(candidate.bytes for candidate in chosen)
    return Step(StepKind.COMPACT, reason, size, candidates=tuple(chosen))


def _index_steps(
    index: IndexCoverage, statistics: TableStatistics, policy: MaintenancePolicy
) -> Iterator[Step]:
    missing = index.unindexed_rows
    total = missing + index.indexed_rows
    has_many = index.segments > policy.max_index_segments
    if not (
        has_many
        or missing > policy.max_unindexed_rows
        or missing > policy.max_unindexed_share * total
    ):
        return
    reason = f"{missing:,} of {total:,} rows unindexed, segments: {index.segments:,}"
    # A part of the columns is read; all columns are an upper bound.
    size = -(-missing * statistics.bytes // max(1, statistics.rows))
    merges = index.segments if has_many else None
    yield Step(StepKind.OPTIMIZE_INDEX, reason, size, index.name, merges)


def _cleanup_steps(statistics: TableStatistics) -> Iterator[Step]:
    if statistics.expired_versions:
        reason = f"{statistics.expired_versions:,} of {statistics.versions:,} versions expired"
        yield Step(StepKind.CLEANUP, reason)


def _fit(step: Step, remaining: int | None) -> Iterator[Step]:
    """Yield a step, or the parts of a compaction that fit and do not fit into the budget."""
    if remaining is None or step.bytes <= remaining:
        yield step
        return
    fitting: list[RewriteCandidate] = []
    others: list[RewriteCandidate] = []
    for candidate in step.candidates:
        fits = candidate.bytes <= remaining
        (fitting if fits else others).append(candidate)
        remaining -= candidate.bytes if fits else 0
    if fitting:
        yield _compaction(fitting)
    yield replace(_compaction(others) if others else step, is_within_budget=False)


def report_maintenance(operations: Operations, policy: MaintenancePolicy) -> Maintained:
    """Return the plan without running it."""
    statistics = _statistics(operations, policy)
    steps = tuple(
        StepResult(step, Outcome.PLANNED if step.is_within_budget else Outcome.OVER_BUDGET)
        for step in plan_maintenance(statistics, policy)
    )
    return Maintained(steps, statistics, statistics)


def maintain(operations: Operations, policy: MaintenancePolicy) -> Maintained:
    """Run the steps that a table requires.

    Steps are not interrupted: `max_seconds` is checked before each step, and after every GiB that a
    compaction rewrites.
    """
    run = _Run(operations, policy)
    before = statistics = _statistics(operations, policy)
    results: list[StepResult] = []
    for kind in _PHASES:
        done = [run.step(step) for step in run.planned(kind, statistics, results)]
        results += done
        if any(_may_have_changed(result) for result in done):
            statistics = _statistics(operations, policy)
    return Maintained(tuple(results), before, statistics, run.elapsed())


def _may_have_changed(result: StepResult) -> bool:
    return result.outcome is Outcome.DONE or bool(result.detail)


def _statistics(operations: Operations, policy: MaintenancePolicy) -> TableStatistics:
    snapshot = operations.latest()
    return read_statistics(
        snapshot,
        policy.compaction(snapshot),
        operations.log_size(snapshot),
        expires=ago(policy.older_than),
        retain_versions=policy.retain_versions,
    )


class _Run:
    """Runs steps until the time is over."""

    def __init__(self, operations: Operations, policy: MaintenancePolicy) -> None:
        self._operations = operations
        self._policy = policy
        self._begun = surroundings.monotonic()

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return surroundings.monotonic() - self._begun

    def planned(
        self, kind: StepKind, statistics: TableStatistics, results: Sequence[StepResult]
    ) -> list[Step]:
        """Return the steps of a kind that the rest of the budget permits.

        Indices that were not optimized before in this run are not tried again.
        """
        policy = self._policy
        if policy.max_bytes is not None:
            spent = sum(each.step.bytes for each in results if each.outcome not in _NOT_STARTED)
            policy = replace(policy, max_bytes=max(0, policy.max_bytes - spent))
        failed = {each.step.index for each in results if each.outcome is not Outcome.DONE} - {""}
        steps = plan_maintenance(statistics, policy)
        return [step for step in steps if step.kind is kind and step.index not in failed]

    def step(self, step: Step) -> StepResult:
        """Run a step."""
        if not step.is_within_budget:
            return StepResult(step, Outcome.OVER_BUDGET)
        if self._is_late():
            return StepResult(step, Outcome.OUT_OF_TIME)
        begun = self.elapsed()
        try:
            outcome, detail = self._work(step)
        except (CommitConflictError, CommitContentionError) as error:
            outcome, detail = Outcome.CONFLICT, error.message
        except UnsupportedError as error:
            if step.kind is not StepKind.OPTIMIZE_INDEX:
                raise
            outcome, detail = Outcome.UNSUPPORTED, error.message
        return StepResult(step, outcome, detail, self.elapsed() - begun)

    def _is_late(self) -> bool:
        limit = self._policy.max_seconds
        return limit is not None and self.elapsed() >= limit

    def _work(self, step: Step) -> tuple[Outcome, str]:
        match step.kind:
            case StepKind.MERGE_LOG:
                return Outcome.DONE, self._operations.merge_log()
            case StepKind.COMPACT:
                return self._compact(step.candidates)
            case StepKind.OPTIMIZE_INDEX:
                request = OptimizeIndices((step.index,), step.merges)
                return Outcome.DONE, self._operations.optimize_indices(request)
            case StepKind.CLEANUP:
                done = self._operations.cleanup(
                    CleanupPolicy(
                        before=ago(self._policy.older_than),
                        retain_versions=self._policy.retain_versions,
                        error_if_tagged_old_versions=False,
                        clones=self._policy.clones,
                    )
                )
                return (
                    Outcome.DONE,
                    f"deleted {done.old_versions:,} versions, {done.bytes_removed:,} bytes",
                )

    def _compact(self, candidates: Sequence[RewriteCandidate]) -> tuple[Outcome, str]:
        limit = None if self._policy.max_seconds is None else _ROUND_BYTES
        details: list[str] = []
        for round_ in split_rounds(candidates, limit):
            if details and self._is_late():
                return Outcome.OUT_OF_TIME, "; ".join(details)
            details.append(self._operations.compact(self._only(round_)))
        return Outcome.DONE, "; ".join(details)

    def _only(self, candidates: Iterable[RewriteCandidate]) -> CompactionOptions:
        """Return options that exclude all fragments except those of the candidates."""
        snapshot = self._operations.latest()
        chosen = [each for candidate in candidates for each in candidate.fragments]
        others = np.setdiff1d(snapshot.fragments.ids, chosen).tolist()
        options = self._policy.compaction(snapshot)
        excluded = {*options.excluded_fragment_ids, *others}
        return replace(options, excluded_fragment_ids=tuple(sorted(excluded)))


def split_rounds(
    candidates: Sequence[RewriteCandidate], limit: int | None
) -> Iterator[Sequence[RewriteCandidate]]:
    """Yield groups of at most `limit` bytes, each with at least one candidate.

    >>> sizes = [RewriteCandidate((number,), 1, 0, 40) for number in range(3)]
    >>> [len(group) for group in split_rounds(sizes, 100)]
    [2, 1]
    """
    if limit is None:
        yield candidates
        return
    group: list[RewriteCandidate] = []
    size = 0
    for candidate in candidates:
        if group and size + candidate.bytes > limit:
            yield group
            group, size = [], 0
        group.append(candidate)
        size += candidate.bytes
    if group:
        yield group
