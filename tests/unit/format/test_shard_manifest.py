"""Shard manifests preserve unknown fields."""

import uuid
from dataclasses import replace

import numpy as np
import pytest

from lancelet.errors import CorruptDataError
from lancelet.format.protos import index_details_pb
from lancelet.format.shard_manifest import (
    ACTIVE,
    SEALED,
    ShardManifest,
    SsTable,
    wal_entry_path,
    wal_entry_position,
)
from lancelet.format.trailer import strip_trailer, with_trailer

NEW_FIELD = b"\xf2\x06\x03new"  # field 110, three bytes


def stored(**others):
    proto = index_details_pb.ShardManifest(version=3, shard_spec_id=2, **others)
    proto.shard_id.uuid = uuid.UUID(int=7).bytes
    proto.shard_field_entries.add(field_id="bucket", value=b"\x02\0\0\0")
    table = proto.flushed_generations.add(generation=1, path="a_gen_1")
    table.MergeFromString(NEW_FIELD)
    return proto.SerializeToString() + NEW_FIELD


def test_claims_preserve_the_shard_manifest_and_unknown_fields():
    found = ShardManifest.parse(stored())
    assert found.field_entries == (("bucket", b"\x02\0\0\0"),)
    claimed = replace(found, version=4, writer_epoch=2)
    again = index_details_pb.ShardManifest.FromString(
        strip_trailer(np.frombuffer(claimed.render(), np.uint8)).tobytes()
    )
    assert again.shard_field_entries[0].field_id == "bucket"
    assert again.SerializeToString().count(NEW_FIELD) == 2
    assert ShardManifest.parse(claimed.render()) == claimed


@pytest.mark.parametrize(("status", "is_active"), [(ACTIVE, True), (SEALED, False), (9, False)])
def test_only_shards_that_are_known_to_be_active_are(status, is_active):
    found = ShardManifest.parse(stored(status=status))
    assert found.is_active is is_active
    assert ShardManifest.parse(found.render()).status == status


def test_tables_outside_of_the_shard_are_rejected():
    for path in ("../x", "", ".."):
        wrong = ShardManifest(uuid.UUID(int=7), sstables=(SsTable(1, path),))
        with pytest.raises(CorruptDataError, match="outside"):
            ShardManifest.parse(wrong.render())
    assert ShardManifest.parse(with_trailer(stored())).version == 3


def test_states_that_leave_no_room_for_the_next_one_are_rejected():
    for field in ("version", "writer_epoch", "current_generation", "last_seen", "replay_after"):
        wrong = replace(ShardManifest(uuid.UUID(int=7)), **{field: 1 << 63})
        with pytest.raises(CorruptDataError, match="exceeds the supported range"):
            ShardManifest.parse(wrong.render())


def test_entries_have_positions():
    assert wal_entry_position(wal_entry_path(1 << 40)) == 1 << 40
    assert wal_entry_position("wal/notes.txt") is None
