"""Committing what tasks made, whatever others did to the same fragments meanwhile.

    read 7     fragments 1, 2 are rewritten to a new one, and 3, 4 to another
    8          others delete a row of fragment 1 and rewrite a column of 3
    9          ids are reserved: the new fragments are 12 and 13
    10         1, 2 replaced by 12, in which that row is deleted; 3, 4 are left for the next round

So a compaction makes progress while a table changes: deleted and moved rows are followed, and
what cannot be saved does not hold up the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lancelet.errors import CommitConflictError
from lancelet.format.fragment import Fragment, FragmentId
from lancelet.format.operation import ReserveFragments, Rewrite, RewriteGroup
from lancelet.ops.compact.options import CompactionOptions
from lancelet.ops.compact.plan import planned_version
from lancelet.ops.compact.remap import change_indices, check_deferrable
from lancelet.ops.compact.rewrite import CompactionMetrics, RewriteResult, discard_fragments
from lancelet.ops.publish import commit_transaction, new_transaction
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Compacted:
    """The version after a compaction, what it replaced, and what others had changed too much."""

    snapshot: Snapshot
    metrics: CompactionMetrics
    left_out: tuple[RewriteResult, ...] = ()


def commit_results(
    snapshot: Snapshot,
    results: Sequence[RewriteResult],
    options: CompactionOptions,
    committing: CommitOptions | None = None,
) -> Compacted:
    """Put what tasks made in place of what they read, in one version.

    Raises:
        CommitConflictError: Others changed the fragments of some result in a way that cannot be
            followed; nothing was committed.
    """
    if not results:
        return Compacted(snapshot, CompactionMetrics())
    check_deferrable(snapshot, options)
    read = _as_read(snapshot, results)
    groups = numbered_groups(results, _reserved(read, results))
    indices = change_indices(read, groups, options)
    metrics = sum((result.metrics for result in results), CompactionMetrics())
    rewrite = Rewrite(groups, indices.rewritten, indices.moves)
    wanted = replace(
        committing or CommitOptions(), preserves_order=True, snapshot=read, checks_files=True
    )
    transaction = new_transaction(read.version, rewrite)
    published = commit_transaction(snapshot.location, transaction, wanted)
    return Compacted(published, metrics)


def commit_what_fits(
    snapshot: Snapshot,
    results: Sequence[RewriteResult],
    options: CompactionOptions,
    committing: CommitOptions | None = None,
) -> Compacted:
    """Commit as `commit_results` does, but for results in conflict, whose files are deleted."""
    left_out: list[RewriteResult] = []
    while True:
        try:
            done = commit_results(snapshot, results, options, committing)
        except CommitConflictError as error:
            disputed = _disputed(error, results)
            left_out += disputed
            results = [result for result in results if result not in disputed]
            discard(snapshot, disputed)
            if not results:
                raise
        else:
            return replace(done, left_out=tuple(left_out))


def discard(snapshot: Snapshot, results: Iterable[RewriteResult]) -> None:
    """Delete the files of results that were not committed and will not be."""
    for result in results:
        discard_fragments(snapshot, result.new_fragments)


def _disputed(error: CommitConflictError, results: Sequence[RewriteResult]) -> list[RewriteResult]:
    """Return the results that a conflict is about: all, if it does not say or none can win."""
    fragments = error.facts.get("fragments")
    if not error.retryable or not isinstance(fragments, list):
        return list(results)
    found = [
        result
        for result in results
        if not {fragment.id for fragment in result.original_fragments}.isdisjoint(fragments)
    ]
    return found or list(results)


def _as_read(snapshot: Snapshot, results: Sequence[RewriteResult]) -> Snapshot:
    """Return the oldest version that results were computed from."""
    fragments: dict[int, list[Fragment]] = {}
    for result in results:
        fragments.setdefault(result.read_version, []).extend(result.original_fragments)
    oldest, *others = sorted(fragments)
    for version in others:
        planned_version(snapshot, version, fragments[version])
    return planned_version(snapshot, oldest, fragments[oldest])


def _reserved(snapshot: Snapshot, results: Sequence[RewriteResult]) -> int:
    """Return the first of as many ids as there are new fragments, which nobody else will give."""
    count = sum(len(result.new_fragments) for result in results)
    if not count:
        return 0
    reserving = new_transaction(snapshot.version, ReserveFragments(count))
    options = CommitOptions(snapshot=snapshot)
    reserved = commit(snapshot.location, reserving, options).manifest.max_fragment_id
    assert reserved is not None
    return reserved - count + 1


def numbered_groups(results: Sequence[RewriteResult], following: int) -> tuple[RewriteGroup, ...]:
    """Return the groups, whose new fragments have ids from one on."""
    groups = []
    for result in results:
        new: list[Fragment] = []
        for fragment in result.new_fragments:
            new.append(replace(fragment, id=FragmentId(following)))
            following += 1
        groups.append(RewriteGroup(result.original_fragments, tuple(new)))
    return tuple(groups)
