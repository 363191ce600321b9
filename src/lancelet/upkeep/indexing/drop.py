"""Drop indices; cleanup deletes their files."""

from __future__ import annotations

from lancelet.change.mem_wal_guard import refuse_with_log
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import IndexNotFoundError, similar_names
from lancelet.format.index_metadata import MEM_WAL_INDEX, IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.table.snapshot import Snapshot


class UnknownIndexError(IndexNotFoundError, KeyError, RuntimeError):
    """The index does not exist."""


def drop_index(snapshot: Snapshot, name: str) -> Snapshot:
    """Remove an index from the latest version of the table."""

    def attempt(current: Snapshot) -> Snapshot:
        if name == MEM_WAL_INDEX:
            refuse_with_log(current, "drop the system index", "call drop_mem_wal")
        return publish(current, CreateIndex((), find_segments(current, name)))

    return with_retries(snapshot, attempt, Retries())


def find_segments(snapshot: Snapshot, name: str) -> tuple[IndexMetadata, ...]:
    """Return the segments of an index, in manifest order."""
    segments = tuple(index for index in snapshot.indices.indices if index.name == name)
    if not segments:
        names = sorted({index.name for index in snapshot.indices.indices})
        hint = similar_names(name, names)
        raise UnknownIndexError(f"Lance index not found{hint}", name=name, available=names)
    return segments
