"""Deleting and updating rows in tasks, each for some fragments of the version, and one commit.

    plan     parts of the version
    tasks    delete   deletion files for the rows that match
             update   the rows that match, written anew, and deletion files for the old ones
    commit   one operation; where others changed the same rows first, all of it again

A task that is tried again leaves files behind that cleaning up finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial

from lancelet.format.fragment import Fragment
from lancelet.format.operation import Delete, Operation, Update
from lancelet.ops.delete import find_rows, write_deletions
from lancelet.ops.jobs.engine import Done, Job
from lancelet.ops.jobs.part import Part, plan_parts
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.moved_rows import RowFiles, changed_rows, joined_rows
from lancelet.ops.publish import Remarks, Retries, publish, with_retries
from lancelet.ops.update import prepare_update
from lancelet.query import expression as ex
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Changes:
    """What a task did to its part: fragments that changed, went and came, and rows by fragment."""

    updated: tuple[Fragment, ...] = ()
    removed: tuple[int, ...] = ()
    new: tuple[Fragment, ...] = ()
    fields: tuple[int, ...] = ()
    rows: AffectedRows = field(default_factory=dict)

    def __add__(self, other: Changes) -> Changes:
        """Return what two tasks did together."""
        return Changes(
            self.updated + other.updated,
            self.removed + other.removed,
            self.new + other.new,
            self.fields or other.fields,
            joined_rows(self.rows, other.rows),
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """The version after a change, and how many rows it changed."""

    version: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """How a change is cut into tasks and committed."""

    bytes_per_task: int | None = None
    retries: Retries = field(default_factory=Retries)
    remarks: Remarks = field(default_factory=Remarks)


def delete_rows(
    job: Job, table: TableRef, predicate: str, options: ChangeOptions | None = None
) -> Changed:
    """Delete the rows for which a predicate is true."""

    def operation(done: Changes) -> Operation:
        return Delete(done.updated, done.removed, predicate)

    run = partial(delete_part, predicate)
    return _change(job, table, ("delete", run, operation), options or ChangeOptions())


def update_rows(
    job: Job,
    table: TableRef,
    updates: Mapping[str, str],
    where: str | None = None,
    options: ChangeOptions | None = None,
) -> Changed:
    """Set columns to what expressions compute, in the rows for which a predicate is true."""

    def operation(done: Changes) -> Operation:
        return Update(
            removed_fragment_ids=done.removed,
            updated_fragments=done.updated,
            new_fragments=done.new,
            fields_for_preserving_bitmap=done.fields,
        )

    run = partial(update_part, dict(updates), where)
    return _change(job, table, ("update", run, operation), options or ChangeOptions())


def delete_part(predicate: str, part: Part) -> Done[Changes]:
    """Write deletion files for the rows of a part that match."""
    snapshot = part.open()
    plan = plan_scan(snapshot, ScanOptions(columns=(), filter=predicate))
    rows = {} if plan.filter == ex.FALSE else find_rows(plan)
    removal = write_deletions(snapshot, rows)
    return Done(Changes(removal.updated, removal.removed, rows=rows), changed_rows(rows))


def update_part(updates: Mapping[str, str], where: str | None, part: Part) -> Done[Changes]:
    """Write the rows of a part that match with their new values."""
    made = prepare_update(part.open(), updates, where, RowFiles())
    operation = made.operation
    changes = Changes(
        operation.updated_fragments,
        operation.removed_fragment_ids,
        operation.new_fragments,
        operation.fields_for_preserving_bitmap,
        made.affected,
    )
    return Done(changes, made.num_rows)


def total(parts: Sequence[Changes]) -> Changes:
    """Return what all tasks did together."""
    return sum(parts, Changes())


def _change(
    job: Job,
    table: TableRef,
    how: tuple[str, Callable[[Part], Done[Changes]], Callable[[Changes], Operation]],
    options: ChangeOptions,
) -> Changed:
    phase, run, operation = how

    def attempt(snapshot: Snapshot) -> Changed:
        parts = plan_parts(table, snapshot, bytes_per_task=options.bytes_per_task)
        done = total(job.run(phase, run, parts))
        count = changed_rows(done.rows)
        if not count:
            return Changed(snapshot.version, 0)
        committing = CommitOptions(affected=done.rows, checks_files=True)
        published = publish(snapshot, operation(done), committing, options.remarks)
        return Changed(published.version, count)

    return with_retries(table.at(None).open(), attempt, options.retries)
