"""`lancelet ls FOLDER`: lists the tables in a folder."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_storage_options, storage_options_of
from lancelet.cli.versions import committed_at
from lancelet.dataset import dataset
from lancelet.dataset.show.display import size_text
from lancelet.errors import LanceletError, NotFoundError
from lancelet.format.paths import VERSIONS
from lancelet.io.open import open_folder
from lancelet.io.uri import parse_uri
from lancelet.table.snapshot import Snapshot

_COLUMNS = ("name", "version", "rows", "fragments", "bytes", "committed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument(
        "uri", nargs="?", default=".", help="the folder; by default the current folder"
    )
    add_storage_options(parser)


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """List the tables; report tables that cannot be opened as warnings."""
    options = storage_options_of(arguments)
    rows: list[tuple[Any, ...]] = []
    code = ExitCode.DONE
    for name in tables_in(arguments.uri, options):
        uri = arguments.uri if name == "." else f"{arguments.uri.rstrip('/')}/{name}"
        try:
            rows.append((name, *_described(dataset(uri, storage_options=options).snapshot, out)))
        except LanceletError as error:
            out.error(error.with_facts(table=name))
            code = ExitCode.FOUND
    out.table(_COLUMNS, rows)
    return code


def tables_in(uri: str, options: dict[str, str] | None) -> Iterator[str]:
    """Yield the names of the tables in a folder, sorted, excluding tables nested in tables."""
    parsed = parse_uri(uri)
    if parsed.scheme == "file":
        yield from _local_tables(Path(parsed.authority) / parsed.path)
        return
    seen: set[str] = set()
    for info in open_folder(uri, options).list():
        parts = info.path.split("/")
        if VERSIONS in parts:
            seen.add("/".join(parts[: parts.index(VERSIONS)]) or ".")
    yield from sorted(name for name in seen if not _is_within(name, seen))


def _local_tables(folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        raise NotFoundError("the folder does not exist", path=str(folder))
    for path, children, _ in os.walk(folder):
        children.sort()
        if VERSIONS in children:
            children.clear()
            yield Path(path).relative_to(folder).as_posix()


def _is_within(name: str, others: set[str]) -> bool:
    parts = name.split("/")
    return any("/".join(parts[:end]) in others for end in range(1, len(parts)))


def _described(snapshot: Snapshot, out: Output) -> tuple[Any, ...]:
    fragments = snapshot.fragments
    size = snapshot.data_bytes
    return (
        snapshot.version,
        snapshot.num_rows,
        len(fragments),
        size if not out.is_for_people else size_text(size),
        committed_at(snapshot),
    )
