"""`lancelet count TABLE`: how many rows there are, or how many match."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, add_version, open_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("--filter", help="SQL; without one the manifest knows")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the number."""
    rows = open_table(arguments).count_rows(filter=arguments.filter)
    out.text(str(rows), {"rows": rows})
    return ExitCode.DONE
