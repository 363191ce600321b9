"""What a shard of the write-ahead log says of itself, and the names of its files.

    manifest/1000...0.binpb   version 1: epoch 1, generation 1, nothing flushed
    manifest/0100...0.binpb   version 2: epoch 1, generation 2, flushed up to entry 4

A name is the number in binary, lowest bit first, so that neighbours lie far apart in a store that
splits its work by prefixes. Versions follow each other without gaps; the highest one counts.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

import numpy as np

from lancelet.errors import CorruptDataError
from lancelet.format.index_metadata import uuid_from_proto, uuid_to_proto
from lancelet.format.paths import MEM_WAL
from lancelet.format.protos import index_details_pb
from lancelet.format.seal import sealed, unsealed
from lancelet.format.wire import parse_message, render_message

_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class SsTable:
    """A table of flushed rows, below the folder of its shard."""

    generation: int
    path: str
    in_memory_bytes: int = 0
    physical_rows: int = 0
    primary_key_bytes: int = 0


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
        is_sealed: Whether nobody may write any more.
    """

    shard_id: uuid.UUID
    version: int = 1
    writer_epoch: int = 1
    replay_after: int = 0
    last_seen: int = 0
    current_generation: int = 1
    sstables: tuple[SsTable, ...] = ()
    spec_id: int = 0
    is_sealed: bool = False

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
            )
            for each in proto.flushed_generations
        )
        wrong = [each.path for each in sstables if "/" in each.path or each.path in {"", ".."}]
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
            proto.status == index_details_pb.ShardManifest.SEALED,
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
            status=index_details_pb.ShardManifest.SEALED if self.is_sealed else None,
        )
        for each in self.sstables:
            proto.flushed_generations.add(
                generation=each.generation,
                path=each.path,
                in_memory_bytes=each.in_memory_bytes,
                physical_rows=each.physical_rows,
                primary_key_bytes=each.primary_key_bytes,
            )
        return sealed(render_message(proto))


def reversed_bits(number: int) -> str:
    """Return a number in binary, lowest bit first.

    >>> reversed_bits(6)[:5]
    '01100'
    """
    return f"{number:0{_BITS}b}"[::-1]


def shard_folder(shard_id: uuid.UUID) -> str:
    """Return the folder of a shard below the root of the table."""
    return f"{MEM_WAL}/{shard_id}"


def shard_manifest_path(version: int) -> str:
    """Return the path of a state below the folder of the shard."""
    return f"manifest/{reversed_bits(version)}.binpb"


def wal_entry_path(position: int) -> str:
    """Return the path of an entry of the log below the folder of the shard."""
    return f"wal/{reversed_bits(position)}.arrow"


HINT_PATH: Final = "manifest/version_hint.json"
"""Where a recent version is noted, so that looking for the last one begins there."""
