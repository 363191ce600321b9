"""`lancelet cleanup TABLE`: deletes old versions and the files that no other version needs."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table
from lancelet.dataset.show.display import size_text
from lancelet.upkeep.cleanup import parse_duration

_FILES_SHOWN = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument("--older-than", metavar="TIME", help="such as 7d or '36h'; default 14d")
    parser.add_argument("--keep", type=int, metavar="N", help="always retain the last N versions")
    parser.add_argument(
        "--delete-unverified",
        action="store_true",
        help="delete unreferenced files of any age; only safe without concurrent writers",
    )
    parser.add_argument(
        "--clone",
        action="append",
        default=[],
        metavar="URI",
        help="the URI of a shallow clone; its files are not deleted",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="preview: list the files, and why they would be deleted",
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Delete expired versions; tagged versions are retained."""
    table = open_table(arguments)
    older_than = arguments.older_than
    options: dict[str, Any] = {
        "older_than": None if older_than is None else parse_duration(older_than),
        "retain_versions": arguments.keep,
        "delete_unverified": arguments.delete_unverified,
        "error_if_tagged_old_versions": False,
        "clones": arguments.clone,
    }
    if not arguments.dry_run:
        done = table.cleanup_old_versions(**options, progress=out.shows_progress)
        out.facts(asdict(done))
        return ExitCode.DONE
    plan = table.explain_cleanup_old_versions(**options, include_files=True, max_files=_FILES_SHOWN)
    for warning in plan.warnings:
        out.warn(warning)
    out.table(
        ("type", "path", "bytes", "reason"),
        (
            (
                file.kind,
                file.path,
                file.size_bytes if not out.is_for_people else size_text(file.size_bytes),
                file.reason,
            )
            for file in plan.candidate_files
        ),
    )
    return ExitCode.DONE
