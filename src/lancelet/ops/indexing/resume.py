"""A build that goes on where it was stopped: a segment per group of fragments, then one of all.

    fragments     0 1 2 | 3 4 5 | 6 7          groups of about a million rows
    parts         5f..    a3..    killed       _indices/<hash>/part.binpb says where each is
    once more     found   found   written      then merged, committed, and the parts removed

What a part is of is hashed: the column, the kind and what it was asked for, and the fragments as
the version has them, files and deletions included. So a part is found again as long as nothing of
that has changed, in later versions too, and is never mistaken for another. A part that was not
finished has no note and is written anew. What nobody comes back for is removed by the cleanup of
files that no version lists.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from lancelet.errors import CorruptDataError, ObjectNotFoundError, StorageError
from lancelet.format.index_metadata import IndexMetadata, IndexSection
from lancelet.format.operation import CreateIndex
from lancelet.format.paths import index_directory
from lancelet.index.base import Parameters
from lancelet.index.registry import kind_by_name
from lancelet.ops.indexing.build import (
    IndexRequest,
    build_segment,
    create_scalar_index,
    fields_to,
    fragments_to_index,
    name_of,
    replaced_by,
)
from lancelet.ops.indexing.optimize import merge_segments
from lancelet.ops.publish import publish
from lancelet.table.commit import check_table_exists
from lancelet.table.snapshot import Snapshot

_NOTE: Final = "part.binpb"
_PART_ROWS: Final = 1 << 20


def resume_scalar_index(
    snapshot: Snapshot, request: IndexRequest, part_rows: int = _PART_ROWS
) -> Snapshot:
    """Build an index and commit it; parts that an earlier build finished are not built again.

    An index of values within documents has its type from the first of all, so it has no parts.
    """
    check_table_exists(snapshot)
    name = name_of(snapshot, request)
    kind = kind_by_name(request.kind).with_parameters(Parameters(request.parameters))
    groups = list(_groups(snapshot, fragments_to_index(snapshot, request), part_rows))
    if len(groups) < 2 or kind.json_path is not None:
        return create_scalar_index(snapshot, request)
    replaced = replaced_by(snapshot, name, request.column, replaces=request.replaces)
    notes = [_note_of(snapshot, request, group) for group in groups]
    parts = [
        _part(snapshot, replace(request, fragments=tuple(group), uuid=None), note)
        for group, note in zip(groups, notes, strict=True)
    ]
    merged = merge_segments(snapshot, [replace(part, name=name) for part in parts])
    done = publish(snapshot, CreateIndex((merged,), replaced))
    _remove(snapshot, parts, notes)
    return done


def _groups(snapshot: Snapshot, fragments: list[int], part_rows: int) -> Iterator[list[int]]:
    """Yield fragments that make a part, in the order of the table."""
    group: list[int] = []
    rows = 0
    for fragment_id in fragments:
        group.append(fragment_id)
        rows += snapshot.live_rows(snapshot.fragments.by_id(fragment_id))
        if rows >= part_rows:
            yield group
            group, rows = [], 0
    if group:
        yield group


def _note_of(snapshot: Snapshot, request: IndexRequest, group: list[int]) -> str:
    """Return the path of what says where a part is, by all that the part depends on."""
    hashed = hashlib.sha256()
    asked = (
        int(fields_to(snapshot, request.column)[-1].id),
        request.kind.upper(),
        sorted((name, repr(value)) for name, value in request.parameters.items()),
        snapshot.manifest.uses_stable_row_ids,
        str(snapshot.manifest.data_version),
    )
    hashed.update(repr(asked).encode())
    for fragment_id in group:
        hashed.update(snapshot.fragments.by_id(fragment_id).render())
    return f"{index_directory(uuid.UUID(bytes=hashed.digest()[:16]))}/{_NOTE}"


def _part(snapshot: Snapshot, request: IndexRequest, note: str) -> IndexMetadata:
    """Return a part that was finished earlier, or write it, and then the note about it."""
    kept = _kept(snapshot, note)
    if kept is not None:
        return kept
    part = build_segment(snapshot, request)
    snapshot.location.store.put(note, IndexSection((part,)).render())
    return part


def _kept(snapshot: Snapshot, note: str) -> IndexMetadata | None:
    """Return the part that a note is about if all its files are there."""
    store = snapshot.location.store
    try:
        (part,) = IndexSection.parse(store.read(note)).indices
        sizes = [store.info(f"{part.directory}/{file.path}").size for file in part.files]
    except (ObjectNotFoundError, CorruptDataError, ValueError):
        return None
    return part if sizes == [file.size_bytes for file in part.files] else None


def _remove(snapshot: Snapshot, parts: list[IndexMetadata], notes: list[str]) -> None:
    """Remove what is merged now; notes go first, so that none is left about what is gone."""
    files = [f"{part.directory}/{file.path}" for part in parts for file in part.files]
    for path in (*notes, *files):
        # The index is committed. What cannot be removed is left to the cleanup.
        with suppress(StorageError):
            snapshot.location.store.delete(path)
