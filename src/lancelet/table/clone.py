"""Create shallow and deep clones of a table version.

    shallow   one manifest that refers to the source's files    source  <root>/data/a.lance
                                                                clone   a.lance of base 0, <root>
    deep      a manifest and copies of all files it refers to

A clone has one version, with the number of the source's. The source must retain the files that
shallow clones refer to: it tracks its branches, which are shallow clones, but no other clones. A
clone of a clone copies the bases of its source and adds one. MemWAL shards are not cloned: a clone
has a write-ahead log if its source has one, but without shards or merged generations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteRanges
from lancelet.errors import (
    AlreadyExistsError,
    InvalidInputError,
    VersionRemovedError,
)
from lancelet.format.base_paths import BasePath
from lancelet.format.fragment import DataFile, External, Fragment, Inline, StoredSequence
from lancelet.format.fragment_list import FragmentList
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import Clone
from lancelet.format.paths import DATA, DATA_SUFFIX, DELETIONS, INDICES
from lancelet.format.transaction import Transaction
from lancelet.io import Store
from lancelet.io.pool import run_requests
from lancelet.io.uri import name, parse_uri
from lancelet.table.apply.mem_wal import clear_shards
from lancelet.table.apply.state import State
from lancelet.table.commit import publish_first
from lancelet.table.lineage import sequence_bytes
from lancelet.table.location import StorePath, TableLocation
from lancelet.table.removals import Removals
from lancelet.table.snapshot import Snapshot, latest_snapshot
from lancelet.values import replace

_COPY_BYTES: Final = 32 << 20
"""Bytes of a file held in memory while it is copied."""


def shallow_clone(
    source: Snapshot,
    target: TableLocation,
    *,
    branch: str | None = None,
    tag: str | None = None,
) -> Snapshot:
    """Create a table at `target` that refers to the files of `source`.

    `branch` is the name of the branch that the clone represents, or None. `tag` is the requested
    tag, stored as the name of the base.
    """
    source.check_changeable()
    _check_is_free(target)
    base = to_base_path(source)
    if tag is not None:
        base = replace(base, name=tag)
    manifest = source.manifest
    state = with_bases(
        source,
        replace(
            State(manifest, clear_shards(source.indices.indices)),
            manifest=replace(manifest, base_paths=(*manifest.base_paths, base), branch=branch),
        ),
        lambda base_id: base.id if base_id is None else base_id,
    )
    operation = Clone(
        is_shallow=True,
        ref_version=source.version,
        ref_path=base.path,
        ref_name=manifest.branch,
        branch_name=branch,
    )
    clone = _publish(source, target, state, operation)
    if branch is None:
        _check_not_removed(source, clone)
    return clone


def deep_clone(source: Snapshot, target: TableLocation) -> Snapshot:
    """Create a table at `target` with copies of all files of `source`, including files in bases."""
    source.check_changeable()
    _check_is_free(target)
    copy_files(source, target)
    manifest = replace(source.manifest, base_paths=(), branch=None)
    state = with_bases(
        source, State(manifest, clear_shards(source.indices.indices)), lambda _: None
    )
    operation = Clone(
        is_shallow=False,
        ref_version=source.version,
        ref_path=to_base_path(source).path,
        ref_name=source.manifest.branch,
    )
    return _publish(source, target, state, operation)


def copy_files(source: Snapshot, target: TableLocation, *, own_only: bool = False) -> None:
    """Copy the files of a version to a table; `own_only` excludes files stored in bases."""
    root = source.location.store.uri
    copies = _unique_copies(
        copy for copy in _copies(source) if not own_only or copy.source.store.uri == root
    )
    run_requests([partial(_copy, copy, target.store) for copy in copies])


def _publish(source: Snapshot, target: TableLocation, state: State, operation: Clone) -> Snapshot:
    transaction = Transaction(source.version, str(surroundings.new_uuid()), operation)
    manifest = replace(state.manifest, tag="", version_aux_data=0).with_flags()
    state = replace(state, manifest=manifest)
    return publish_first(target, transaction, state, source.entry.naming)


def _check_not_removed(source: Snapshot, clone: Snapshot) -> None:
    """Raise if a concurrent cleanup removes the source, so that the clone may lack files.

    Later cleanups do not protect the files of clones, as the source does not track them.
    """
    removed = Removals.load(source.location.store).transactions
    if source.exists() and source.version not in removed:
        return
    clone.location.store.delete(clone.entry.path)
    raise VersionRemovedError(
        "the version was cleaned up while it was cloned; clone a retained version, or tag it first",
        uri=source.location.uri,
        version=source.version,
    )


def _check_is_free(target: TableLocation) -> None:
    if latest_snapshot(target) is not None:
        raise AlreadyExistsError("Dataset already exists", uri=target.uri)


def to_base_path(source: Snapshot) -> BasePath:
    """Return the source as a base of a clone, with an id unused by its own bases."""
    parsed = parse_uri(source.location.store.uri)
    is_local = parsed.scheme == "file"
    path = parsed.authority + parsed.path if is_local else source.location.store.uri
    existing = source.manifest.bases
    base_id = max(existing, default=0) + 1 if 0 in existing else 0
    return BasePath(base_id, path, is_dataset_root=True, name=source.manifest.branch)


def with_bases(source: Snapshot, state: State, rebase: Callable[[int | None], int | None]) -> State:
    """Return a state of a version with the base id of every file mapped by `rebase`.

    Row id and version sequences stored in separate files are inlined into the manifest.
    """
    fragments = FragmentList.of(
        _rebased_fragment(source, fragment, rebase) for fragment in state.manifest.fragments
    )
    indices = tuple(replace(index, base_id=rebase(index.base_id)) for index in state.indices)
    return State(replace(state.manifest, fragments=fragments), indices)


def _rebased_fragment(
    source: Snapshot, fragment: Fragment, rebase: Callable[[int | None], int | None]
) -> Fragment:
    def inlined(stored: StoredSequence | None) -> StoredSequence | None:
        # External sequences have no base id: their paths are relative to the root of their table.
        if not isinstance(stored, External):
            return stored
        return Inline(sequence_bytes(source, stored))

    def with_base(file: DataFile) -> DataFile:
        return replace(file, base_id=rebase(file.base_id))

    deletion = fragment.deletion_file
    return replace(
        fragment,
        files=tuple(map(with_base, fragment.files)),
        row_ids=inlined(fragment.row_ids),
        last_updated_at_versions=inlined(fragment.last_updated_at_versions),
        created_at_versions=inlined(fragment.created_at_versions),
        overlays=tuple(
            replace(overlay, data_file=with_base(overlay.data_file))
            for overlay in fragment.overlays
        ),
        deletion_file=None
        if deletion is None
        else replace(deletion, base_id=rebase(deletion.base_id)),
    )


class _FileCopy(NamedTuple):
    """A file to copy and its path below the root of the clone."""

    source: StorePath
    target: str


def _copies(source: Snapshot) -> Iterator[_FileCopy]:
    bases = source.manifest.bases
    for fragment in source.fragments:
        for file in (*fragment.files, *(overlay.data_file for overlay in fragment.overlays)):
            data_file = source.location.resolve(DATA, file.path, file.base_id, bases)
            yield _FileCopy(data_file, f"{DATA}/{file.path}")
            yield from _blob_copies(data_file, f"{DATA}/{file.path}")
        deletion = fragment.deletion_file
        if deletion is not None:
            path = name(deletion.path(fragment.id))
            data_file = source.location.resolve(DELETIONS, path, deletion.base_id, bases)
            yield _FileCopy(data_file, f"{DELETIONS}/{path}")
    for index in source.indices.indices:
        yield from _index_copies(source, index, bases)


def _blob_copies(data_file: StorePath, target: str) -> Iterator[_FileCopy]:
    """Yield the blob files that belong to a data file."""
    folder = data_file.path.removesuffix(DATA_SUFFIX)
    for info in data_file.store.list(folder):
        blob = info.path.removeprefix(folder)
        source = StorePath(data_file.store, info.path)
        yield _FileCopy(source, target.removesuffix(DATA_SUFFIX) + blob)


def _index_copies(
    source: Snapshot, index: IndexMetadata, bases: Mapping[int, BasePath]
) -> Iterator[_FileCopy]:
    folder = source.location.resolve(INDICES, str(index.uuid), index.base_id, bases)
    for info in folder.store.list(folder.path):
        within = info.path.removeprefix(folder.path)
        yield _FileCopy(StorePath(folder.store, info.path), index.directory + within)


def _unique_copies(copies: Iterable[_FileCopy]) -> list[_FileCopy]:
    """Remove duplicate copies; raise if two sources have the same target."""
    by_target: dict[str, _FileCopy] = {}
    for copy in copies:
        other = by_target.setdefault(copy.target, copy).source
        if (other.store.uri, other.path) != (copy.source.store.uri, copy.source.path):
            raise InvalidInputError(
                "two files of different bases have one name and cannot be in one clone",
                path=copy.target,
                bases=[other.store.uri, copy.source.store.uri],
            )
    return list(by_target.values())


def _copy(copy: _FileCopy, target: Store) -> None:
    with (
        copy.source.store.open_reader(copy.source.path) as reader,
        target.open_writer(copy.target) as writer,
    ):
        starts = np.arange(0, reader.size, _COPY_BYTES).tolist()
        for start in starts:
            size = min(_COPY_BYTES, reader.size - start)
            writer.write(reader.read_ranges(ByteRanges.of((start, size))).slice_bytes(0))
