"""The entry point of the command `lancelet`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from lancelet.about import __version__
from lancelet.cli import exit_codes
from lancelet.cli.commands import COMMANDS, load_command
from lancelet.cli.exit_codes import ExitCode, exit_code_of
from lancelet.cli.output import Form, Output
from lancelet.errors import LanceletError


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
