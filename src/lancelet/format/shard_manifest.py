"""Manifests of write-ahead log shards, and the names of shard files.

    manifest/1000...0.binpb   version 1: epoch 1, generation 1, nothing flushed
    manifest/0100...0.binpb   version 2: epoch 1, generation 2, flushed up to entry 4

File names are bit-reversed binary numbers, so consecutive files have different prefixes in stores
that partition by prefix. Versions are consecutive, and the highest version is current.
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
from lancelet.format.trailer import strip_trailer, with_trailer
from lancelet.format.wire import parse_message, render_message, unknown_fields
from lancelet.values import dataclass

_BITS: Final = 64
_COUNT_END: Final = 1 << 63
"""Upper bound of counters, which leaves room for increments."""
_WAL_ENTRY: Final = re.compile(r"wal/([01]{64})\.arrow")

ACTIVE: Final = int(index_details_pb.ShardManifest.ACTIVE)
"""Status of a writable shard."""
SEALED: Final = int(index_details_pb.ShardManifest.SEALED)
"""Status of a shard that accepts no more writes."""
TOMBSTONE: Final = "_tombstone"
"""The column that marks deleted rows in a shard."""


@dataclass(frozen=True, slots=True)
class SsTable:
    """A table of flushed rows, relative to the shard directory."""

    generation: int
    path: str
    in_memory_bytes: int = 0
    physical_rows: int = 0
    primary_key_bytes: int = 0
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """A version of the state of a shard.

    Attributes:
      shard_id: The id of the shard.
      version: The version of the state, counted from 1.
      writer_epoch: The epoch of the current writer; writers of earlier epochs are fenced.
      replay_after: The last log entry with flushed rows.
      last_seen: The last log entry that existed when this version was written.
      current_generation: The generation of the rows in memory.
      sstables: The flushed tables by generation.
      spec_id: The id of the sharding rule, or 0.
      field_entries: The values shared by all rows of the shard, by field of the sharding rule.
      status: The status; statuses of later releases forbid writes.
      unknown: Serialized fields of later releases.
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
        """Whether the shard is writable."""
        return self.status == ACTIVE

    @staticmethod
    def parse(data: bytes) -> ShardManifest:
        """Parse a serialized shard manifest."""
        content = strip_trailer(np.frombuffer(data, np.uint8))
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
        counters = [each.generation for each in sstables]
        counters += [proto.version, proto.writer_epoch, proto.current_generation]
        counters += [proto.replay_after_wal_entry_position, proto.wal_entry_position_last_seen]
        if max(counters) >= _COUNT_END:
            raise CorruptDataError(
                "a counter of a shard exceeds the supported range", found=max(counters)
            )
        invalid_paths = [each.path for each in sstables if not is_below_shard(each.path)]
        if invalid_paths:
            raise CorruptDataError(
                "a flushed table is outside of its shard directory", path=invalid_paths[0]
            )
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
        """Serialize the shard manifest with a checksum trailer."""
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
            # Statuses that a later release added are preserved.
            proto.status = cast("index_details_pb.ShardManifest.Status", self.status)
        return with_trailer(render_message(proto))


def reversed_bits(number: int) -> str:
    """Return a number in binary, lowest bit first.

    >>> reversed_bits(6)[:5]
    '01100'
    """
    return f"{number:0{_BITS}b}"[::-1]


def is_below_shard(path: str) -> bool:
    """Return whether the path of a flushed table is a direct child of the shard directory."""
    return "/" not in path and path not in {"", ".", ".."}


def shard_folder(shard_id: uuid.UUID) -> str:
    """Return the shard directory, relative to the table root."""
    return f"{MEM_WAL}/{shard_id}"


def shard_manifest_path(version: int) -> str:
    """Return the path of a shard manifest, relative to the shard directory."""
    return f"manifest/{reversed_bits(version)}.binpb"


def wal_entry_path(position: int) -> str:
    """Return the path of a log entry, relative to the shard directory."""
    return f"wal/{reversed_bits(position)}.arrow"


def wal_entry_position(path: str) -> int | None:
    """Return the position of a log entry, or None if the path is not a log entry.

    >>> wal_entry_position(wal_entry_path(6))
    6
    """
    match = _WAL_ENTRY.fullmatch(path)
    return None if match is None else int(match[1][::-1], 2)


HINT_PATH: Final = "manifest/version_hint.json"
"""Hint file with a recent version, where the search for the latest version starts."""
