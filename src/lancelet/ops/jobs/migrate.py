"""Writing a table anew in another file version, in tasks, as one version of it.

    version 7   files of 2.0      version 8   the same live rows in the same order, files of 2.2

Rows get new ids and indices are left behind, as with every overwrite; older versions keep their
files. Where others commit meanwhile, all of it is done again.
"""

from __future__ import annotations

from functools import partial

from lancelet.errors import CommitConflictError
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Overwrite
from lancelet.format.version import FileVersion
from lancelet.ops.compact.rewrite import discard_fragments, live_rows
from lancelet.ops.jobs.engine import Done, Job
from lancelet.ops.jobs.part import Part, plan_parts
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.publish import Remarks, Retries, publish, with_retries
from lancelet.ops.write import FileOptions, Target, write_fragments
from lancelet.table.commit import CommitOptions
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.snapshot import Snapshot


def migrate(
    job: Job, table: TableRef, version: FileVersion, remarks: Remarks | None = None
) -> Snapshot:
    """Write all live rows as files of a version."""

    def attempt(snapshot: Snapshot) -> Snapshot:
        found = job.run("migrate", partial(rewrite_part, version), plan_parts(table, snapshot))
        fragments = tuple(fragment for part in found for fragment in part)
        options = CommitOptions(attempts=0, data_version=version)
        operation = Overwrite(fragments, snapshot.schema)
        try:
            return publish(snapshot, operation, options, remarks)
        except CommitConflictError:
            discard_fragments(snapshot, fragments)
            raise

    return with_retries(table.at(None).open(), attempt, Retries())


def rewrite_part(version: FileVersion, part: Part) -> Done[tuple[Fragment, ...]]:
    """Write the live rows of a part."""
    snapshot = part.open()
    rows = live_rows(snapshot, tuple(snapshot.fragments), None)
    files = FileOptions(version, dictionaries=dictionary_values_of(snapshot))
    target = Target(snapshot.location.store)
    fragments = write_fragments([target], rows, snapshot.schema, files)
    return Done(fragments, sum(fragment.physical_rows for fragment in fragments))
