"""Serialization of operations, with one function per operation type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from lancelet.format import operation as op
from lancelet.format.base_paths import base_path_to_proto
from lancelet.format.fragment import data_file_to_proto, fragments_to_protos, overlay_to_proto
from lancelet.format.index_metadata import index_to_proto, uuid_to_proto
from lancelet.format.key_filter import key_filter_to_proto
from lancelet.format.protos import index_details_pb, table_pb, transaction_pb

Proto = transaction_pb.Transaction


def operation_to_proto(operation: op.Operation, proto: transaction_pb.Transaction) -> None:
    """Set the operation of a transaction message."""
    match operation:
        case op.Append(fragments):
            proto.append.CopyFrom(Proto.Append(fragments=fragments_to_protos(fragments)))
        case op.Delete():
            proto.delete.CopyFrom(_delete_to_proto(operation))
        case op.Overwrite():
            proto.overwrite.CopyFrom(_overwrite_to_proto(operation))
        case op.CreateIndex(new, removed):
            proto.create_index.CopyFrom(
                Proto.CreateIndex(
                    new_indices=map(index_to_proto, new),
                    removed_indices=map(index_to_proto, removed),
                )
            )
        case op.Rewrite(groups, rewritten):
            proto.rewrite.CopyFrom(
                Proto.Rewrite(
                    groups=map(_group_to_proto, groups),
                    rewritten_indices=map(_rewritten_to_proto, rewritten),
                )
            )
        case op.Merge():
            proto.merge.CopyFrom(_merge_to_proto(operation))
        case op.Restore(version):
            proto.restore.CopyFrom(Proto.Restore(version=version))
        case op.ReserveFragments(num_fragments):
            proto.reserve_fragments.CopyFrom(Proto.ReserveFragments(num_fragments=num_fragments))
        case op.Update():
            proto.update.CopyFrom(_update_to_proto(operation))
        case op.Project(schema, preserves):
            proto.project.CopyFrom(
                Proto.Project(schema=schema.to_protos(), preserves_nullability=preserves)
            )
        case op.UpdateConfig():
            proto.update_config.CopyFrom(_update_config_to_proto(operation))
        case op.DataReplacement(replacements):
            proto.data_replacement.CopyFrom(
                Proto.DataReplacement(replacements=map(_replacement_to_proto, replacements))
            )
        case op.UpdateMemWalState(compacted):
            proto.update_mem_wal_state.CopyFrom(
                Proto.UpdateMemWalState(compacted_sstables=_compacted_to_protos(compacted))
            )
        case op.Clone():
            proto.clone.CopyFrom(_clone_to_proto(operation))
        case op.UpdateBases(new_bases):
            proto.update_bases.CopyFrom(
                Proto.UpdateBases(new_bases=map(base_path_to_proto, new_bases))
            )
        case op.AddOverlays(overlay_groups):
            proto.data_overlay.CopyFrom(
                Proto.DataOverlay(groups=map(_overlay_group_to_proto, overlay_groups))
            )
        case op.UnknownOperation():
            raise AssertionError("an unknown operation must be stored in its serialized form")
        case _:
            assert_never(operation)


def _delete_to_proto(operation: op.Delete) -> transaction_pb.Transaction.Delete:
    return Proto.Delete(
        updated_fragments=fragments_to_protos(operation.updated_fragments),
        deleted_fragment_ids=operation.deleted_fragment_ids,
        predicate=operation.predicate,
    )


def _overwrite_to_proto(operation: op.Overwrite) -> transaction_pb.Transaction.Overwrite:
    return Proto.Overwrite(
        fragments=fragments_to_protos(operation.fragments),
        schema=operation.schema.to_protos(),
        schema_metadata=operation.schema.metadata_bytes(),
        config_upsert_values=operation.config_upsert_values,
        initial_bases=map(base_path_to_proto, operation.initial_bases),
    )


def _merge_to_proto(operation: op.Merge) -> transaction_pb.Transaction.Merge:
    return Proto.Merge(
        fragments=fragments_to_protos(operation.fragments),
        schema=operation.schema.to_protos(),
        schema_metadata=operation.schema.metadata_bytes(),
        preserves_nullability=operation.preserves_nullability,
    )


def _replacement_to_proto(
    replacement: op.DataReplacementGroup,
) -> transaction_pb.Transaction.DataReplacementGroup:
    return Proto.DataReplacementGroup(
        fragment_id=replacement.fragment_id, new_file=data_file_to_proto(replacement.new_file)
    )


def _clone_to_proto(operation: op.Clone) -> transaction_pb.Transaction.Clone:
    return Proto.Clone(
        is_shallow=operation.is_shallow,
        ref_name=operation.ref_name,
        ref_version=operation.ref_version,
        ref_path=operation.ref_path,
        branch_name=operation.branch_name,
    )


def _overlay_group_to_proto(
    group: op.OverlayGroup,
) -> transaction_pb.Transaction.DataOverlayGroup:
    return Proto.DataOverlayGroup(
        fragment_id=group.fragment_id, overlays=map(overlay_to_proto, group.overlays)
    )


def _group_to_proto(group: op.RewriteGroup) -> transaction_pb.Transaction.Rewrite.RewriteGroup:
    return Proto.Rewrite.RewriteGroup(
        old_fragments=fragments_to_protos(group.old_fragments),
        new_fragments=fragments_to_protos(group.new_fragments),
    )


def _rewritten_to_proto(
    index: op.RewrittenIndex,
) -> transaction_pb.Transaction.Rewrite.RewrittenIndex:
    proto = Proto.Rewrite.RewrittenIndex(
        old_id=uuid_to_proto(index.old_id),
        new_id=uuid_to_proto(index.new_id),
        new_index_version=index.new_version,
        new_index_files=[
            table_pb.IndexFile(path=file.path, size_bytes=file.size_bytes)
            for file in index.new_files
        ],
    )
    if index.new_details is not None:
        proto.new_index_details.type_url = index.new_details.type_url
        proto.new_index_details.value = index.new_details.value
    return proto


def _update_to_proto(update: op.Update) -> transaction_pb.Transaction.Update:
    proto = Proto.Update(
        removed_fragment_ids=update.removed_fragment_ids,
        updated_fragments=fragments_to_protos(update.updated_fragments),
        new_fragments=fragments_to_protos(update.new_fragments),
        fields_modified=update.fields_modified,
        compacted_sstables=_compacted_to_protos(update.compacted_sstables),
        fields_for_preserving_frag_bitmap=update.fields_for_preserving_bitmap,
        update_mode=Proto.UpdateMode.Name(update.mode),
        updated_fragment_offset_bitmaps=update.updated_offsets,
    )
    if update.inserted_rows is not None:
        proto.inserted_rows.CopyFrom(key_filter_to_proto(update.inserted_rows))
    return proto


def _update_config_to_proto(
    operation: op.UpdateConfig,
) -> transaction_pb.Transaction.UpdateConfig:
    proto = Proto.UpdateConfig()
    for name, update in (
        ("config_updates", operation.config),
        ("table_metadata_updates", operation.table_metadata),
        ("schema_metadata_updates", operation.schema_metadata),
    ):
        if update is not None:
            getattr(proto, name).CopyFrom(_map_to_proto(update))
    for field_id, update in operation.field_metadata.items():
        proto.field_metadata_updates[field_id].CopyFrom(_map_to_proto(update))
    return proto


def _map_to_proto(update: op.UpdateMap) -> transaction_pb.Transaction.UpdateMap:
    proto = Proto.UpdateMap(replace=update.replace)
    for key, value in update.entries.items():
        proto.update_entries.add(key=key, value=value)
    return proto


def _compacted_to_protos(
    tables: Iterable[op.CompactedSsTable],
) -> list[index_details_pb.MergedGeneration]:
    return [
        index_details_pb.MergedGeneration(
            shard_id=uuid_to_proto(table.shard_id), generation=table.generation
        )
        for table in tables
    ]
