"""`lancelet head TABLE`: prints the first rows, or the first rows that match a filter."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_scan_options, add_table, add_version, open_table

_ROWS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument(
        "-n",
        "--rows",
        "--limit",
        type=int,
        default=_ROWS,
        help=f"the number of rows (default {_ROWS})",
    )
    add_scan_options(parser, "--columns", "--filter", "--offset", "--row-id")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the rows."""
    table = open_table(arguments).to_table(
        columns=arguments.columns.split(",") if arguments.columns else None,
        filter=arguments.filter,
        limit=arguments.rows,
        offset=arguments.offset,
        with_row_id=arguments.row_id,
    )
    out.rows(table)
    return ExitCode.DONE
