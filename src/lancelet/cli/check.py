"""`lancelet check TABLE`: verifies a table. The exit code is 1 if errors were found.

With `--require-checksums`, a data file without checksums counts as an error.
"""

from __future__ import annotations

import argparse

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Form, Output
from lancelet.cli.table_arguments import add_table, add_version, open_table
from lancelet.errors import InvalidInputError
from lancelet.upkeep.check import Level, Severity

_COLUMNS = ("severity", "path", "what", "advice", "fragment_id", "index")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument(
        "--level",
        choices=[level.name.lower() for level in Level],
        default=Level.DECODE.name.lower(),
        help="how deep to verify; each level includes those before it",
    )
    parser.add_argument("--all-versions", action="store_true", help="check every version")
    parser.add_argument(
        "--require-checksums",
        action="store_true",
        help="treat a data file without checksums as an error",
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the findings."""
    level = Level.parse(arguments.level)
    if arguments.require_checksums and level < Level.CHECKSUMS:
        raise InvalidInputError("--require-checksums requires level `checksums` or higher")
    found = open_table(arguments).check(
        level, all_versions=arguments.all_versions, progress=out.shows_progress
    )
    coverage = found.coverage
    is_error = any(each.severity is Severity.ERROR for each in found)
    is_error |= arguments.require_checksums and not coverage.is_complete
    rows = [
        (each.severity.value, each.path, each.what, each.advice, each.fragment_id, each.index)
        for each in found
    ]
    if out.form is Form.JSON:
        out.facts(
            {
                "findings": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
                "level": level.name.lower(),
                "files": coverage.files,
                "verified_files": coverage.verified_files,
                "files_without_checksums": coverage.files_without_checksums,
            }
        )
    elif not out.is_for_people:
        out.table(_COLUMNS, rows)
        out.warn(str(coverage))
    else:
        if found:
            out.table(_COLUMNS, rows)
        out.text(f"{'errors were found' if is_error else 'OK'}: {coverage}", None)
    return ExitCode.FOUND if is_error else ExitCode.DONE
