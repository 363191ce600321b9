"""Flushed tables: ordinary tables with one version, and files for key lookups.

    1f0c9a2e_gen_3/_versions, data    rows in insertion order; only the last row of a key is live
    1f0c9a2e_gen_3/_indices           indices that the base table also has; see `mem_wal.indices`
    1f0c9a2e_gen_3/_pk_index          the row offset of each key, if the key type is ordered
    1f0c9a2e_gen_3/bloom_filter.bin   a Bloom filter of the keys

Fields have the ids of the base table, so that they can be read after columns of the base were
renamed, added or dropped; see `mem_wal.reconcile`. A deleted row contains only its key, with
`_tombstone` set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.change.publish import new_transaction
from lancelet.change.write import FileLimits, FileOptions, Target, write_fragments
from lancelet.errors import CommitOutcomeUnknownError, StorageUnavailableError
from lancelet.format.operation import Overwrite
from lancelet.format.paths import ManifestNaming
from lancelet.format.schema import Schema
from lancelet.format.shard_manifest import SsTable
from lancelet.format.split_block import build_filter
from lancelet.index.base import IndexedRows, Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.scalar.btree.kind import BTree
from lancelet.memwal.indices import MaintainedIndex
from lancelet.memwal.keys import are_ordered, key_hashes, last_rows, ordered_keys
from lancelet.memwal.reconcile import IrreconcilableError, reconcile_schema, stored_schema
from lancelet.memwal.shard import Shard
from lancelet.rowids.deletion import DeletionVector
from lancelet.table.apply.dispatch import apply_operation
from lancelet.table.apply.state import CommitContext
from lancelet.table.commit import publish_first
from lancelet.table.conflict.rebase import with_deletions
from lancelet.table.snapshot import Snapshot, open_snapshot, unsaved_snapshot

KEYS_FOLDER: Final = "_pk_index"
BLOOM_FILTER: Final = "bloom_filter.bin"
_FILTER_BYTES: Final = 1 << 15
_ROWS_MAX: Final = 1 << 31


def write_sstable(
    shard: Shard,
    base: Snapshot,
    rows: pa.Table,
    generation: int,
    indices: Sequence[MaintainedIndex] = (),
) -> SsTable:
    """Write rows in insertion order as a table in the folder of the shard, with indices."""
    name = f"{surroundings.new_uuid().hex[:8]}_gen_{generation}"
    location = shard.location.below(f"{shard.folder}/{name}")
    schema, keys = stored_schema(base.schema), base.schema.primary_key
    version = base.manifest.data_version
    files = FileOptions(version=version, limits=FileLimits(max_rows_per_file=_ROWS_MAX))
    batches = rows.combine_chunks().to_batches()
    (fragment,) = write_fragments([Target(location.store)], batches, schema, files)
    if keys:
        named = rows.select([key.name for key in keys])
        hidden = np.setdiff1d(np.arange(len(rows)), last_rows(named))
        if len(hidden):
            vector = DeletionVector.of(hidden)
            fragment = with_deletions(fragment, vector, read_version=1)
            assert fragment.deletion_file is not None, "rows were just deleted"
            path = fragment.deletion_file.path(fragment.id)
            location.store.put(path, vector.render(path))
        if are_ordered(named.schema):
            write_keys(SegmentFolder(location.store, KEYS_FOLDER), named)
    filter_ = build_filter(key_hashes(named) if keys else np.empty(0, np.uint64), _FILTER_BYTES)
    location.store.put(BLOOM_FILTER, filter_)
    overwrite = Overwrite((fragment,), schema, {}, ())
    state = apply_operation(overwrite, None, CommitContext(version=1, data_version=version))
    about = unsaved_snapshot(location, state.manifest)
    state = replace(state, indices=tuple(index.build(about) for index in indices))
    try:
        publish_first(location, new_transaction(0, overwrite), state, ManifestNaming.V2)
    except CommitOutcomeUnknownError as error:
        # No manifest of the shard refers to the folder, so the next flush writes another one.
        raise StorageUnavailableError(
            "it is unknown whether a flushed table was written; the next flush writes another one",
            table=name,
            shard=str(shard.shard_id),
        ) from error
    key_bytes = sum(column.nbytes for column in named.columns) if keys else 0
    return SsTable(generation, name, rows.nbytes, len(rows), key_bytes)


def open_sstable(shard: Shard, path: str, base: Schema) -> Snapshot:
    """Open a flushed table with the current column names and columns of the base table."""
    stored = open_snapshot(shard.location.below(f"{shard.folder}/{path}"))
    try:
        schema = reconcile_schema(stored.schema, base)
    except IrreconcilableError as error:
        raise error.with_facts(path=path, shard=str(shard.shard_id)) from None
    manifest = replace(stored.manifest, schema=schema)
    return Snapshot(stored.location, stored.entry, replace(stored.stored, manifest=manifest))


def write_keys(folder: SegmentFolder, keys: pa.Table) -> None:
    """Write the row offset of each key of a flushed table."""
    values = ordered_keys(keys)
    offsets = np.arange(len(values), dtype=np.uint64)
    BTree().train(IndexedRows(values.type, [(values, offsets)], len(values)), folder, Parameters())
