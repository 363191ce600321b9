"""`lancelet stats TABLE [COLUMN ...]`: shows null counts, bounds and distinct counts."""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, add_version, open_table
from lancelet.upkeep.column_statistics import ColumnStatistics, column_statistics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument("columns", nargs="*", help="columns, or fields such as a.b; by default all")
    add_version(parser)
    parser.add_argument(
        "--distinct",
        action="store_true",
        help="estimate the number of distinct values; reads the columns",
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the statistics."""
    snapshot = open_table(arguments).snapshot
    names = arguments.columns or snapshot.schema.names
    progress = out.progress("stats", len(names))
    found = []
    for name in names:
        found += column_statistics(snapshot, [name], distinct=arguments.distinct)
        progress.advance()
    columns = [field.name for field in fields(ColumnStatistics)]
    out.table(columns, (list(asdict(each).values()) for each in found))
    return ExitCode.DONE
