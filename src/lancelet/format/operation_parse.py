"""Parsing of operations, with one function per operation type.

Older releases wrote some operations in other fields: a rewrite as a single group, config changes as
plain maps, changed rows as lists. They are converted to the current form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyroaring import BitMap

from lancelet.errors import CorruptDataError
from lancelet.format import operation as op
from lancelet.format.base_paths import base_path_from_proto
from lancelet.format.fragment import (
    data_file_from_proto,
    fragments_from_protos,
    overlay_from_proto,
)
from lancelet.format.index_metadata import (
    AnyDetails,
    IndexFile,
    index_from_proto,
    uuid_from_proto,
)
from lancelet.format.key_filter import key_filter_from_proto
from lancelet.format.protos import index_details_pb, transaction_pb
from lancelet.format.roaring import render_bitmap
from lancelet.format.schema import Schema


def operation_from_proto(proto: transaction_pb.Transaction) -> op.Operation | None:
    """Parse the operation of a transaction, or return None if its type is unknown."""
    arm = proto.WhichOneof("operation")
    return None if arm is None else _READERS[arm](getattr(proto, arm))


def _read_append(proto: transaction_pb.Transaction.Append) -> op.Append:
    return op.Append(fragments_from_protos(proto.fragments))


def _read_delete(proto: transaction_pb.Transaction.Delete) -> op.Delete:
    return op.Delete(
        fragments_from_protos(proto.updated_fragments),
        tuple(proto.deleted_fragment_ids),
        proto.predicate,
    )


def _read_overwrite(proto: transaction_pb.Transaction.Overwrite) -> op.Overwrite:
    return op.Overwrite(
        fragments_from_protos(proto.fragments),
        Schema.from_protos(proto.schema, proto.schema_metadata),
        dict(proto.config_upsert_values),
        tuple(map(base_path_from_proto, proto.initial_bases)),
    )


def _read_create_index(proto: transaction_pb.Transaction.CreateIndex) -> op.CreateIndex:
    return op.CreateIndex(
        tuple(map(index_from_proto, proto.new_indices)),
        tuple(map(index_from_proto, proto.removed_indices)),
    )


def _read_rewrite(proto: transaction_pb.Transaction.Rewrite) -> op.Rewrite:
    groups = [
        op.RewriteGroup(
            fragments_from_protos(group.old_fragments), fragments_from_protos(group.new_fragments)
        )
        for group in proto.groups
    ]
    if proto.old_fragments or proto.new_fragments:
        groups.append(
            op.RewriteGroup(
                fragments_from_protos(proto.old_fragments),
                fragments_from_protos(proto.new_fragments),
            )
        )
    return op.Rewrite(tuple(groups), tuple(map(_rewritten_from_proto, proto.rewritten_indices)))


def _read_merge(proto: transaction_pb.Transaction.Merge) -> op.Merge:
    return op.Merge(
        fragments_from_protos(proto.fragments),
        Schema.from_protos(proto.schema, proto.schema_metadata),
        proto.preserves_nullability,
    )


def _read_restore(proto: transaction_pb.Transaction.Restore) -> op.Restore:
    return op.Restore(proto.version)


def _read_reserve(proto: transaction_pb.Transaction.ReserveFragments) -> op.ReserveFragments:
    return op.ReserveFragments(proto.num_fragments)


def _read_update(proto: transaction_pb.Transaction.Update) -> op.Update:
    try:
        mode = op.UpdateMode(int(proto.update_mode))
    except ValueError as error:
        raise CorruptDataError(
            "an update has an unknown mode", mode=int(proto.update_mode)
        ) from error
    has_filter = proto.HasField("inserted_rows")
    return op.Update(
        removed_fragment_ids=tuple(proto.removed_fragment_ids),
        updated_fragments=fragments_from_protos(proto.updated_fragments),
        new_fragments=fragments_from_protos(proto.new_fragments),
        fields_modified=tuple(proto.fields_modified),
        compacted_sstables=_compacted_from_protos(proto.compacted_sstables),
        fields_for_preserving_bitmap=tuple(proto.fields_for_preserving_frag_bitmap),
        mode=mode,
        inserted_rows=key_filter_from_proto(proto.inserted_rows) if has_filter else None,
        updated_offsets={
            **{
                fragment_id: render_bitmap(BitMap(offsets.values))
                for fragment_id, offsets in proto.updated_fragment_offsets.items()
            },
            **proto.updated_fragment_offset_bitmaps,
        },
    )


def _read_project(proto: transaction_pb.Transaction.Project) -> op.Project:
    return op.Project(Schema.from_protos(proto.schema), proto.preserves_nullability)


def _read_update_config(proto: transaction_pb.Transaction.UpdateConfig) -> op.UpdateConfig:
    config = _map_from_proto(proto, "config_updates")
    if config is None and (proto.upsert_values or proto.delete_keys):
        deleted: dict[str, str | None] = dict.fromkeys(proto.delete_keys)
        config = op.UpdateMap({**proto.upsert_values, **deleted})
    schema_metadata = _map_from_proto(proto, "schema_metadata_updates")
    if schema_metadata is None and proto.schema_metadata:
        schema_metadata = op.UpdateMap(dict(proto.schema_metadata), replace=True)
    field_metadata = {
        **{
            int(field_id): op.UpdateMap(dict(update.metadata), replace=True)
            for field_id, update in proto.field_metadata.items()
        },
        **{
            int(field_id): _map_from_message(update)
            for field_id, update in proto.field_metadata_updates.items()
        },
    }
    return op.UpdateConfig(
        config, _map_from_proto(proto, "table_metadata_updates"), schema_metadata, field_metadata
    )


def _read_replacement(proto: transaction_pb.Transaction.DataReplacement) -> op.DataReplacement:
    return op.DataReplacement(
        tuple(
            op.DataReplacementGroup(item.fragment_id, data_file_from_proto(item.new_file))
            for item in proto.replacements
        )
    )


def _read_mem_wal(proto: transaction_pb.Transaction.UpdateMemWalState) -> op.UpdateMemWalState:
    return op.UpdateMemWalState(_compacted_from_protos(proto.compacted_sstables))


def _read_clone(proto: transaction_pb.Transaction.Clone) -> op.Clone:
    return op.Clone(
        proto.is_shallow,
        proto.ref_version,
        proto.ref_path,
        proto.ref_name if proto.HasField("ref_name") else None,
        proto.branch_name if proto.HasField("branch_name") else None,
    )


def _read_bases(proto: transaction_pb.Transaction.UpdateBases) -> op.UpdateBases:
    return op.UpdateBases(tuple(map(base_path_from_proto, proto.new_bases)))


def _read_overlay(proto: transaction_pb.Transaction.DataOverlay) -> op.AddOverlays:
    return op.AddOverlays(
        tuple(
            op.OverlayGroup(group.fragment_id, tuple(map(overlay_from_proto, group.overlays)))
            for group in proto.groups
        )
    )


# The oneof name determines the message type of a reader, which annotations cannot express.
_READERS: Final[Mapping[str, Callable[[Any], op.Operation]]] = {
    "append": _read_append,
    "delete": _read_delete,
    "overwrite": _read_overwrite,
    "create_index": _read_create_index,
    "rewrite": _read_rewrite,
    "merge": _read_merge,
    "restore": _read_restore,
    "reserve_fragments": _read_reserve,
    "update": _read_update,
    "project": _read_project,
    "update_config": _read_update_config,
    "data_replacement": _read_replacement,
    "update_mem_wal_state": _read_mem_wal,
    "clone": _read_clone,
    "update_bases": _read_bases,
    "data_overlay": _read_overlay,
}


def _rewritten_from_proto(
    proto: transaction_pb.Transaction.Rewrite.RewrittenIndex,
) -> op.RewrittenIndex:
    details = None
    if proto.HasField("new_index_details"):
        details = AnyDetails(proto.new_index_details.type_url, proto.new_index_details.value)
    return op.RewrittenIndex(
        uuid_from_proto(proto.old_id),
        uuid_from_proto(proto.new_id),
        details,
        proto.new_index_version,
        tuple(IndexFile(file.path, file.size_bytes) for file in proto.new_index_files),
    )


def _map_from_proto(
    proto: transaction_pb.Transaction.UpdateConfig, name: str
) -> op.UpdateMap | None:
    return _map_from_message(getattr(proto, name)) if proto.HasField(name) else None


def _map_from_message(proto: transaction_pb.Transaction.UpdateMap) -> op.UpdateMap:
    entries = {
        entry.key: entry.value if entry.HasField("value") else None
        for entry in proto.update_entries
    }
    return op.UpdateMap(entries, proto.replace)


def _compacted_from_protos(
    protos: Iterable[index_details_pb.MergedGeneration],
) -> tuple[op.CompactedSsTable, ...]:
    return tuple(
        op.CompactedSsTable(uuid_from_proto(proto.shard_id), proto.generation) for proto in protos
    )
