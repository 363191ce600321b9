"""Read merged rows that an index of the base table does not cover yet from flushed tables.

    index `near`    fragments 0 1, caught up to generation 2
    table           fragments 0 1 2, merged up to generation 4
    a search        base: only with `near`    generations 3, 4: with their own indices

Fragment 2 is not scanned, since it contains the rows of generations 3 and 4. This requires that
every commit since the index was complete merged these generations or changed no rows, according to
the transactions. Otherwise, or if a flushed table was deleted, the unindexed rows of the base are
scanned.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from lancelet.errors import NotFoundError
from lancelet.expr.compile import compile_filter
from lancelet.expr.traversal import columns_of
from lancelet.format.operation import (
    CreateIndex,
    ReserveFragments,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)
from lancelet.memwal.merged import MergedRead
from lancelet.memwal.state import mem_wal_state
from lancelet.table.snapshot import Snapshot, open_snapshot

_VERSIONS_MAX: Final = 64
"""The maximum number of versions to examine; an index that is older than that is not used."""
_KEEPS_ROWS: Final = (CreateIndex, UpdateConfig, UpdateMemWalState, ReserveFragments, UpdateBases)


def with_catch_up(read: MergedRead, field_ids: Collection[int] = ()) -> MergedRead:
    """Return a read that replaces unindexed rows by flushed tables, if these contain all of them.

    Args:
        read: The read to change.
        field_ids: The searched fields, in addition to the columns of the filter.
    """
    state = mem_wal_state(read.base)
    if state is None or not state.compacted:
        return read
    searched_ids = {*field_ids, *_filtered_fields(read)}
    segments = [
        index
        for index in read.base.indices.indices
        if not index.is_system and len(index.fields) == 1 and index.fields[0] in searched_ids
    ]
    if not segments:
        return read
    names = {index.name for index in segments}
    caught_up = {
        shard: min(state.caught_up.get(name, {}).get(shard, 0) for name in names)
        for shard in state.compacted
    }
    if caught_up == state.compacted or not _has_unindexed_tables(read, state.compacted, caught_up):
        return read
    covered: list[set[int]] = [
        {
            int(each)
            for index in segments
            if index.name == name
            for each in index.fragment_bitmap or ()
        }
        for name in names
    ]
    lacking = set(read.base.fragments.ids.tolist()) - covered[0].intersection(*covered)
    if not lacking or not _contains_only_merges(read.base, lacking, caught_up):
        return read
    return replace(read, caught_up=caught_up)


def _filtered_fields(read: MergedRead) -> set[int]:
    if read.filter is None:
        return set()
    schema = read.base.schema
    paths = columns_of(compile_filter(read.filter, schema.to_arrow()))
    return {
        field.id
        for path in paths
        for field in schema.fields
        if field.name == path[0] and len(path) == 1
    }


def _has_unindexed_tables(
    read: MergedRead, compacted: Mapping[uuid.UUID, int], caught_up: Mapping[uuid.UUID, int]
) -> bool:
    """Return whether the flushed tables of all merged but unindexed generations exist."""
    tables = {each.shard_id: each.sstables for each in read.shards}
    for shard, merged in compacted.items():
        first = caught_up[shard]
        own = [each for each in tables.get(shard, {}) if first < each <= merged]
        if len(own) != merged - first:
            return False
    return True


def _contains_only_merges(
    base: Snapshot, lacking: set[int], caught_up: Mapping[uuid.UUID, int]
) -> bool:
    """Return whether unindexed fragments contain only rows of merges, and are unchanged since."""
    version, left = base, set(lacking)
    for _ in range(_VERSIONS_MAX):
        transaction = version.transaction
        operation = None if transaction is None else transaction.operation
        if isinstance(operation, Update) and operation.compacted_sstables:
            compacted = operation.compacted_sstables
            if any(each.generation <= caught_up.get(each.shard_id, 0) for each in compacted):
                return False
        elif not isinstance(operation, _KEEPS_ROWS):
            return False
        try:
            before = open_snapshot(version.location, version.version - 1)
        except NotFoundError:
            return False
        left &= set(before.fragments.ids.tolist())
        if not left:
            return True
        version = before
    return False
