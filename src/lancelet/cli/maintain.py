"""`lancelet maintain TABLE`: compacts, optimizes indices, merges the log and cleans up."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table
from lancelet.upkeep.cleanup import parse_duration
from lancelet.upkeep.maintain import MaintenancePolicy, Outcome

_COUNTS = {
    "target_rows_per_fragment": "target number of rows per fragment",
    "min_fragments": "compact at least this many neighbouring small fragments; default 8",
    "max_unindexed_rows": "optimize an index with more unindexed rows; default 50000",
    "max_index_segments": "merge more segments of an index than this; default 8",
    "max_log_tables": "merge more flushed tables of the log than this; default 4",
    "retain_versions": "always retain the last N versions; default 1",
    "max_bytes": "maximum number of bytes to read and rewrite",
}
_SHARES = {
    "max_deleted_share": "rewrite fragments with a larger share of deleted rows; default 0.1",
    "max_unindexed_share": "optimize an index with a larger share of unindexed rows; default 0.05",
}
_FAILED = {Outcome.CONFLICT, Outcome.UNSUPPORTED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    for name, does in _COUNTS.items():
        parser.add_argument(_flag(name), type=int, metavar="N", help=does)
    for name, does in _SHARES.items():
        parser.add_argument(_flag(name), type=float, metavar="SHARE", help=does)
    parser.add_argument("--older-than", metavar="TIME", help="such as 7d or '36h'; default 14d")
    parser.add_argument("--keep-versions", action="store_true", help="delete no versions")
    parser.add_argument("--max-time", metavar="TIME", help="start no step after this time")
    parser.add_argument(
        "--clone",
        action="append",
        default=[],
        metavar="URI",
        help="the URI of a shallow clone; its files are not deleted",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan without changes")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Run the maintenance and print its report."""
    table = open_table(arguments)
    report = table.maintain(
        _policy(arguments), dry_run=arguments.dry_run, progress=out.shows_progress
    )
    out.text(repr(report), report.to_dict())
    failed = any(result.outcome in _FAILED for result in report.steps)
    return ExitCode.CONFLICT if failed else ExitCode.DONE


def _policy(arguments: argparse.Namespace) -> MaintenancePolicy:
    given = vars(arguments)
    values = {name: given[name] for name in (*_COUNTS, *_SHARES) if given[name] is not None}
    if arguments.older_than is not None:
        values["older_than"] = parse_duration(arguments.older_than)
    if arguments.keep_versions:
        values["older_than"] = None
    if arguments.max_time is not None:
        values["max_seconds"] = parse_duration(arguments.max_time).total_seconds()
    return MaintenancePolicy(clones=tuple(arguments.clone), **values)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
