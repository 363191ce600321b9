"""Check a version in tasks: fragments are distributed, and the driver checks the metadata."""

from __future__ import annotations

from functools import partial
from itertools import chain

from lancelet.jobs.engine import Done, Job
from lancelet.jobs.part import Part, plan_parts
from lancelet.jobs.table_ref import TableRef
from lancelet.upkeep.check.finding import Coverage, Findings, Level
from lancelet.upkeep.check.run import check_fragments, check_metadata, check_not_removed


def check(job: Job, table: TableRef, level: Level) -> Findings:
    """Return the findings of a version."""
    snapshot = table.open()
    parts = plan_parts(table, snapshot)
    part_findings = job.run("check", partial(check_part, level), parts)
    coverage = Coverage(level)
    for part in part_findings:
        coverage.add(part.coverage)
    metadata_findings = check_metadata(snapshot, level)
    findings = Findings(chain(metadata_findings, *part_findings), coverage)
    check_not_removed(snapshot, findings)
    return findings


def check_part(level: Level, part: Part) -> Done[Findings]:
    """Check the files of a part."""
    snapshot = part.open()
    coverage = Coverage(level)
    findings = Findings(check_fragments(snapshot, snapshot.fragments, level, coverage), coverage)
    return Done(findings, sum(map(snapshot.live_rows, snapshot.fragments)))
