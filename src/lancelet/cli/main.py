"""The entry point of the command `lancelet`.

The commands: by what name each is called, in which module it is, and what it does.

A command is a module with two functions: `add_arguments(parser)` says what it takes, and
`run(arguments, out)` does it and returns an `ExitCode`. Only the module of the command that was
called is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Final, Protocol, cast

from lancelet.about import __version__
from lancelet.cli import exit_codes
from lancelet.cli.exit_codes import ExitCode, exit_code_of
from lancelet.cli.output import Form, Output
from lancelet.errors import LanceletError

COMMANDS: Final = {
    "ls": "list the tables in a folder",
    "schema": "show the columns of a table",
    "head": "show the first rows",
    "count": "count rows",
    "sql": "run a query of SQL over tables",
    "search": "search texts, vectors or both",
    "versions": "list the versions of a table",
    "show": "show what a version is made of",
    "files": "list the files of a version",
    "pages": "list the pages of data files, and how they are encoded",
    "diff": "compare two versions",
    "check": "verify a table",
    "repair": "repair what check found",
    "compact": "merge small fragments and drop deleted rows",
    "cleanup": "delete old versions",
    "view": "show tables in the browser",
    "restore": "commit an old version as the latest",
    "index": "list, build, update and drop indices",
    "tag": "list, make, move and delete tags",
    "branch": "list, make and delete branches",
    "convert": "write a table from other files, or other files from a table",
    "ingest": "load files into a table by Spark",
    "stats": "show statistics of columns",
    "doctor": "show versions, kernels and extras of this installation",
    "completion": "print the completion script of a shell",
}
"""What each command does, by its name, which is that of its module too."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, see `lancelet.cli.exit_codes`."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        finally:
            # What waits here would meet a closed pipe when the interpreter ends, and be shown.
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing more can be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE


def _run(words: list[str]) -> int:
    chosen = _parser().parse_args(words[:1])
    command = load_command(chosen.command)
    arguments = command_parser(chosen.command).parse_args(words[1:])
    out = Output(Form.JSON if arguments.json else Form(arguments.format))
    try:
        return command.run(arguments, out)
    except LanceletError as error:
        out.error(error)
        return exit_code_of(error)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return ExitCode.STOPPED
    except Exception as error:
        # The interpreter would end with 1, which says that a check found something.
        traceback.print_exc()
        raise SystemExit(ExitCode.BUG) from error


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return what reads the arguments of a command."""
    parser = argparse.ArgumentParser(prog=f"lancelet {name}", description=COMMANDS[name])
    load_command(name).add_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=[form.value for form in Form],
        default=Form.TABLE.value,
        help="the output format",
    )
    form.add_argument("--json", action="store_true", help="the same as --format json")
    parser.set_defaults(usage_error=parser.error)
    return parser


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
    # Python may be told to leave docstrings out.
    codes = (exit_codes.__doc__ or "").partition("\n\n")[2]
    parser = argparse.ArgumentParser(
        prog="lancelet",
        usage="lancelet COMMAND ... [--format table|json|csv|arrow]",
        description=f"Inspect and maintain Lance tables.\n\ncommands:\n{lines}",
        epilog=f"`lancelet COMMAND --help` says more.\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lancelet {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


class Command(Protocol):
    """A module of a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the command takes."""

    def run(self, arguments: argparse.Namespace, out: Output) -> ExitCode:
        """Do it."""


def load_command(name: str) -> Command:
    """Return the module of a command."""
    return cast("Command", import_module(f"lancelet.cli.{name}"))
