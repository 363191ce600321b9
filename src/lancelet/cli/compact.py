"""`lancelet compact TABLE`: joins small fragments and drops deleted rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table
from lancelet.dataset.compaction import options_of
from lancelet.ops.compact.plan import CompactionPlan
from lancelet.ops.compact.rewrite import RewriteResult
from lancelet.ops.compact.run import compact_files, report_compaction, run_tasks
from lancelet.table.snapshot import Snapshot

_OPTIONS = {
    "target_rows_per_fragment": "how many rows a fragment should have",
    "max_bytes_per_file": "the most bytes of a file",
    "max_source_fragments": "the most fragments to rewrite this time",
    "max_source_rows": "the most rows to rewrite this time",
    "max_source_bytes": "the most bytes to rewrite this time",
    "num_threads": "how many threads to work with",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add_table(parser)
    for name, does in _OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=does)
    parser.add_argument(
        "--defer-index-remap", action="store_true", help="leave indices to a later change"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what it would write")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Rewrite what the plan says and print what came of it."""
    table = open_table(arguments)
    given = {name: getattr(arguments, name) for name in _OPTIONS}
    wishes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if arguments.defer_index_remap:
        wishes["defer_index_remap"] = True
    options = options_of(table, wishes)
    if arguments.dry_run:
        report = report_compaction(table.snapshot, options)
        out.facts({"done": False, **asdict(report)})
        return ExitCode.DONE
    progress = out.progress("compact", 0)

    def run_plan(snapshot: Snapshot, plan: CompactionPlan) -> list[RewriteResult]:
        progress.total += len(plan.tasks)
        return run_tasks(snapshot, plan, progress.advance)

    done = compact_files(table.snapshot, options, run=run_plan)
    version = done.snapshot.version
    out.facts({"done": True, "tasks": progress.done, **asdict(done.metrics), "version": version})
    return ExitCode.DONE
