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
from lancelet.cli.output import Output
from lancelet.errors import LanceletError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code, see `lancelet.cli.exit_codes`."""
    words = sys.argv[1:] if argv is None else list(argv)
    chosen = _parser().parse_args(words[:1])
    command = load_command(chosen.command)
    parser = argparse.ArgumentParser(
        prog=f"lancelet {chosen.command}", description=COMMANDS[chosen.command]
    )
    command.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    arguments = parser.parse_args(words[1:])
    out = Output(arguments.json)
    try:
        return command.run(arguments, out)
    except LanceletError as error:
        out.error(error)
        return exit_code_of(error)
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing more can be said, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.STOPPED
    except Exception as error:
        # The interpreter would end with 1, which says that a check found something.
        traceback.print_exc()
        raise SystemExit(ExitCode.BUG) from error


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    lines = "\n".join(f"  {name:{width}}  {does}" for name, does in COMMANDS.items())
    codes = (exit_codes.__doc__ or "").split("\n", maxsplit=2)[2]
    parser = argparse.ArgumentParser(
        prog="lancelet",
        usage="lancelet COMMAND ... [--json]",
        description=f"Look at Lance tables and keep them sound.\n\ncommands:\n{lines}",
        epilog=f"`lancelet COMMAND --help` says more.\n\nexit codes:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"lancelet {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser
