"""`lancelet restore TABLE VERSION`: commits an old version as the latest."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument(
        "at", metavar="VERSION", help="a number, a tag, branch:number or a time, see `versions`"
    )
    parser.add_argument("--dry-run", action="store_true", help="preview the change")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Restore, and print the new version."""
    table = open_table(arguments)
    restored = table.version
    if arguments.dry_run:
        out.text(str(table.restore(dry_run=True)), {"done": False, "restored": restored})
        return ExitCode.DONE
    table.restore()
    out.facts({"done": True, "restored": restored, "version": table.version})
    return ExitCode.DONE
