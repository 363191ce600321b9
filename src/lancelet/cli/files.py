"""`lancelet files TABLE`: lists the files of a version, by fragment."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, add_version, open_table
from lancelet.dataset import LanceDataset
from lancelet.dataset.show.display import size_text
from lancelet.upkeep.list_files import list_tracked_files, stored_files

_COLUMNS = ("type", "path", "base", "bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument(
        "--others", action="store_true", help="list files that this version does not need"
    )


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the files."""
    table = open_table(arguments)
    stored = {
        path: size
        for batch in stored_files(table.snapshot.location)
        for path, size in zip(
            batch["path"].to_pylist(), batch["size_bytes"].to_pylist(), strict=True
        )
    }
    rows = _others(table, stored) if arguments.others else _needed(table, stored)
    out.table(_COLUMNS, (_shown(row, out) for row in rows))
    return ExitCode.DONE


def _needed(table: LanceDataset, stored: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    root = table.snapshot.location.uri
    sizes = {
        file.path: file.size_bytes
        for fragment in table.snapshot.fragments
        for file in fragment.files
    }
    for file in list_tracked_files(table.snapshot):
        in_root = file.base_uri == root
        own = stored.get(file.path) if in_root else sizes.get(file.path.rpartition("/")[2])
        yield file.type, file.path, None if in_root else file.base_uri, own


def _others(table: LanceDataset, stored: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    root = table.snapshot.location.uri
    needed = {file.path for file in list_tracked_files(table.snapshot) if file.base_uri == root}
    for path in sorted(stored.keys() - needed):
        yield "not needed", path, None, stored[path]


def _shown(row: tuple[Any, ...], out: Output) -> tuple[Any, ...]:
    *rest, size = row
    return (*rest, size if not out.is_for_people or size is None else size_text(size))
