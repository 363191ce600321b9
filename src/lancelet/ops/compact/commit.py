"""Committing what tasks made, whatever others did to the same fragments meanwhile.

    read 7     fragments 1, 2 are rewritten to a new one
    8          others delete a row of fragment 1
    9          ids are reserved: the new fragment is 12
    10         1, 2 replaced by 12, in which that row is deleted

Results that cannot be saved (others rewrote the same fragments, or a column of them) are left
out, and the others committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lancelet.format.fragment import Fragment, FragmentId
from lancelet.format.operation import ReserveFragments, Rewrite, RewriteGroup
from lancelet.ops.compact.options import CompactionOptions
from lancelet.ops.compact.rewrite import CompactionMetrics, RewriteResult
from lancelet.ops.publish import new_transaction
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Compacted:
    """The version after a compaction, and what it replaced."""

    snapshot: Snapshot
    metrics: CompactionMetrics


def commit_results(
    snapshot: Snapshot,
    results: Sequence[RewriteResult],
    options: CompactionOptions,
    committing: CommitOptions | None = None,
) -> Compacted:
    """Put what tasks made in place of what they read, in one version.

    Raises:
        CommitConflictError: Others changed the same fragments in a way that cannot be followed.
    """
    if not results:
        return Compacted(snapshot, CompactionMetrics())
    groups = _numbered(snapshot, results)
    metrics = sum((result.metrics for result in results), CompactionMetrics())
    read_version = min(result.read_version for result in results)
    transaction = new_transaction(read_version, Rewrite(groups))
    wanted = replace(committing or CommitOptions(), keeps_order=True)
    return Compacted(commit(snapshot.location, transaction, wanted), metrics)


def _numbered(snapshot: Snapshot, results: Sequence[RewriteResult]) -> tuple[RewriteGroup, ...]:
    """Return the groups with ids that nobody else will give to a fragment."""
    count = sum(len(result.new_fragments) for result in results)
    following = 0
    if count:
        reserving = new_transaction(snapshot.version, ReserveFragments(count))
        reserved = commit(snapshot.location, reserving).manifest.max_fragment_id
        assert reserved is not None
        following = reserved - count + 1
    groups = []
    for result in results:
        new: list[Fragment] = []
        for fragment in result.new_fragments:
            new.append(replace(fragment, id=FragmentId(following)))
            following += 1
        groups.append(RewriteGroup(result.original_fragments, tuple(new)))
    return tuple(groups)
