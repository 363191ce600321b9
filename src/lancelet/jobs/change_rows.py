"""Delete and update rows in distributed tasks of some fragments each, with one commit.

    plan     parts of the version
    tasks    delete   deletion files for the matching rows
             update   rewritten matching rows, and deletion files for the old ones
    commit   one operation; all tasks are repeated after a conflict

Tasks that are repeated leave unreferenced files, which cleanup deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial

from lancelet.change.delete import find_rows, write_deletions
from lancelet.change.moved_rows import RowFiles, count_rows, union_rows
from lancelet.change.publish import CommitProperties, Retries, publish, with_retries
from lancelet.change.update import prepare_update
from lancelet.expr import expression as ex
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Delete, Operation, Update
from lancelet.jobs.engine import Done, Job
from lancelet.jobs.part import Part, plan_parts
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.commit import CommitOptions
from lancelet.table.conflict.rebase import AffectedRows
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of a task: updated, removed and new fragments, and affected rows by fragment."""

    updated: tuple[Fragment, ...] = ()
    removed: tuple[int, ...] = ()
    new: tuple[Fragment, ...] = ()
    fields: tuple[int, ...] = ()
    rows: AffectedRows = field(default_factory=dict)

    def __add__(self, other: Changes) -> Changes:
        """Return the combined changes of two tasks."""
        return Changes(
            self.updated + other.updated,
            self.removed + other.removed,
            self.new + other.new,
            self.fields or other.fields,
            union_rows(self.rows, other.rows),
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """The version after a change, and the number of changed rows."""

    version: int
    num_rows: int


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """The options for tasks and the commit of a change."""

    bytes_per_task: int | None = None
    retries: Retries = field(default_factory=Retries)
    properties: CommitProperties = field(default_factory=CommitProperties)


def delete_rows(
    job: Job, table: TableRef, predicate: str, options: ChangeOptions | None = None
) -> Changed:
    """Delete the rows that match a predicate."""

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
    """Update columns with expressions in the rows that match a predicate."""

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
    """Write deletion files for the matching rows of a part."""
    snapshot = part.open()
    plan = plan_scan(snapshot, ScanOptions(columns=(), filter=predicate))
    rows = {} if plan.filter == ex.FALSE else find_rows(plan)
    removal = write_deletions(snapshot, rows)
    return Done(Changes(removal.updated, removal.removed, rows=rows), count_rows(rows))


def update_part(updates: Mapping[str, str], where: str | None, part: Part) -> Done[Changes]:
    """Rewrite the matching rows of a part."""
    prepared = prepare_update(part.open(), updates, where, RowFiles())
    operation = prepared.operation
    changes = Changes(
        operation.updated_fragments,
        operation.removed_fragment_ids,
        operation.new_fragments,
        operation.fields_for_preserving_bitmap,
        prepared.affected,
    )
    return Done(changes, prepared.num_rows)


def combine(parts: Sequence[Changes]) -> Changes:
    """Return the combined changes of all tasks."""
    return sum(parts, Changes())


def _change(
    job: Job,
    table: TableRef,
    steps: tuple[str, Callable[[Part], Done[Changes]], Callable[[Changes], Operation]],
    options: ChangeOptions,
) -> Changed:
    phase, run, operation = steps

    def attempt(snapshot: Snapshot) -> Changed:
        parts = plan_parts(table, snapshot, bytes_per_task=options.bytes_per_task)
        done = combine(job.run(phase, run, parts))
        count = count_rows(done.rows)
        if not count:
            return Changed(snapshot.version, 0)
        committing = CommitOptions(affected=done.rows, checks_files=True)
        published = publish(snapshot, operation(done), committing, options.properties)
        return Changed(published.version, count)

    return with_retries(table.at(None).open(), attempt, options.retries)
