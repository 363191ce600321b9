"""`lancelet branch TABLE [list | create | delete | forward]`: lists and changes branches."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_action,
    add_table,
    add_version,
    open_table,
    order_action,
)
from lancelet.cli.tag import named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    add_action(parser, ("list", "create", "delete", "forward"))
    parser.add_argument("name", nargs="?", help="the branch; required except to list branches")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Run the action. `create` branches at `--at`; `forward` fast-forwards the parent."""
    order_action(arguments)
    table = open_table(arguments)
    name = named(arguments)
    match arguments.action:
        case "create":
            table = table.create_branch(name)
        case "delete":
            table.branches.delete(name)
        case "forward":
            table = table.branches.fast_forward(name)
        case _:
            rows = [
                (
                    name,
                    branch["parent_branch"],
                    branch["parent_version"],
                    datetime.fromtimestamp(branch["create_at"], UTC),
                )
                for name, branch in sorted(table.branches.list().items())
            ]
            out.table(("name", "parent", "parent_version", "created"), rows)
            return ExitCode.DONE
    out.facts({"branch": name, "done": arguments.action, "version": table.version})
    return ExitCode.DONE
