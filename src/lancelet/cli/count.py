"""`lancelet count TABLE`: counts all rows, or the rows that match a filter."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_scan_options,
    add_table,
    add_version,
    open_table,
    storage_options_of,
)

if TYPE_CHECKING:
    from lancelet.table.snapshot import Snapshot


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
    snapshot = _snapshot(arguments)
    rows = snapshot.num_rows if arguments.filter is None else _matching(snapshot, arguments.filter)
    out.text(str(rows), {"rows": rows})
    return ExitCode.DONE


def _snapshot(arguments: argparse.Namespace) -> Snapshot:
    """Return the requested version; the latest one without the slow import of datasets."""
    from lancelet.table.location import TableLocation  # noqa: PLC0415 - not needed for `--help`
    from lancelet.table.snapshot import open_snapshot  # noqa: PLC0415 - the same

    if arguments.at is not None or arguments.catalog is not None:
        return open_table(arguments).snapshot
    return open_snapshot(TableLocation.open(arguments.uri, storage_options_of(arguments)))


def _matching(snapshot: Snapshot, condition: str) -> int:
    """Return the number of rows that match a filter."""
    from lancelet.scan.execute import count_rows  # noqa: PLC0415 - slow to import
    from lancelet.scan.plan import plan_scan  # noqa: PLC0415 - the same
    from lancelet.scan.scan_options import ScanOptions  # noqa: PLC0415 - the same

    return count_rows(plan_scan(snapshot, ScanOptions(columns=(), filter=condition)))
