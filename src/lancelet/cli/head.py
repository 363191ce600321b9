"""`lancelet head TABLE`: prints the first rows, or the first rows that match a filter."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_full,
    add_limit,
    add_scan_options,
    add_table,
    add_version,
    columns_of,
    open_table,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    add_limit(parser, "-n", "--rows", "--limit", rows=10)
    add_full(parser)
    add_scan_options(parser, "--columns", "--filter", "--offset", "--row-id")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the rows."""
    table = open_table(arguments).to_table(
        columns=columns_of(arguments),
        filter=arguments.filter,
        limit=arguments.limit,
        offset=arguments.offset,
        with_row_id=arguments.row_id,
    )
    out.rows(table, full=arguments.full)
    return ExitCode.DONE
