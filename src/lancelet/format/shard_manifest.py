"""What a shard of the write-ahead log says of itself, and the names of its files.

    manifest/1000...0.binpb   version 1: epoch 1, generation 1, nothing flushed
    manifest/0100...0.binpb   version 2: epoch 1, generation 2, flushed up to entry 4

A name is the number in binary, lowest bit first, so that neighbours lie far apart in a store that
splits its work by prefixes. Versions follow each other without gaps; the highest one counts.
"""

from __future__ import annotations

import re
import uuid
from typing import Final, cast

import numpy as np

from lancelet.errors import CorruptDataError
from lancelet.format.index_metadata import uuid_from_proto, uuid_to_proto
from lancelet.format.paths import MEM_WAL
from lancelet.format.protos import index_details_pb
from lancelet.format.seal import sealed, unsealed
from lancelet.format.wire import parse_message, render_message, unknown_fields
from lancelet.values import dataclass

_BITS: Final = 64
_COUNT_END: Final = 1 << 63
"""Numbers from here on leave no room for the next one."""
_WAL_ENTRY: Final = re.compile(r"wal/([01]{64})\.arrow")

ACTIVE: Final = int(index_details_pb.ShardManifest.ACTIVE)
"""The status of a shard that may be written."""
SEALED: Final = int(index_details_pb.ShardManifest.SEALED)
"""The status of a shard that nobody writes any more."""


@dataclass(frozen=True, slots=True)
class SsTable:
    """A table of flushed rows, below the folder of its shard."""

    generation: int
    path: str
    in_memory_bytes: int = 0
    physical_rows: int = 0
    primary_key_bytes: int = 0
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """A state of a shard.

    Attributes:
        shard_id: Which shard.
        version: Counts the states, from 1.
        writer_epoch: Counts the writers; only the last may write.
        replay_after: The last entry of the log whose rows are in a table.
        last_seen: The last entry that was there when this was written.
        current_generation: The generation of the rows that are in memory.
        sstables: The tables, by generation.
        spec_id: Which rule says what belongs to the shard, 0 for none.
        field_entries: The values that rows of the shard have in common, by field of the rule.
        status: Whether it may be written; numbers that later releases may add forbid it too.
        unknown: The wire form of what a later release wrote and this one does not know.
    """

    shard_id: uuid.UUID
    version: int = 1
    writer_epoch: int = 1
    replay_after: int = 0
    last_seen: int = 0
    current_generation: int = 1
    sstables: tuple[SsTable, ...] = ()
    spec_id: int = 0
    field_entries: tuple[tuple[str, bytes], ...] = ()
    status: int = ACTIVE
    unknown: bytes = b""

    @property
    def is_active(self) -> bool:
        """Whether the shard may be written."""
        return self.status == ACTIVE

    @staticmethod
    def parse(data: bytes) -> ShardManifest:
        """Read the form on disk."""
        content = unsealed(np.frombuffer(data, np.uint8))
        proto = parse_message(index_details_pb.ShardManifest, content.data)
        sstables = tuple(
            SsTable(
                each.generation,
                each.path,
                each.in_memory_bytes,
                each.physical_rows,
                each.primary_key_bytes,
                unknown_fields(each),
            )
            for each in proto.flushed_generations
        )
        counts = [each.generation for each in sstables]
        counts += [proto.version, proto.writer_epoch, proto.current_generation]
        counts += [proto.replay_after_wal_entry_position, proto.wal_entry_position_last_seen]
        if max(counts) >= _COUNT_END:
            raise CorruptDataError("a shard cannot have come so far", found=max(counts))
        wrong = [each.path for each in sstables if not is_below_shard(each.path)]
        if wrong:
            raise CorruptDataError("a flushed table lies outside of its shard", path=wrong[0])
        return ShardManifest(
            uuid_from_proto(proto.shard_id),
            proto.version,
            proto.writer_epoch,
            proto.replay_after_wal_entry_position,
            proto.wal_entry_position_last_seen,
            proto.current_generation,
            sstables,
            proto.shard_spec_id,
            tuple((each.field_id, each.value) for each in proto.shard_field_entries),
            int(proto.status),
            unknown_fields(proto),
        )

    def render(self) -> bytes:
        """Return the form on disk."""
        proto = index_details_pb.ShardManifest(
            version=self.version,
            writer_epoch=self.writer_epoch,
            replay_after_wal_entry_position=self.replay_after,
            wal_entry_position_last_seen=self.last_seen,
            current_generation=self.current_generation,
            shard_spec_id=self.spec_id,
            shard_id=uuid_to_proto(self.shard_id),
        )
        for field_id, value in self.field_entries:
            proto.shard_field_entries.add(field_id=field_id, value=value)
        for each in self.sstables:
            table = proto.flushed_generations.add(
                generation=each.generation,
                path=each.path,
                in_memory_bytes=each.in_memory_bytes,
                physical_rows=each.physical_rows,
                primary_key_bytes=each.primary_key_bytes,
            )
            table.MergeFromString(each.unknown)
        proto.MergeFromString(self.unknown)
        if self.status != ACTIVE:
            # Numbers that a later release added are kept as they are.
            proto.status = cast("index_details_pb.ShardManifest.Status", self.status)
        return sealed(render_message(proto))


def reversed_bits(number: int) -> str:
    """Return a number in binary, lowest bit first.

    >>> reversed_bits(6)[:5]
    '01100'
    """
    return f"{number:0{_BITS}b}"[::-1]


def is_below_shard(path: str) -> bool:
    """Return whether the path of a flushed table is a folder right below that of its shard."""
    return "/" not in path and path not in {"", ".", ".."}


def shard_folder(shard_id: uuid.UUID) -> str:
    """Return the folder of a shard below the root of the table."""
    return f"{MEM_WAL}/{shard_id}"


def shard_manifest_path(version: int) -> str:
    """Return the path of a state below the folder of the shard."""
    return f"manifest/{reversed_bits(version)}.binpb"


def wal_entry_path(position: int) -> str:
    """Return the path of an entry of the log below the folder of the shard."""
    return f"wal/{reversed_bits(position)}.arrow"


def wal_entry_position(path: str) -> int | None:
    """Return the position of the entry that has a path, None if it is not of an entry.

    >>> wal_entry_position(wal_entry_path(6))
    6
    """
    found = _WAL_ENTRY.fullmatch(path)
    return None if found is None else int(found[1][::-1], 2)


HINT_PATH: Final = "manifest/version_hint.json"
"""Where a recent version is noted, so that looking for the last one begins there."""
