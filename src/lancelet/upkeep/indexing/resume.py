"""Resumable index builds: one segment per group of fragments, merged at the end.

    fragments     0 1 2 | 3 4 5 | 6 7          groups of about a million rows
    parts         5f..    a3..    interrupted  _indices/<hash>/part.binpb has the metadata of each
    second run    reused  reused  written      then merged, committed, and the parts deleted

The hash of a part covers the column, the index type, its parameters, and the fragments of the group
with their files and deletions. A part is reused, also in later versions, as long as none of these
change. A part without metadata was interrupted and is rebuilt. Cleanup deletes abandoned parts as
unreferenced files.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from lancelet.change.publish import publish
from lancelet.errors import CorruptDataError, ObjectNotFoundError, StorageError
from lancelet.format.index_metadata import IndexMetadata, IndexSection
from lancelet.format.operation import CreateIndex
from lancelet.format.paths import index_directory
from lancelet.index.base import Parameters
from lancelet.index.registry import kind_by_name
from lancelet.table.commit import check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.build import (
    IndexRequest,
    build_segment,
    create_scalar_index,
    fragments_to_index,
    index_name,
    replaced_segments,
    resolve_column,
)
from lancelet.upkeep.indexing.optimize import merge_segments

_PART_METADATA: Final = "part.binpb"
_PART_ROWS: Final = 1 << 20


def resume_scalar_index(
    snapshot: Snapshot, request: IndexRequest, part_rows: int = _PART_ROWS
) -> Snapshot:
    """Build an index and commit it, reusing the finished parts of an interrupted build.

    An index on JSON values takes its type from the first value of all, so that it has no parts.
    """
    check_table_exists(snapshot)
    name = index_name(snapshot, request)
    kind = kind_by_name(request.kind).with_parameters(Parameters(request.parameters))
    groups = list(_groups(snapshot, fragments_to_index(snapshot, request), part_rows))
    if len(groups) < 2 or kind.json_path is not None:
        return create_scalar_index(snapshot, request)
    replaced = replaced_segments(snapshot, name, request.column, replaces=request.replaces)
    metadata_paths = [_metadata_path(snapshot, request, group) for group in groups]
    parts = [
        _load_or_build(snapshot, replace(request, fragments=tuple(group), uuid=None), metadata_path)
        for group, metadata_path in zip(groups, metadata_paths, strict=True)
    ]
    merged = merge_segments(snapshot, [replace(part, name=name) for part in parts])
    done = publish(snapshot, CreateIndex((merged,), replaced))
    _remove(snapshot, parts, metadata_paths)
    return done


def _groups(snapshot: Snapshot, fragments: list[int], part_rows: int) -> Iterator[list[int]]:
    """Yield groups of fragments in table order, one for each part."""
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


def _metadata_path(snapshot: Snapshot, request: IndexRequest, group: list[int]) -> str:
    """Return the path of the metadata of a part, derived from everything the part depends on."""
    digest = hashlib.sha256()
    identity = (
        int(resolve_column(snapshot, request.column)[-1].id),
        request.kind.upper(),
        sorted((name, repr(value)) for name, value in request.parameters.items()),
        snapshot.manifest.uses_stable_row_ids,
        str(snapshot.manifest.data_version),
    )
    digest.update(repr(identity).encode())
    for fragment_id in group:
        digest.update(snapshot.fragments.by_id(fragment_id).render())
    return f"{index_directory(uuid.UUID(bytes=digest.digest()[:16]))}/{_PART_METADATA}"


def _load_or_build(snapshot: Snapshot, request: IndexRequest, metadata_path: str) -> IndexMetadata:
    """Return a finished part, or write it and then its metadata."""
    finished = _load_part(snapshot, metadata_path)
    if finished is not None:
        return finished
    part = build_segment(snapshot, request)
    snapshot.location.store.put(metadata_path, IndexSection((part,)).render())
    return part


def _load_part(snapshot: Snapshot, metadata_path: str) -> IndexMetadata | None:
    """Return the metadata of a part if all its files exist."""
    store = snapshot.location.store
    try:
        (part,) = IndexSection.parse(store.read(metadata_path)).indices
        sizes = [store.info(f"{part.directory}/{file.path}").size for file in part.files]
    except (ObjectNotFoundError, CorruptDataError, ValueError):
        return None
    return part if sizes == [file.size_bytes for file in part.files] else None


def _remove(snapshot: Snapshot, parts: list[IndexMetadata], metadata_paths: list[str]) -> None:
    """Delete the parts; metadata first, so that it never refers to missing files."""
    files = [f"{part.directory}/{file.path}" for part in parts for file in part.files]
    for path in (*metadata_paths, *files):
        # The index is committed; cleanup deletes the remaining files.
        with suppress(StorageError):
            snapshot.location.store.delete(path)
