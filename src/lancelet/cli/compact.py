"""`lancelet compact TABLE`: joins small fragments and drops deleted rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table
from lancelet.dataset.compaction import Compaction

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
    """Rewrite what the plan says, group by group, and print what came of it."""
    table = open_table(arguments)
    wishes: dict[str, Any] = {name: getattr(arguments, name) for name in _OPTIONS}
    options = {name: value for name, value in wishes.items() if value is not None}
    if arguments.defer_index_remap:
        options["defer_index_remap"] = True
    if arguments.dry_run:
        report = table.optimize.compact_files(**options, dry_run=True)
        out.facts({"done": False, **asdict(report)})
        return ExitCode.DONE
    plan = Compaction.plan(table, options)
    progress = out.progress("compact", plan.num_tasks())
    results = []
    for task in plan.tasks:
        results.append(task.execute(table))
        progress.advance()
    metrics = asdict(Compaction.commit(table, results, options)) if results else {}
    out.facts({"done": True, "tasks": len(results), **metrics, "version": table.version})
    return ExitCode.DONE
