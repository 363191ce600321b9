"""`lancelet count TABLE`: counts all rows, or the rows that match a filter."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_scan_options,
    add_table,
    add_version,
    open_table,
    storage_options_of,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("condition", nargs="?", metavar="FILTER", help="the same as --filter")
    add_scan_options(parser, "--filter")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the number of rows."""
    if arguments.condition is not None:
        if arguments.filter is not None:
            arguments.usage_error("FILTER and --filter are the same option; pass one of them")
        arguments.filter = arguments.condition
    rows = (
        _rows_of_version(arguments)
        if arguments.filter is None
        else open_table(arguments).count_rows(filter=arguments.filter)
    )
    out.text(str(rows), {"rows": rows})
    return ExitCode.DONE


def _rows_of_version(arguments: argparse.Namespace) -> int:
    """Return the row count in the manifest, without the slow import of datasets."""
    from lancelet.table.location import TableLocation  # noqa: PLC0415 - not needed for `--help`
    from lancelet.table.snapshot import open_snapshot  # noqa: PLC0415 - the same

    if arguments.at is not None:
        return open_table(arguments).snapshot.num_rows
    location = TableLocation.open(arguments.uri, storage_options_of(arguments))
    return open_snapshot(location).num_rows
