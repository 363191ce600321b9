"""The commands: by what name each is called, in which module it is, and what it does.

A command is a module with two functions: `add_arguments(parser)` says what it takes, and
`run(arguments, out)` does it and returns an `ExitCode`. Only the module of the command that was
called is imported.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final, Protocol, cast

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output

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


class Command(Protocol):
    """A module of a command."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the command takes."""

    def run(self, arguments: argparse.Namespace, out: Output) -> ExitCode:
        """Do it."""


def load_command(name: str) -> Command:
    """Return the module of a command."""
    return cast("Command", import_module(f"lancelet.cli.{name}"))
