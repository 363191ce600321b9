"""Conversion between operations of the public API and operations of tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from lancelet.dataset.index.values import index_from_user, index_to_user
from lancelet.dataset.maintenance.settings import base_to_user, bases_from_user
from lancelet.dataset.write.metadata import (
    FragmentMetadata,
    file_from_user,
    file_to_user,
    fragment_from_user,
    fragment_to_user,
    overlay_from_user,
    overlay_to_user,
)
from lancelet.dataset.write.operations import LanceOperation as User
from lancelet.dataset.write.operations import OperationTypeError
from lancelet.dataset.write.schema import LanceSchema
from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format import operation as op
from lancelet.format.fragment import Fragment
from lancelet.format.index_metadata import AnyDetails
from lancelet.format.roaring import parse_bitmap
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion

_UPDATE_MODES: Final = {
    "": op.UpdateMode.REWRITE_ROWS,
    "rewrite_rows": op.UpdateMode.REWRITE_ROWS,
    "rewrite_columns": op.UpdateMode.REWRITE_COLUMNS,
}
_BY_UPDATE_MODE: Final = {mode: name for name, mode in _UPDATE_MODES.items()}


def operation_from_user(operation: User.BaseOperation) -> op.Operation:
    """Convert an operation of the public API."""
    match operation:
        case User.Append(fragments):
            return op.Append(_stored(fragments))
        case User.Overwrite(schema, fragments, bases):
            stored = _stored(fragments)
            return op.Overwrite(
                stored, _schema(schema, stored), initial_bases=bases_from_user(bases)
            )
        case User.Delete(updated, deleted, predicate):
            return op.Delete(_stored(updated), tuple(deleted), predicate)
        case User.Update():
            return _update(operation)
        case User.Merge(fragments, schema, preserves):
            stored = _stored(fragments)
            return op.Merge(stored, _schema(schema, stored), preserves)
        case User.Project(schema, preserves):
            return op.Project(_schema(schema, ()), preserves)
        case User.Restore(version):
            return op.Restore(version)
        case User.Rewrite(groups, indices):
            return op.Rewrite(tuple(map(_group, groups)), tuple(map(_rewritten, indices)))
        case User.CreateIndex(new, removed):
            return op.CreateIndex(
                tuple(map(index_from_user, new)), tuple(map(index_from_user, removed))
            )
        case User.DataReplacement(replacements):
            return op.DataReplacement(
                tuple(
                    op.DataReplacementGroup(each.fragment_id, file_from_user(each.new_file))
                    for each in replacements
                )
            )
        case User.DataOverlay(groups):
            return op.AddOverlays(tuple(map(_overlays, groups)))
        case User.UpdateConfig():
            return op.UpdateConfig(
                _map(operation.config_updates),
                _map(operation.table_metadata_updates),
                _map(operation.schema_metadata_updates),
                {
                    key: _changes(own)
                    for key, own in (operation.field_metadata_updates or {}).items()
                },
            )
        case User.Other(stored):
            return stored
        case User.Clone():
            raise UnsupportedError("use shallow_clone, deep_clone or create_branch, not Clone")
        case _:
            raise OperationTypeError(
                "operation must be a LanceOperation.BaseOperation or Transaction, "
                f"got {type(operation)}"
            )


def operation_to_user(operation: op.Operation) -> User.BaseOperation:
    """Convert an operation to the public API."""
    match operation:
        case op.Append(fragments):
            return User.Append(_shown(fragments))
        case op.Overwrite(fragments, schema, _, bases):
            shown = [base_to_user(base) for base in bases]
            return User.Overwrite(LanceSchema(schema), _shown(fragments), shown or None)
        case op.Delete(updated, deleted, predicate):
            return User.Delete(_shown(updated), list(deleted), predicate)
        case op.Update():
            return _shown_update(operation)
        case op.Merge(fragments, schema, preserves):
            return User.Merge(_shown(fragments), LanceSchema(schema), preserves)
        case op.Project(schema, preserves):
            return User.Project(LanceSchema(schema), preserves)
        case op.Restore(version):
            return User.Restore(version)
        case op.Rewrite(groups, indices):
            return User.Rewrite(
                [
                    User.RewriteGroup(_shown(each.old_fragments), _shown(each.new_fragments))
                    for each in groups
                ],
                [_shown_rewritten(index) for index in indices],
            )
        case op.CreateIndex(new, removed):
            return User.CreateIndex(
                [index_to_user(index) for index in new], [index_to_user(index) for index in removed]
            )
        case op.DataReplacement(replacements):
            return User.DataReplacement(
                [
                    User.DataReplacementGroup(each.fragment_id, file_to_user(each.new_file))
                    for each in replacements
                ]
            )
        case op.UpdateConfig():
            return User.UpdateConfig(
                _shown_map(operation.config),
                _shown_map(operation.table_metadata),
                _shown_map(operation.schema_metadata),
                {key: _shown_changes(own) for key, own in operation.field_metadata.items()} or None,
            )
        case op.Clone():
            return User.Clone(
                operation.is_shallow,
                operation.ref_name,
                operation.ref_version,
                operation.ref_path,
                operation.branch_name,
            )
        case op.AddOverlays(groups):
            return User.DataOverlay([_shown_overlays(group) for group in groups])
        case _:
            return User.Other(operation)


def _stored(fragments: Iterable[FragmentMetadata]) -> tuple[Fragment, ...]:
    return tuple(map(fragment_from_user, fragments))


def _shown(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return [fragment_to_user(fragment) for fragment in fragments]


def _schema(schema: LanceSchema | pa.Schema, fragments: Iterable[Fragment]) -> Schema:
    if isinstance(schema, LanceSchema):
        return schema.stored
    if not isinstance(schema, pa.Schema):
        raise OperationTypeError("expected LanceSchema or pyarrow.Schema", found=str(type(schema)))
    versions = [file.version for fragment in fragments for file in fragment.files]
    has_blob_v2 = bool(versions) and min(versions) >= FileVersion.V2_2
    return Schema.from_arrow(schema, blob_v2=has_blob_v2)


def _update(operation: User.Update) -> op.Update:
    mode = _UPDATE_MODES.get(operation.update_mode.lower())
    if mode is None:
        raise InvalidInputError(
            "unknown update_mode",
            update_mode=operation.update_mode,
            expected=list(_UPDATE_MODES),
        )
    return op.Update(
        removed_fragment_ids=tuple(operation.removed_fragment_ids),
        updated_fragments=_stored(operation.updated_fragments),
        new_fragments=_stored(operation.new_fragments),
        fields_modified=tuple(operation.fields_modified),
        fields_for_preserving_bitmap=tuple(operation.fields_for_preserving_frag_bitmap),
        mode=mode,
        updated_offsets=_offsets(operation.updated_fragment_offsets or {}),
        inserted_rows=operation.inserted_rows,
    )


def _offsets(given: Mapping[int, bytes]) -> dict[int, bytes]:
    for fragment_id, bitmap in given.items():
        try:
            parse_bitmap(bitmap)
        except CorruptDataError as error:
            raise InvalidInputError(
                "updated_fragment_offsets must hold a serialized RoaringBitmap for each fragment",
                fragment_id=fragment_id,
            ) from error
    return dict(given)


def _shown_update(operation: op.Update) -> User.Update:
    return User.Update(
        removed_fragment_ids=list(operation.removed_fragment_ids),
        updated_fragments=_shown(operation.updated_fragments),
        new_fragments=_shown(operation.new_fragments),
        fields_modified=list(operation.fields_modified),
        fields_for_preserving_frag_bitmap=list(operation.fields_for_preserving_bitmap),
        update_mode=_BY_UPDATE_MODE[operation.mode],
        updated_fragment_offsets=dict(operation.updated_offsets) or None,
        inserted_rows=operation.inserted_rows,
    )


def _group(group: User.RewriteGroup) -> op.RewriteGroup:
    return op.RewriteGroup(_stored(group.old_fragments), _stored(group.new_fragments))


def _rewritten(index: User.RewrittenIndex) -> op.RewrittenIndex:
    return op.RewrittenIndex(
        uuid.UUID(index.old_id),
        uuid.UUID(index.new_id),
        AnyDetails(index.new_details_type_url, index.new_details_value),
        index.new_index_version,
    )


def _shown_rewritten(index: op.RewrittenIndex) -> User.RewrittenIndex:
    details = index.new_details or AnyDetails("", b"")
    return User.RewrittenIndex(
        str(index.old_id), str(index.new_id), details.type_url, details.value, index.new_version
    )


def _overlays(group: User.DataOverlayGroup) -> op.OverlayGroup:
    return op.OverlayGroup(group.fragment_id, tuple(map(overlay_from_user, group.overlays)))


def _shown_overlays(group: op.OverlayGroup) -> User.DataOverlayGroup:
    return User.DataOverlayGroup(
        group.fragment_id,
        [overlay_to_user(overlay) for overlay in group.overlays],
    )


def _map(changes: User.UpdateMap | None) -> op.UpdateMap | None:
    return None if changes is None else _changes(changes)


def _changes(changes: User.UpdateMap) -> op.UpdateMap:
    return op.UpdateMap(dict(changes.updates), changes.replace)


def _shown_map(changes: op.UpdateMap | None) -> User.UpdateMap | None:
    return None if changes is None else _shown_changes(changes)


def _shown_changes(changes: op.UpdateMap) -> User.UpdateMap:
    return User.UpdateMap(dict(changes.entries), changes.replace)
