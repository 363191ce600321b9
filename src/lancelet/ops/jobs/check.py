"""Checking a version in tasks: each looks at some fragments, the driver at everything else."""

from __future__ import annotations

from functools import partial
from itertools import chain

from lancelet.ops.check.finding import Coverage, Findings, Level
from lancelet.ops.check.run import check_beside_fragments, check_fragments, check_still_there
from lancelet.ops.jobs.engine import Done, Job
from lancelet.ops.jobs.part import Part, plan_parts
from lancelet.ops.jobs.table_ref import TableRef


def check(job: Job, table: TableRef, level: Level) -> Findings:
    """Return what is wrong with a version."""
    snapshot = table.open()
    parts = plan_parts(table, snapshot)
    found = job.run("check", partial(check_part, level), parts)
    coverage = Coverage(level)
    for part in found:
        coverage.add(part.coverage)
    own = check_beside_fragments(snapshot, level)
    findings = Findings(chain(own, *found), coverage)
    check_still_there(snapshot, findings)
    return findings


def check_part(level: Level, part: Part) -> Done[Findings]:
    """Check the files of a part."""
    snapshot = part.open()
    coverage = Coverage(level)
    found = Findings(check_fragments(snapshot, snapshot.fragments, level, coverage), coverage)
    return Done(found, sum(map(snapshot.live_rows, snapshot.fragments)))
