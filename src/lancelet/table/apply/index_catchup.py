"""Record which flushed MemWAL generations each index covers.

    version 7     fragments 0 1, generation 3 merged
    commit        read version 7, leaves index `by_id` with segments of fragments 0 1
    recorded      by_id: 3

The fragments that contain the rows of a generation are not recorded. An index that covers every
fragment of the version that a commit read contains all rows merged up to that version. The entry is
retained while the segments of the index are unchanged; an index without an entry may lack any
generation. An entry never exceeds the generation that the version itself has merged.

Readers can then use the index instead of the flushed tables, and the flushed tables can be deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from pyroaring import BitMap

from lancelet.format.index_metadata import IndexMetadata, uuid_to_proto
from lancelet.format.protos import index_details_pb
from lancelet.table.apply.mem_wal import (
    generations_by_shard,
    log_details,
    log_entry,
    with_log_details,
)
from lancelet.table.apply.state import State
from lancelet.values import replace

Generations: TypeAlias = Mapping[uuid.UUID, int]
"""Last generation by shard."""


def has_merged_tables(state: State) -> bool:
    """Return whether a table has merged generations and an index to record them for."""
    entry = log_entry(state.indices)
    return (
        entry is not None
        and any(not index.is_system for index in state.indices)
        and any(each.generation for each in log_details(entry).compacted_sstables)
    )


def with_index_catchup(state: State, before: State, read: State | None) -> State:
    """Return the state with the merged generations of each index recorded.

    `before` is the version that the state follows, and `read` the version that the commit was
    computed from, or None if it was removed.
    """
    entry = log_entry(state.indices)
    if entry is None:
        return state
    details = log_details(entry)
    merged = generations_by_shard(details.compacted_sstables)
    if not merged:
        return state
    merged_at_read = {} if read is None else _merged_in(read)
    recorded = {
        each.index_name: generations_by_shard(each.caught_up_generations)
        for each in details.index_catchup
    }
    segments, previous_segments = _segments(state.indices), _segments(before.indices)
    progress = []
    for name in sorted(segments):
        previous = recorded.get(name, {}) if segments[name] == previous_segments.get(name) else {}
        proven = merged_at_read if read is not None and _covers(segments[name], read) else {}
        caught_up = {
            shard: min(max(previous.get(shard, 0), proven.get(shard, 0)), generation)
            for shard, generation in merged.items()
        }
        if any(caught_up.values()):
            progress.append(_progress_message(name, caught_up))
    if progress == list(details.index_catchup):
        return state
    del details.index_catchup[:]
    details.index_catchup.extend(progress)
    updated_entry = replace(
        with_log_details(entry, details), dataset_version=state.manifest.version
    )
    indices = tuple(updated_entry if index is entry else index for index in state.indices)
    return replace(state, indices=indices)


def _merged_in(state: State) -> Generations:
    entry = log_entry(state.indices)
    return {} if entry is None else generations_by_shard(log_details(entry).compacted_sstables)


def _segments(
    indices: Iterable[IndexMetadata],
) -> dict[str, dict[uuid.UUID, frozenset[int] | None]]:
    """Return the fragments of each segment by index; None where a segment has no bitmap."""
    fragments_by_index: dict[str, dict[uuid.UUID, frozenset[int] | None]] = {}
    for index in indices:
        if not index.is_system:
            bitmap = index.fragment_bitmap
            fragment_ids = None if bitmap is None else frozenset(bitmap)
            fragments_by_index.setdefault(index.name, {})[index.uuid] = fragment_ids
    return fragments_by_index


def _covers(segments: Mapping[uuid.UUID, frozenset[int] | None], read: State) -> bool:
    """Return whether segments cover every fragment of a version; False if it has none."""
    fragment_ids = BitMap(read.manifest.fragments.ids)
    if not fragment_ids or None in segments.values():
        return False
    return fragment_ids <= BitMap().union(*(BitMap(own or ()) for own in segments.values()))


def _progress_message(name: str, generations: Generations) -> index_details_pb.IndexCatchupProgress:
    message = index_details_pb.IndexCatchupProgress(index_name=name)
    for shard, generation in generations.items():
        message.caught_up_generations.add(shard_id=uuid_to_proto(shard), generation=generation)
    return message
