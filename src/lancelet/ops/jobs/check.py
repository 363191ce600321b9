"""Checking a version in tasks: each looks at some fragments, the driver at everything else."""

from __future__ import annotations

from functools import partial

from lancelet.ops.check.finding import Finding, Level
from lancelet.ops.check.run import check_beside_fragments, check_fragments
from lancelet.ops.jobs.engine import Done, Job
from lancelet.ops.jobs.part import Part, plan_parts
from lancelet.ops.jobs.table_ref import TableRef


def check(job: Job, table: TableRef, level: Level) -> list[Finding]:
    """Return what is wrong with a version."""
    snapshot = table.open()
    parts = plan_parts(table, snapshot)
    found = job.run("check", partial(check_part, level), parts)
    own = list(check_beside_fragments(snapshot, level))
    return own + [finding for part in found for finding in part]


def check_part(level: Level, part: Part) -> Done[list[Finding]]:
    """Check the files of a part."""
    snapshot = part.open()
    found = list(check_fragments(snapshot, snapshot.fragments, level))
    return Done(found, sum(map(snapshot.live_rows, snapshot.fragments)))
