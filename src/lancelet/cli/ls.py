"""`lancelet ls [FOLDER]`: lists the tables in a folder, or those of a catalog.

lancelet ls shop/
lancelet ls --catalog glue --property region=us-east-1           all databases
lancelet ls sales --catalog glue --property region=us-east-1     one database
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lancelet.cli.catalogs import Catalog, name_of, path_of
from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_catalog,
    add_storage_options,
    catalog_of,
    storage_options_of,
)
from lancelet.cli.versions import committed_at
from lancelet.dataset import dataset
from lancelet.dataset.show.display import size_text
from lancelet.errors import DatasetNotFoundError, LanceletError, NotFoundError
from lancelet.format.paths import VERSIONS
from lancelet.io.open import open_folder
from lancelet.io.uri import parse_uri
from lancelet.table.snapshot import Snapshot

_COLUMNS = ("name", "version", "rows", "fragments", "bytes", "committed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    parser.add_argument(
        "uri",
        nargs="?",
        help="the folder, by default the current folder; or with --catalog a namespace, by default "
        "all",
    )
    add_storage_options(parser)
    add_catalog(parser)


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """List the tables; report tables that cannot be opened as warnings."""
    options, catalog = storage_options_of(arguments), catalog_of(arguments)
    if catalog is not None:
        return _list_catalog(catalog, arguments.uri or "", options, out)
    folder = arguments.uri or "."
    rows: list[tuple[Any, ...]] = []
    code = ExitCode.DONE
    for name in tables_in(folder, options):
        uri = folder if name == "." else f"{folder.rstrip('/')}/{name}"
        try:
            rows.append((name, *_described(dataset(uri, storage_options=options).snapshot, out)))
        except LanceletError as error:
            out.error(error.with_facts(table=name))
            code = ExitCode.FOUND
    out.table(_COLUMNS, rows)
    return code


def _list_catalog(
    catalog: Catalog, root: str, options: dict[str, str] | None, out: Output
) -> ExitCode:
    """List the namespaces and tables; of those without rows, only the names."""
    rows: list[tuple[Any, ...]] = []
    code = ExitCode.DONE
    for namespace, names in catalog.tables(path_of(root)).items():
        for name in names or (None,):
            row = (name_of(namespace), name, *[None] * (len(_COLUMNS) - 1))
            try:
                if name is not None:
                    table = catalog.open((*namespace, name), None, options)
                    row = (*row[:2], *_described(table.snapshot, out))
            except DatasetNotFoundError:
                pass  # the table was declared, but never written
            except LanceletError as error:
                out.error(error.with_facts(table=name_of((*namespace, name or ""))))
                code = ExitCode.FOUND
                continue
            rows.append(row)
    out.table(("namespace", *_COLUMNS), rows)
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
