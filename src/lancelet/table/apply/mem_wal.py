"""UpdateMemWalState: how far each shard's flushed rows have been merged into the table.

The system index `__lance_mem_wal` holds, per shard, the last generation that is in the table. Rows
of an older generation would take the place of newer ones, so a commit that merges a generation
which is not above the recorded one is refused, with its rows:

    recorded 1     merge 2    recorded 2
    recorded 2     merge 2    refused: somebody merged it already, go on with 3
    recorded 2     merge 1    refused: its rows are older than those of the table
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
    """Return the system index of a log, None if there is no log."""
    return next((index for index in indices if index.name == MEM_WAL_INDEX), None)


def log_details(entry: IndexMetadata) -> index_details_pb.MemWalIndexDetails:
    """Return what the system index says."""
    stored = b"" if entry.details is None else entry.details.value
    return parse_message(index_details_pb.MemWalIndexDetails, stored)


def with_log_details(
    entry: IndexMetadata, details: index_details_pb.MemWalIndexDetails
) -> IndexMetadata:
    """Return a system index that says something else."""
    return replace(entry, details=AnyDetails(LOG_TYPE_URL, render_message(details)))


def generations_of(stored: Iterable[index_details_pb.MergedGeneration]) -> dict[uuid.UUID, int]:
    """Return the last generation by shard."""
    return {uuid_from_proto(each.shard_id): each.generation for each in stored}


class StaleCompactionError(CommitError):
    """The generation, or a later one, is in the table already; leave it out and go on."""


class DuplicateShardError(InvalidInputError, OSError):
    """A commit moves a shard forward once, not several times."""


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
    compacted: Sequence[CompactedSsTable],
    *,
    version: int,
) -> tuple[IndexMetadata, ...]:
    """Return index segments in which the system index knows of merged generations."""
    if not compacted:
        return indices
    entry, details = _checked(indices, compacted)
    merged = {each.shard_id: each.generation for each in compacted}
    for known in details.compacted_sstables:
        known.generation = merged.pop(uuid_from_proto(known.shard_id), known.generation)
    for shard, generation in merged.items():
        details.compacted_sstables.add(shard_id=uuid_to_proto(shard), generation=generation)
    recorded = replace(with_log_details(entry, details), dataset_version=version)
    return tuple(recorded if index is entry else index for index in indices)


def forget_shards(indices: Iterable[IndexMetadata]) -> tuple[IndexMetadata, ...]:
    """Return index segments of a table that has the log of another one, and none of its shards.

    What the other merged of a shard says nothing of a shard of the same id here.
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
    """Raise if a table has generations already that a commit is to merge, before it writes."""
    if compacted:
        _checked(indices, compacted)


def _checked(
    indices: Iterable[IndexMetadata], compacted: Sequence[CompactedSsTable]
) -> tuple[IndexMetadata, index_details_pb.MemWalIndexDetails]:
    entry = log_entry(indices)
    if entry is None:
        raise IndexNotFoundError(
            "the table keeps no state of merged shards; initialize its MemWAL first",
            name=MEM_WAL_INDEX,
        )
    often = [
        shard for shard, times in Counter(each.shard_id for each in compacted).items() if times > 1
    ]
    if often:
        raise DuplicateShardError(
            "a commit may move each shard forward once; give the last generation whose rows it has",
            shard=str(often[0]),
        )
    details = log_details(entry)
    recorded = generations_of(details.compacted_sstables)
    for each in compacted:
        if each.shard_id in recorded and each.generation <= recorded[each.shard_id]:
            raise StaleCompactionError(
                "Stale SSTable compaction: the generation is in the table already; leave it out, "
                "and merge the ones after it",
                shard=str(each.shard_id),
                generation=each.generation,
                recorded_generation=recorded[each.shard_id],
            )
    return entry, details
