"""Operations that change no rows: config and metadata, bases, reservations, index segments."""

from __future__ import annotations

from collections.abc import Mapping

from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.format.base_paths import BasePath
from lancelet.format.operation import (
    CreateIndex,
    ReserveFragments,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from lancelet.format.schema import Field, Schema
from lancelet.table.apply.state import CommitContext, State
from lancelet.values import replace


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
    """Return the state in which fragment ids are taken."""
    del context
    highest = state.manifest.max_fragment_id
    manifest = replace(state.manifest, max_fragment_id=(highest or 0) + operation.num_fragments)
    return replace(state, manifest=manifest)


def apply_update_bases(operation: UpdateBases, state: State, context: CommitContext) -> State:
    """Return the state with more or other bases; new ones with id 0 get the next one."""
    del context
    replaced = {base.id for base in operation.new_bases} if operation.replaces else set()
    bases = [base for base in state.manifest.base_paths if base.id not in replaced]
    for base in operation.new_bases:
        _check_new_base(base, bases)
        base_id = base.id or max((other.id for other in bases), default=0) + 1
        bases.append(replace(base, id=base.id if operation.replaces else base_id))
    return replace(state, manifest=replace(state.manifest, base_paths=tuple(bases)))


def apply_create_index(operation: CreateIndex, state: State, context: CommitContext) -> State:
    """Return the state with segments added and others removed; one index may have several.

    A segment that comes again takes the place of what was known of it.
    """
    del context
    changed = {index.uuid for index in (*operation.removed_indices, *operation.new_indices)}
    kept = [index for index in state.indices if index.uuid not in changed]
    return replace(state, indices=(*kept, *operation.new_indices))


def _changed(before: Mapping[str, str], change: UpdateMap | None) -> Mapping[str, str]:
    return before if change is None else change.apply(before)


def _with_field_metadata(schema: Schema, changes: Mapping[int, UpdateMap]) -> Schema:
    known = {field.id for field in schema.walk()}
    missing = sorted(set(changes) - known)
    if missing:
        raise FieldNotFoundError("no field has the id", field_id=missing[0])
    if not changes:
        return schema
    return replace(schema, fields=tuple(_with_metadata(field, changes) for field in schema.fields))


def _with_metadata(field: Field, changes: Mapping[int, UpdateMap]) -> Field:
    change = changes.get(field.id)
    return replace(
        field,
        metadata=field.metadata if change is None else change.apply(field.metadata),
        children=tuple(_with_metadata(child, changes) for child in field.children),
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
