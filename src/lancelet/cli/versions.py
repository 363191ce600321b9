"""`lancelet versions TABLE`: lists the versions with their operations and sizes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from lancelet.cli.exit_codes import ExitCode
from lancelet.cli.output import Output
from lancelet.cli.table_arguments import add_table, open_table
from lancelet.dataset import LanceDataset
from lancelet.dataset.show.display import size_text
from lancelet.table.snapshot import Snapshot, open_entries

_COLUMNS = ("version", "committed", "operation", "rows", "fragments", "bytes", "tags")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the arguments of the command."""
    add_table(parser)
    parser.add_argument("-n", "--last", type=int, help="the number of latest versions to show")


def run(arguments: argparse.Namespace, out: Output) -> ExitCode:
    """Print the versions, oldest first."""
    out.table(_COLUMNS, _rows(open_table(arguments), arguments.last, out))
    return ExitCode.DONE


def _rows(table: LanceDataset, last: int | None, out: Output) -> Iterator[tuple[Any, ...]]:
    location = table.snapshot.location
    tags: dict[int, list[str]] = {}
    for name, tag in table.tags.list().items():
        if tag["branch"] == table.snapshot.manifest.branch:
            tags.setdefault(tag["version"], []).append(name)
    entries = location.handler.list_versions(location.store)
    for snapshot in open_entries(location, entries[-last:] if last else entries):
        fragments = snapshot.fragments
        size = snapshot.data_bytes
        names = sorted(tags.get(snapshot.version, []))
        yield (
            snapshot.version,
            committed_at(snapshot),
            operation_of(snapshot),
            snapshot.num_rows,
            len(fragments),
            size if not out.is_for_people else size_text(size),
            (", ".join(names) if out.is_for_people else names) or None,
        )


def operation_of(snapshot: Snapshot) -> str:
    """Return the name of the operation that created a version."""
    transaction = snapshot.transaction
    return "unknown" if transaction is None else type(transaction.operation).__name__


def committed_at(snapshot: Snapshot) -> datetime:
    """Return the commit time of a version in UTC."""
    return datetime.fromtimestamp(snapshot.manifest.timestamp_ns / 1e9, UTC)
