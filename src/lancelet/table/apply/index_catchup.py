"""Which flushed tables of a write-ahead log each index has: what that is known by, and noted.

    version 7     fragments 0 1, generation 3 merged
    commit        read version 7, leaves index `by_id` with segments of fragments 0 1
    noted         by_id: 3

Nothing says which fragments the rows of a generation went to. But an index that has every fragment
of the version that a commit read has all rows that were merged by then. Later a note stays as long
as the segments of the index do, and goes with them: an index without a note may lack anything.
A note never says more than the version itself has merged.

Readers may then rely on the index instead of the flushed tables, which can be deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pyroaring import BitMap

from lancelet.format.index_metadata import IndexMetadata, uuid_to_proto
from lancelet.format.protos import index_details_pb
from lancelet.table.apply.mem_wal import (
    generations_of,
    log_details,
    log_entry,
    with_log_details,
)
from lancelet.table.apply.state import State
from lancelet.values import replace

Generations: TypeAlias = Mapping[uuid.UUID, int]
"""The last generation by shard."""


def has_merged_tables(state: State) -> bool:
    """Return whether there is a log of which anything was merged, and an index to note it of."""
    entry = log_entry(state.indices)
    return (
        entry is not None
        and any(not index.is_system for index in state.indices)
        and any(each.generation for each in log_details(entry).compacted_sstables)
    )


def with_index_catchup(state: State, before: State, read: State | None) -> State:
    """Return a state that notes of each index which flushed tables it has.

    `before` is the version that the state follows, and `read` the one that the commit was computed
    from; None if it is not there any more.
    """
    entry = log_entry(state.indices)
    if entry is None:
        return state
    details = log_details(entry)
    merged = generations_of(details.compacted_sstables)
    if not merged:
        return state
    then = {} if read is None else _merged_in(read)
    kept = {
        each.index_name: generations_of(each.caught_up_generations)
        for each in details.index_catchup
    }
    own, others = _segments(state.indices), _segments(before.indices)
    notes = []
    for name in sorted(own):
        known = kept.get(name, {}) if own[name] == others.get(name) else {}
        proven = then if read is not None and _covers(own[name], read) else {}
        has = {
            shard: min(max(known.get(shard, 0), proven.get(shard, 0)), generation)
            for shard, generation in merged.items()
        }
        if any(has.values()):
            notes.append(_note(name, has))
    if notes == list(details.index_catchup):
        return state
    del details.index_catchup[:]
    details.index_catchup.extend(notes)
    noted = replace(with_log_details(entry, details), dataset_version=state.manifest.version)
    indices = tuple(noted if index is entry else index for index in state.indices)
    return replace(state, indices=indices)


def _merged_in(state: State) -> Generations:
    entry = log_entry(state.indices)
    return {} if entry is None else generations_of(log_details(entry).compacted_sstables)


def _segments(
    indices: Iterable[IndexMetadata],
) -> dict[str, dict[uuid.UUID, frozenset[int] | None]]:
    """Return the fragments of each segment of each index; None where it does not say."""
    found: dict[str, dict[uuid.UUID, frozenset[int] | None]] = {}
    for index in indices:
        if not index.is_system:
            bitmap = index.fragment_bitmap
            own = None if bitmap is None else frozenset(bitmap)
            found.setdefault(index.name, {})[index.uuid] = own
    return found


def _covers(segments: Mapping[uuid.UUID, frozenset[int] | None], read: State) -> bool:
    """Return whether segments have every fragment there was; none at all proves nothing."""
    wanted = BitMap(read.manifest.fragments.ids)
    if not wanted or None in segments.values():
        return False
    return wanted <= BitMap().union(*(BitMap(own or ()) for own in segments.values()))


def _note(name: str, generations: Generations) -> index_details_pb.IndexCatchupProgress:
    note = index_details_pb.IndexCatchupProgress(index_name=name)
    for shard, generation in generations.items():
        note.caught_up_generations.add(shard_id=uuid_to_proto(shard), generation=generation)
    return note
