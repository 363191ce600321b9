"""Commit the results of compaction tasks, rebased on concurrent changes.

    read 7     fragments 1, 2 are rewritten to a new one, and 3, 4 to another
    8          other writers delete a row of fragment 1 and rewrite a column of 3
    9          ids are reserved: the new fragments are 12 and 13
    10         1, 2 are replaced by 12, in which that row is deleted; 3, 4 are retried

Concurrent deletions and row moves are applied to the new fragments. Results with other conflicts
are skipped, so that they do not block the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lancelet.change.publish import commit_transaction, new_transaction
from lancelet.errors import CommitConflictError
from lancelet.format.fragment import Fragment, FragmentId
from lancelet.format.operation import ReserveFragments, Rewrite, RewriteGroup
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.options import CompactionOptions
from lancelet.upkeep.compact.plan import open_planned_version
from lancelet.upkeep.compact.remap import change_indices, check_deferrable
from lancelet.upkeep.compact.rewrite import CompactionMetrics, RewriteResult, discard_fragments
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Compacted:
    """The version after a compaction, its metrics, and the results skipped because of conflicts."""

    snapshot: Snapshot
    metrics: CompactionMetrics
    left_out: tuple[RewriteResult, ...] = ()


def commit_results(
    snapshot: Snapshot,
    results: Sequence[RewriteResult],
    options: CompactionOptions,
    committing: CommitOptions | None = None,
) -> Compacted:
    """Replace the fragments of all results in one version.

    Raises:
        CommitConflictError: The fragments of some result have changes that cannot be rebased;
            nothing was committed.
    """
    if not results:
        return Compacted(snapshot, CompactionMetrics())
    check_deferrable(snapshot, options)
    read = _open_read_version(snapshot, results)
    groups = number_groups(results, _reserve_ids(read, results))
    indices = change_indices(read, groups, options)
    metrics = sum((result.metrics for result in results), CompactionMetrics())
    rewrite = Rewrite(groups, indices.rewritten, indices.moves)
    rewrite_options = replace(
        committing or CommitOptions(), preserves_order=True, snapshot=read, checks_files=True
    )
    transaction = new_transaction(read.version, rewrite)
    published = commit_transaction(snapshot.location, transaction, rewrite_options)
    return Compacted(published, metrics)


def commit_compatible(
    snapshot: Snapshot,
    results: Sequence[RewriteResult],
    options: CompactionOptions,
    committing: CommitOptions | None = None,
) -> Compacted:
    """Commit like `commit_results`, but skip results with conflicts and delete their files."""
    left_out: list[RewriteResult] = []
    while True:
        try:
            done = commit_results(snapshot, results, options, committing)
        except CommitConflictError as error:
            conflicting = _conflicting(error, results)
            left_out += conflicting
            results = [result for result in results if result not in conflicting]
            discard(snapshot, conflicting)
            if not results:
                raise
        else:
            return replace(done, left_out=tuple(left_out))


def discard(snapshot: Snapshot, results: Iterable[RewriteResult]) -> None:
    """Delete the files of uncommitted results."""
    for result in results:
        discard_fragments(snapshot, result.new_fragments)


def _conflicting(
    error: CommitConflictError, results: Sequence[RewriteResult]
) -> list[RewriteResult]:
    """Return the conflicting results; all of them if the error does not list fragments."""
    fragments = error.facts.get("fragments")
    if not error.retryable or not isinstance(fragments, list):
        return list(results)
    conflicting = [
        result
        for result in results
        if not {fragment.id for fragment in result.original_fragments}.isdisjoint(fragments)
    ]
    return conflicting or list(results)


def _open_read_version(snapshot: Snapshot, results: Sequence[RewriteResult]) -> Snapshot:
    """Return the oldest version that results are based on."""
    fragments: dict[int, list[Fragment]] = {}
    for result in results:
        fragments.setdefault(result.read_version, []).extend(result.original_fragments)
    oldest, *others = sorted(fragments)
    for version in others:
        open_planned_version(snapshot, version, fragments[version])
    return open_planned_version(snapshot, oldest, fragments[oldest])


def _reserve_ids(snapshot: Snapshot, results: Sequence[RewriteResult]) -> int:
    """Reserve ids for all new fragments, and return the first."""
    count = sum(len(result.new_fragments) for result in results)
    if not count:
        return 0
    transaction = new_transaction(snapshot.version, ReserveFragments(count))
    options = CommitOptions(snapshot=snapshot)
    reserved = commit(snapshot.location, transaction, options).manifest.max_fragment_id
    assert reserved is not None
    return reserved - count + 1


def number_groups(results: Sequence[RewriteResult], next_id: int) -> tuple[RewriteGroup, ...]:
    """Return the rewrite groups, with consecutive ids for new fragments."""
    groups = []
    for result in results:
        new: list[Fragment] = []
        for fragment in result.new_fragments:
            new.append(replace(fragment, id=FragmentId(next_id)))
            next_id += 1
        groups.append(RewriteGroup(result.original_fragments, tuple(new)))
    return tuple(groups)
