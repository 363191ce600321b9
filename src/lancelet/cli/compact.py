"""`lancelet compact TABLE`: merges small fragments and drops deleted rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table
from lancelet.dataset.maintenance.compaction import options_of
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.plan import CompactionPlan
from lancelet.upkeep.compact.rewrite import RewriteResult
from lancelet.upkeep.compact.run import compact_files, report_compaction, run_tasks

_OPTIONS = {
    "target_rows_per_fragment": "target number of rows per fragment",
    "max_bytes_per_file": "maximum bytes per file",
    "max_source_fragments": "maximum number of fragments to rewrite",
    "max_source_rows": "maximum number of rows to rewrite",
    "max_source_bytes": "maximum number of bytes to rewrite",
    "num_threads": "number of tasks that run at the same time",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    for name, does in _OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=does)
    parser.add_argument("--defer-index-remap", action="store_true", help="remap indices later")
    parser.add_argument("--dry-run", action="store_true", help="preview the change")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Run the compaction and print its metrics."""
    table = open_table(arguments)
    given = vars(arguments)
    chosen = {name: given[name] for name in _OPTIONS if given[name] is not None}
    if arguments.defer_index_remap:
        chosen["defer_index_remap"] = True
    options = options_of(table, chosen)
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
