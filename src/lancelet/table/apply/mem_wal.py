"""UpdateMemWalState: record the generation of each shard merged into the table.

The system index `__lance_mem_wal` stores, per shard, the last generation merged into the table.
Merging an older generation would overwrite newer rows, so a commit whose generation is not above
the recorded one is rejected:

    recorded 1     merge 2    recorded 2
    recorded 2     merge 2    rejected: already merged, continue with 3
    recorded 2     merge 1    rejected: its rows are older than those of the table
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence

from lancelet.errors import CommitError, IndexNotFoundError, InvalidInputError
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
from lancelet.values import replace

LOG_TYPE_URL = "/lance.table.MemWalIndexDetails"


def log_entry(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """Return the MemWAL system index, or None."""
    return next((index for index in indices if index.name == MEM_WAL_INDEX), None)


def log_details(entry: IndexMetadata) -> index_details_pb.MemWalIndexDetails:
    """Return the details message of the MemWAL system index."""
    stored = b"" if entry.details is None else entry.details.value
    return parse_message(index_details_pb.MemWalIndexDetails, stored)


def with_log_details(
    entry: IndexMetadata, details: index_details_pb.MemWalIndexDetails
) -> IndexMetadata:
    """Return the system index with other details."""
    return replace(entry, details=AnyDetails(LOG_TYPE_URL, render_message(details)))


def generations_by_shard(
    stored: Iterable[index_details_pb.MergedGeneration],
) -> dict[uuid.UUID, int]:
    """Return the last generation by shard."""
    return {uuid_from_proto(each.shard_id): each.generation for each in stored}


class StaleCompactionError(CommitError):
    """The generation, or a later one, is already merged; skip it and continue."""


class DuplicateShardError(InvalidInputError, OSError):
    """A commit moves a shard forward once, not several times."""


def apply_update_mem_wal_state(
    operation: UpdateMemWalState, state: State, context: CommitContext
) -> State:
    """Return the state with updated merged generations of shards."""
    return replace(
        state,
        indices=record_generations(
            state.indices, operation.compacted_sstables, version=context.version
        ),
    )


def record_generations(
    indices: tuple[IndexMetadata, ...],
    compacted: Sequence[CompactedSsTable],
    *,
    version: int,
) -> tuple[IndexMetadata, ...]:
    """Return the index segments with merged generations recorded in the system index."""
    if not compacted:
        return indices
    entry, details = _validated_details(indices, compacted)
    merged = {each.shard_id: each.generation for each in compacted}
    for stored in details.compacted_sstables:
        stored.generation = merged.pop(uuid_from_proto(stored.shard_id), stored.generation)
    for shard, generation in merged.items():
        details.compacted_sstables.add(shard_id=uuid_to_proto(shard), generation=generation)
    recorded = replace(with_log_details(entry, details), dataset_version=version)
    return tuple(recorded if index is entry else index for index in indices)


def clear_shards(indices: Iterable[IndexMetadata]) -> tuple[IndexMetadata, ...]:
    """Clear the shard state of the MemWAL index.

    The generations that a source table merged do not apply to the shards of its clone.
    """
    return tuple(
        _without_shards(index) if index.name == MEM_WAL_INDEX else index for index in indices
    )


def _without_shards(entry: IndexMetadata) -> IndexMetadata:
    if entry.details is None:
        return entry
    details = log_details(entry)
    for name in ("compacted_sstables", "index_catchup", "inline_snapshots"):
        details.ClearField(name)
    return replace(with_log_details(entry, details), files=())


def check_generations(
    indices: Iterable[IndexMetadata], compacted: Sequence[CompactedSsTable]
) -> None:
    """Raise if a table already has generations that a commit is about to merge."""
    if compacted:
        _validated_details(indices, compacted)


def _validated_details(
    indices: Iterable[IndexMetadata], compacted: Sequence[CompactedSsTable]
) -> tuple[IndexMetadata, index_details_pb.MemWalIndexDetails]:
    entry = log_entry(indices)
    if entry is None:
        raise IndexNotFoundError(
            "the table has no state of merged shards; initialize its MemWAL first",
            name=MEM_WAL_INDEX,
        )
    duplicates = [
        shard for shard, count in Counter(each.shard_id for each in compacted).items() if count > 1
    ]
    if duplicates:
        raise DuplicateShardError(
            "a commit may advance each shard once; pass the last generation whose rows it contains",
            shard=str(duplicates[0]),
        )
    details = log_details(entry)
    recorded = generations_by_shard(details.compacted_sstables)
    for each in compacted:
        if each.shard_id in recorded and each.generation <= recorded[each.shard_id]:
            raise StaleCompactionError(
                "Stale SSTable compaction: the generation is already in the table; omit it, "
                "and merge the ones after it",
                shard=str(each.shard_id),
                generation=each.generation,
                recorded_generation=recorded[each.shard_id],
            )
    return entry, details
