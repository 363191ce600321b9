"""Apply operations that change no rows: config, metadata, bases, reservations, indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.field import (
    CLUSTERING_KEY_POSITION,
    PRIMARY_KEY,
    PRIMARY_KEY_POSITION,
    check_primary_key,
)
from lancelet.format.operation import (
    CreateIndex,
    ReserveFragments,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from lancelet.format.schema import Field, Schema
from lancelet.table.apply.numbering import check_fragment_ids
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace

_KEYS: Final = {
    "primary": (PRIMARY_KEY, PRIMARY_KEY_POSITION),
    "clustering": (CLUSTERING_KEY_POSITION,),
}
"""Field metadata keys that declare unenforced keys."""


class SetKeyError(InvalidInputError, OSError):
    """An unenforced key cannot be changed once set."""


def apply_update_config(operation: UpdateConfig, state: State, context: CommitContext) -> State:
    """Return the state with its config and metadata changed."""
    del context
    manifest = state.manifest
    schema = _with_field_metadata(manifest.schema, operation.field_metadata)
    if operation.schema_metadata is not None:
        schema = schema.with_metadata(operation.schema_metadata.apply(schema.metadata))
    return replace(
        state,
        manifest=replace(
            manifest,
            schema=schema,
            config=_changed(manifest.config, operation.config),
            table_metadata=_changed(manifest.table_metadata, operation.table_metadata),
        ),
    )


def apply_reserve_fragments(
    operation: ReserveFragments, state: State, context: CommitContext
) -> State:
    """Return the state with fragment ids reserved."""
    del context
    highest = state.manifest.max_fragment_id
    reserved = (highest or 0) + operation.num_fragments
    check_fragment_ids(reserved)
    manifest = replace(state.manifest, max_fragment_id=reserved)
    return replace(state, manifest=manifest)


def apply_update_bases(operation: UpdateBases, state: State, context: CommitContext) -> State:
    """Return the state with bases added or replaced; new bases with id 0 get the next id."""
    del context
    replaced = {base.id for base in operation.new_bases} if operation.replaces else set()
    bases = [base for base in state.manifest.base_paths if base.id not in replaced]
    for base in operation.new_bases:
        _check_new_base(base, bases)
        base_id = base.id or max((other.id for other in bases), default=0) + 1
        bases.append(replace(base, id=base.id if operation.replaces else base_id))
    return replace(state, manifest=replace(state.manifest, base_paths=tuple(bases)))


def apply_create_index(operation: CreateIndex, state: State, context: CommitContext) -> State:
    """Return the state with index segments added and removed.

    A new segment replaces an existing one with the same UUID.

    Raises:
        FieldNotFoundError: The table has no field with the id of an indexed field.
    """
    del context
    for index in operation.new_indices:
        missing = index.missing_fields(state.manifest.schema.by_id)
        if missing:
            raise FieldNotFoundError(
                "the table has no field with the id of an indexed column; build the index again",
                index=index.name,
                field_id=missing[0],
            )
    changed = {index.uuid for index in (*operation.removed_indices, *operation.new_indices)}
    retained = [index for index in state.indices if index.uuid not in changed]
    return replace(state, indices=(*retained, *operation.new_indices))


def _changed(before: Mapping[str, str], change: UpdateMap | None) -> Mapping[str, str]:
    return before if change is None else change.apply(before)


def _with_field_metadata(schema: Schema, changes: Mapping[int, UpdateMap]) -> Schema:
    existing = {field.id for field in schema.walk()}
    missing = sorted(set(changes) - existing)
    if missing:
        raise FieldNotFoundError("no field with this id exists", field_id=missing[0])
    if not changes:
        return schema
    _check_keys_unchanged(schema, changes)
    fields = tuple(_with_metadata(field, changes) for field in schema.fields)
    check_primary_key(fields)
    return replace(schema, fields=fields)


def _check_keys_unchanged(schema: Schema, changes: Mapping[int, UpdateMap]) -> None:
    """Raise if a change affects a key that is set, as rows may be identified by it."""
    key_fields = {
        "primary": {node.id for node in schema.walk() if node.primary_key is not None},
        "clustering": {node.id for node in schema.walk() if node.clustering_key is not None},
    }
    for kind, names in _KEYS.items():
        for field_id, change in changes.items():
            is_named = any(name in change.entries for name in names)
            if key_fields[kind] and (is_named or (change.replace and field_id in key_fields[kind])):
                raise SetKeyError(
                    f"the unenforced {kind} key is a reserved key and cannot be changed once set; "
                    "change other metadata of the field, without replacing all of it",
                    field=schema.path_of(field_id),
                    key=[schema.path_of(each) for each in sorted(key_fields[kind])],
                )


def _with_metadata(field: Field, changes: Mapping[int, UpdateMap]) -> Field:
    children = tuple(_with_metadata(child, changes) for child in field.children)
    change = changes.get(field.id)
    if change is None:
        return replace(field, children=children)
    metadata = change.apply(field.metadata)
    declared = field.with_metadata(metadata)
    # Existing keys are retained, including those stored without metadata.
    primary, clustering = field.primary_key, field.clustering_key
    return replace(
        field,
        metadata=metadata,
        children=children,
        primary_key=declared.primary_key if primary is None else primary,
        clustering_key=declared.clustering_key if clustering is None else clustering,
    )


def _check_new_base(base: BasePath, bases: list[BasePath]) -> None:
    for other in bases:
        same_name = base.name is not None and base.name == other.name
        if same_name or base.path == other.path or (base.id and base.id == other.id):
            raise InvalidInputError(
                "a base with the same id, name or path is registered already",
                id=base.id,
                name=base.name,
                path=base.path,
                registered=other.id,
            )
