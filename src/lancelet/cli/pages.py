"""`lancelet pages TABLE-OR-FILE`: lists pages of data files with rows, bytes and encodings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import (
    add_table,
    add_version,
    location_of,
    open_table,
)
from lancelet.dataset.file.describe import encoding_text, short_encoding
from lancelet.dataset.file.reader import open_file
from lancelet.dataset.show.display import size_text
from lancelet.errors import ObjectNotFoundError, UnsupportedError
from lancelet.file.v2.reader import FileReader
from lancelet.format.fragment import Fragment
from lancelet.io.open import open_store
from lancelet.io.store import Store
from lancelet.table.snapshot import Snapshot

_COLUMNS = ("fragment", "file", "column", "page", "rows", "bytes", "encoding")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    add_version(parser)
    parser.add_argument("--fragment", type=int, help="only this fragment")
    parser.add_argument("--column", help="only columns with this path prefix")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the pages."""
    store, name = open_store(*location_of(arguments))
    is_file = _is_object(store, name)
    prefix = arguments.column or ""
    if is_file:
        rows = _of_file(store, name, prefix)
    else:
        rows = pages_of_table(open_table(arguments).snapshot, arguments.fragment, prefix)
    out.table(_COLUMNS, (_shown(row, out) for row in rows))
    return ExitCode.DONE


def _is_object(store: Store, name: str) -> bool:
    """Return whether the path is a file and therefore not a table."""
    try:
        store.info(name)
    except ObjectNotFoundError:
        return False
    return True


def pages_of_table(
    snapshot: Snapshot, fragment_id: int | None = None, prefix: str = ""
) -> Iterator[tuple[Any, ...]]:
    """Yield fragment, file, column, page, rows, bytes and encoding of each page of a version."""
    for fragment in snapshot.fragments:
        if fragment_id in (None, fragment.id):
            yield from _of_fragment(snapshot, fragment, prefix)


def _of_fragment(snapshot: Snapshot, fragment: Fragment, prefix: str) -> Iterator[tuple[Any, ...]]:
    paths = {int(field.id): snapshot.schema.path_of(field.id) for field in snapshot.schema.walk()}
    for file in fragment.files:
        reader = snapshot.open_file(file)
        if not isinstance(reader, FileReader):
            raise UnsupportedError(
                "page information requires file version 2.0 or later", path=file.path
            )
        for field_id, column in zip(file.fields, file.column_indices, strict=True):
            path = paths.get(field_id)
            if path is not None and path.startswith(prefix) and column >= 0:
                for row in _of_column(reader, column):
                    yield (int(fragment.id), file.path, path, *row)


def _of_file(store: Store, name: str, prefix: str) -> Iterator[tuple[Any, ...]]:
    """Yield the pages of a single file; columns without a field are numbered."""
    reader = open_file(store, name, verify="off")
    count = len(reader.metadata.columns)
    owners = reader.field_ids
    paths = [reader.schema.path_of(owner) for owner in owners] if len(owners) == count else []
    for column, path in enumerate(paths or [f"column {number}" for number in range(count)]):
        if path.startswith(prefix):
            for row in _of_column(reader, column):
                yield (None, name, path, *row)


def _of_column(reader: FileReader, index: int) -> Iterator[tuple[Any, ...]]:
    for number, page in enumerate(reader.column(index).pages):
        yield number, page.length, int(page.size.sum()), encoding_text(page.encoding)


def _shown(row: tuple[Any, ...], out: Output) -> tuple[Any, ...]:
    *rest, size, encoding = row
    if not out.is_for_people:
        return row
    return (*rest, size_text(size), short_encoding(encoding))
