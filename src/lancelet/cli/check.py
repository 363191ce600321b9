"""`lancelet check TABLE`: what is wrong with it. The exit code is 1 if there is an error."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output, ProgressLine
from lancelet.cli.table_arguments import add_table, add_version, open_table
from lancelet.format.fragment import Fragment
from lancelet.ops.check import Finding, Level, Severity, iter_findings
from lancelet.ops.check.run import check_beside_fragments, check_fragments
from lancelet.table.snapshot import Snapshot

_COLUMNS = ("severity", "path", "what", "advice", "fragment_id", "index")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add_table(parser)
    add_version(parser)
    parser.add_argument(
        "--level",
        choices=[level.name.lower() for level in Level],
        default=Level.DECODE.name.lower(),
        help="how deep to look; each includes those before it",
    )
    parser.add_argument("--all-versions", action="store_true", help="check every version")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print what was found."""
    snapshot, level = open_table(arguments).snapshot, Level.parse(arguments.level)
    found = list(
        iter_findings(snapshot, level, all_versions=True)
        if arguments.all_versions
        else _findings(snapshot, level, out.progress("check", len(snapshot.fragments)))
    )
    if found or not out.is_for_people:
        rows = (
            (each.severity.value, each.path, each.what, each.advice, each.fragment_id, each.index)
            for each in found
        )
        out.table(_COLUMNS, rows)
    else:
        out.text("sound", [])
    is_error = any(each.severity is Severity.ERROR for each in found)
    return ExitCode.FOUND if is_error else ExitCode.DONE


def _findings(snapshot: Snapshot, level: Level, progress: ProgressLine) -> Iterator[Finding]:
    def counted() -> Iterator[Fragment]:
        for fragment in snapshot.fragments:
            yield fragment
            progress.advance()

    yield from check_fragments(snapshot, counted(), level)
    yield from check_beside_fragments(snapshot, level)
