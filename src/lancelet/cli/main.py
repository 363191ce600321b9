"""The entry point of the command `lancelet`.

`COMMANDS` maps each command to its description; the module of a command has the same name. A
command module has two functions: `add_arguments(parser)` defines the arguments, and
`run(arguments, out)` runs the command and returns an `ExitCode`. Only the module of the requested
command is imported.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cache
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
    "sql": "run a SQL query over tables",
    "search": "search text, vectors or both",
    "versions": "list the versions of a table",
    "show": "show the contents of a version",
    "files": "list the files of a version",
    "pages": "list the pages of data files with their encodings",
    "diff": "compare two versions",
    "check": "verify a table",
    "repair": "repair what check found",
    "maintain": "compact, optimize indices and clean up, as required",
    "refresh": "refresh a materialised view",
    "compact": "merge small fragments and drop deleted rows",
    "cleanup": "delete old versions",
    "view": "show tables in the browser",
    "restore": "commit an old version as the latest",
    "index": "list, build, update and drop indices",
    "tag": "list, create, move and delete tags",
    "branch": "list, create and delete branches",
    "convert": "convert between tables and other formats",
    "ingest": "load files into a table with Spark",
    "stats": "show statistics of columns",
    "doctor": "show versions, kernels and extras of this installation",
    "completion": "print the completion script of a shell",
}
"""Descriptions by command name; the module of a command has the same name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code; see `lancelet.cli.exit_codes`."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else list(argv))
        finally:
            # Flush here: at interpreter exit, a closed pipe would print a traceback.
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe. Discard further output, also at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE


def _run(argv: list[str]) -> int:
    # Help, errors and `--version` need the parser of all commands.
    name = argv[0] if argv and argv[0] in COMMANDS else _parser().parse_args(argv[:1]).command
    command = load_command(name)
    arguments = command_parser(name).parse_args(argv[1:])
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
        # The interpreter would exit with 1, the code for findings of a check.
        traceback.print_exc()
        raise SystemExit(ExitCode.BUG) from error


def command_parser(name: str) -> argparse.ArgumentParser:
    """Return the argument parser of a command."""
    parser = argparse.ArgumentParser(
        prog=f"lancelet {name}", description=COMMANDS[name], formatter_class=_formatter
    )
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


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Return a formatter; argparse makes one per argument, and measures the terminal each time."""
    return argparse.HelpFormatter(prog, width=_help_width())


@cache
def _help_width() -> int:
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        try:
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]  # None raises
        except (AttributeError, ValueError, OSError):
            columns = 80
    return max(columns, 20) - 2


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
    # Docstrings are None under `python -OO`.
    codes = (exit_codes.__doc__ or "").partition("\n\n")[2]
    parser = argparse.ArgumentParser(
        prog="lancelet",
        usage="lancelet COMMAND ... [--format table|json|csv|arrow]",
        description=f"Inspect and maintain Lance tables.\n\ncommands:\n{lines}",
        epilog=f"Run `lancelet COMMAND --help` for details.\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lancelet {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


class Command(Protocol):
    """The interface of a command module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Define the arguments of the command."""

    def run(self, arguments: argparse.Namespace, out: Output) -> ExitCode:
        """Run the command."""


def load_command(name: str) -> Command:
    """Import the module of a command."""
    return cast("Command", import_module(f"lancelet.cli.{name}"))
