"""`lancelet tag TABLE [list | create | move | delete]`: lists and changes tags."""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_action,
    add_table,
    add_version,
    open_table,
    order_action,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    add_action(parser, ("list", "create", "move", "delete"))
    parser.add_argument("name", nargs="?", help="the tag; required except to list tags")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Run the action; `create` and `move` set the tag to the version of `--at`."""
    order_action(arguments)
    table = open_table(arguments)
    tags, name = table.tags, named(arguments)
    match arguments.action:
        case "create":
            tags.create(name)
        case "move":
            tags.update(name)
        case "delete":
            tags.delete(name)
        case _:
            rows = [
                (name, tag["version"], tag["branch"], tag["created_at"], tag["updated_at"])
                for name, tag in sorted(tags.list().items())
            ]
            out.table(("name", "version", "branch", "created", "updated"), rows)
            return ExitCode.DONE
    out.facts({"tag": name, "done": arguments.action, "version": table.version})
    return ExitCode.DONE


def named(arguments: argparse.Namespace) -> str:
    """Return the name argument; exit with a usage error if it is missing."""
    if arguments.name is None and arguments.action != "list":
        arguments.usage_error(f"{arguments.action} requires a name")
    return arguments.name or ""
