"""`lancelet diff TABLE FROM [TO]`: compares two versions; `--rows` lists the changed rows."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table, parse_version


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument("begin", metavar="FROM", help="a version: a number, tag, branch: or time")
    parser.add_argument(
        "end", metavar="TO", nargs="?", help="the version to compare with; by default the latest"
    )
    parser.add_argument("--rows", action="store_true", help="list the rows that changed")
    parser.add_argument("--on", help="key columns, comma-separated")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the difference."""
    table = open_table(arguments)
    begin, end = parse_version(arguments.begin), parse_version(arguments.end)
    if arguments.rows:
        on = arguments.on.split(",") if arguments.on else None
        rows = [
            list(row.values())
            for batch in table.changes(begin, end, on=on)
            for row in batch.to_pylist()
        ]
        out.table(("kind", "_rowid", "before", "after"), rows)
        return ExitCode.FOUND if rows else ExitCode.DONE
    found = table.diff(begin, end)
    out.text(str(found), asdict(found))
    return ExitCode.FOUND if found else ExitCode.DONE
