"""UpdateMemWalState: how far each shard's flushed rows have been merged into the table.

The system index `__lance_mem_wal` holds, per shard, the last generation that is in the table.
Merging an older generation again changes nothing, so the number only grows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lancelet.errors import IndexNotFoundError
from lancelet.format.index_metadata import (
    MEM_WAL_INDEX,
    AnyDetails,
    IndexMetadata,
    uuid_from_proto,
    uuid_to_proto,
)
from lancelet.format.operation import CompactedSsTable, UpdateMemWalState
from lancelet.format.protos import index_details_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.table.apply.state import CommitContext, State

_TYPE_URL = "/lance.table.MemWalIndexDetails"


def apply_update_mem_wal_state(
    operation: UpdateMemWalState, state: State, context: CommitContext
) -> State:
    """Return the state in which shards are merged up to the operation's generations."""
    return replace(
        state,
        indices=record_generations(
            state.indices, operation.compacted_sstables, version=context.version
        ),
    )


def record_generations(
    indices: tuple[IndexMetadata, ...],
    compacted: Iterable[CompactedSsTable],
    *,
    version: int,
) -> tuple[IndexMetadata, ...]:
    """Return index segments in which the system index knows of merged generations."""
    merged = {entry.shard_id: entry.generation for entry in compacted}
    if not merged:
        return indices
    known = [index for index in indices if index.name == MEM_WAL_INDEX]
    if not known:
        raise IndexNotFoundError(
            "the table keeps no state of merged shards; initialize its MemWAL first",
            name=MEM_WAL_INDEX,
        )
    stored = b"" if known[0].details is None else known[0].details.value
    details = parse_message(index_details_pb.MemWalIndexDetails, stored)
    for entry in details.compacted_sstables:
        shard = uuid_from_proto(entry.shard_id)
        if shard in merged:
            entry.generation = max(entry.generation, merged.pop(shard))
    for shard, generation in merged.items():
        details.compacted_sstables.add(shard_id=uuid_to_proto(shard), generation=generation)
    recorded = replace(
        known[0],
        dataset_version=version,
        details=AnyDetails(_TYPE_URL, render_message(details)),
    )
    return tuple(recorded if index is known[0] else index for index in indices)
