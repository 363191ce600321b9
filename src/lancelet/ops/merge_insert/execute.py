"""Merging rows into a table and committing the result.

source read once -> matched -> decided -> rows written -> committed
^ again from here, over the latest version, where others were first
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lancelet.format.operation import Update, UpdateMode
from lancelet.ops.delete import write_deletions
from lancelet.ops.dry_run import ChangeReport, Rehearsal
from lancelet.ops.merge_insert.decide import Decision, decide
from lancelet.ops.merge_insert.join import join
from lancelet.ops.merge_insert.key_bytes import Bools
from lancelet.ops.merge_insert.key_filters import InsertedKeys
from lancelet.ops.merge_insert.new_rows import inserted_rows, updated_rows
from lancelet.ops.merge_insert.prepared_source import Source, prepared, refitted
from lancelet.ops.merge_insert.rewrite_columns import check_columns_mode, rewrite_columns
from lancelet.ops.merge_insert.spec import MergeSpec, MergeStatistics, RewriteMode
from lancelet.ops.moved_rows import (
    changed_rows,
    joined_rows,
    rows_by_fragment,
    with_moved_ids,
    write_rows,
)
from lancelet.ops.progress import report
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.ops.rows import RowStream
from lancelet.rowids.address import UInt64s
from lancelet.table.apply.mem_wal import check_generations
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.conflict.resolve import KeysAreNew
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """The version after a merge, and what it did."""

    snapshot: Snapshot
    statistics: MergeStatistics


@dataclass(frozen=True, slots=True, eq=False)
class PreparedMerge:
    """Files that were written, and the operation that makes them part of the table."""

    operation: Update
    affected: AffectedRows | None
    statistics: MergeStatistics
    keys_are_new: KeysAreNew | None = None


def merge_rows(
    snapshot: Snapshot,
    stream: RowStream,
    spec: MergeSpec,
    *,
    retries: Retries | None = None,
    options: CommitOptions | None = None,
) -> Merged:
    """Merge rows into the latest version there is then."""
    spec.check()
    attempts = 0
    with prepared(snapshot.schema, stream, spec) as source:

        def attempt(current: Snapshot) -> Merged:
            nonlocal attempts
            attempts += 1
            lazy = current.lazily()
            is_as_read = current.schema.fields == snapshot.schema.fields
            fitting = source if is_as_read else refitted(source, current.schema, spec)
            done = prepare_merge(lazy, fitting, spec)
            committing = replace(
                options or CommitOptions(),
                affected=done.affected,
                keys_are_new=done.keys_are_new,
                settle=lazy.location.store.settle,
            )
            published = publish(current, done.operation, committing)
            return Merged(published, replace(done.statistics, num_attempts=attempts))

        return with_retries(snapshot, attempt, retries or Retries())


def merge_uncommitted(snapshot: Snapshot, stream: RowStream, spec: MergeSpec) -> PreparedMerge:
    """Write what a merge changes and leave the commit to the caller."""
    spec.check()
    with prepared(snapshot.schema, stream, spec) as source:
        return prepare_merge(snapshot, source, spec)


def report_merge(snapshot: Snapshot, stream: RowStream, spec: MergeSpec) -> ChangeReport:
    """Return what a merge would do."""
    rehearsal = Rehearsal.of(snapshot)
    done = merge_uncommitted(rehearsal.snapshot, stream, spec)
    did = done.statistics
    rows = did.num_inserted_rows + did.num_updated_rows + did.num_deleted_rows
    return rehearsal.report(done.operation, rows)


def prepare_merge(snapshot: Snapshot, source: Source, spec: MergeSpec) -> PreparedMerge:
    """Write what a merge changes and return what is left to be committed."""
    check_generations(snapshot.indices.indices, spec.compacted)
    check_generations(snapshot.indices.indices, spec.unmerged)
    in_place = spec.mode is RewriteMode.COLUMNS
    if in_place:
        check_columns_mode(spec, source, snapshot.schema)
    report("match keys", 0, 1)
    joined = join(snapshot, source.key, source.keys, source.steps, uses_index=spec.uses_index)
    decision = decide(snapshot, source, spec, joined)
    report("match keys", 1, 1)
    if in_place:
        operation, did = rewrite_columns(snapshot, source, decision.updates)
        # Without the rows that it affects, any other change to its fragments is a conflict.
        did = replace(did, num_skipped_duplicates=decision.num_skipped)
        operation = replace(operation, compacted_sstables=spec.compacted)
        return PreparedMerge(operation, None, did)
    return _rewrite_rows(snapshot, source, spec, decision)


def _rewrite_rows(
    snapshot: Snapshot, source: Source, spec: MergeSpec, decision: Decision
) -> PreparedMerge:
    inserted = InsertedKeys(source.key)
    moved: list[UInt64s] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for batch, addresses in updated_rows(snapshot, source, decision.updates):
            moved.append(addresses)
            yield batch
        for batch, brought in inserted_rows(snapshot, source, decision.inserted):
            inserted.add(brought)
            yield batch

    fragments = write_rows(snapshot, rows(), spec.files)
    addresses = np.concatenate([np.empty(0, np.uint64), *moved])
    affected = joined_rows(decision.deleted, rows_by_fragment(addresses))
    removal = write_deletions(snapshot, affected)
    operation = Update(
        removed_fragment_ids=removal.removed,
        updated_fragments=removal.updated,
        new_fragments=with_moved_ids(snapshot, fragments, addresses),
        fields_for_preserving_bitmap=tuple(int(node.id) for node in source.part.walk()),
        mode=UpdateMode.REWRITE_ROWS,
        inserted_rows=inserted.filter(),
        compacted_sstables=spec.compacted,
    )
    files = [file for fragment in fragments for file in fragment.files]
    statistics = MergeStatistics(
        num_inserted_rows=int(np.count_nonzero(decision.inserted)),
        num_updated_rows=len(addresses),
        num_deleted_rows=changed_rows(decision.deleted),
        num_skipped_duplicates=decision.num_skipped,
        bytes_written=sum(file.size_bytes or 0 for file in files),
        num_files_written=len(files),
    )
    return PreparedMerge(
        operation, affected, statistics, _keys_are_new(snapshot, source, decision.inserted)
    )


def _keys_are_new(snapshot: Snapshot, source: Source, inserted: Bools) -> KeysAreNew:
    """Return a check that rows which others added have none of the keys that were inserted.

    Filters of keys may be wrong about that, and appends have none. Looking costs the key columns
    of the new fragments, doing the merge again would cost everything.
    """
    known = set(snapshot.fragments.ids.tolist())

    def check(theirs: Snapshot) -> bool:
        added = tuple(number for number in theirs.fragments.ids.tolist() if number not in known)
        known.update(added)
        joined = join(theirs, source.key, source.keys, source.steps, added)
        return not inserted[joined.matches.rows].any()

    return check
