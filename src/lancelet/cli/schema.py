"""`lancelet schema TABLE`: lists the columns and nested fields with their field ids."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, add_version, open_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the fields."""
    schema = open_table(arguments).snapshot.schema
    rows = [
        (
            int(field.id),
            schema.path_of(field.id),
            str(field.arrow_type),
            field.nullable,
            dict(field.metadata) or None,
        )
        for field in schema.walk()
    ]
    out.table(("id", "name", "type", "nullable", "metadata"), rows)
    return ExitCode.DONE
