"""Rewrite a table in another file version, in distributed tasks and one commit.

    version 7   files of 2.0      version 8   the same live rows in the same order, files of 2.2

As with any overwrite, rows get new ids and indices are dropped; older versions retain their files.
The migration is repeated after concurrent commits.
"""

from __future__ import annotations

from functools import partial

from lancelet.change.publish import CommitProperties, Retries, publish, with_retries
from lancelet.change.write import FileOptions, Target, write_fragments
from lancelet.errors import CommitConflictError
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Overwrite
from lancelet.format.version import FileVersion
from lancelet.jobs.engine import Done, Job
from lancelet.jobs.part import Part, plan_parts
from lancelet.jobs.table_ref import TableRef
from lancelet.table.commit import CommitOptions
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.rewrite import discard_fragments, live_rows


def migrate(
    job: Job, table: TableRef, version: FileVersion, properties: CommitProperties | None = None
) -> Snapshot:
    """Rewrite all live rows as files of a version."""

    def attempt(snapshot: Snapshot) -> Snapshot:
        results = job.run("migrate", partial(rewrite_part, version), plan_parts(table, snapshot))
        fragments = tuple(fragment for part in results for fragment in part)
        options = CommitOptions(attempts=0, data_version=version)
        operation = Overwrite(fragments, snapshot.schema)
        try:
            return publish(snapshot, operation, options, properties)
        except CommitConflictError:
            discard_fragments(snapshot, fragments)
            raise

    return with_retries(table.at(None).open(), attempt, Retries())


def rewrite_part(version: FileVersion, part: Part) -> Done[tuple[Fragment, ...]]:
    """Rewrite the live rows of a part."""
    snapshot = part.open()
    rows = live_rows(snapshot, tuple(snapshot.fragments), None)
    files = FileOptions(version, dictionaries=dictionary_values_of(snapshot))
    target = Target(snapshot.location.store)
    fragments = write_fragments([target], rows, snapshot.schema, files)
    return Done(fragments, sum(fragment.physical_rows for fragment in fragments))
