"""`lancelet refresh VIEW`: shows the latest version of the source in a materialised view."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, location_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument("--full", action="store_true", help="compute all rows")
    parser.add_argument("--dry-run", action="store_true", help="print the plan without changes")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Refresh the view and print what was done."""
    from lancelet.dataset import open_view  # noqa: PLC0415 - not needed for `--help`

    uri, options = location_of(arguments)
    view = open_view(uri, storage_options=options)
    plan = view.refresh(full=arguments.full, dry_run=arguments.dry_run)
    lines = [
        f"refresh   {plan.kind}",
        f"source    version {plan.begin} -> {plan.end}",
    ]
    for name, (begin, end) in (plan.tables or {}).items():
        lines.append(f"table     {name}, version {begin} -> {end}")
    if plan.reason is not None:
        lines.append(f"reason    {plan.reason}")
    if plan.inserted is not None:
        lines.append(
            f"rows      {plan.inserted} inserted, {plan.updated} updated, {plan.deleted} deleted"
        )
    out.text("\n".join(lines), asdict(plan))
    return ExitCode.DONE
