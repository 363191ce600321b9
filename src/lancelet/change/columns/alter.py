"""Alter the name, nullability and type of columns.

    rename a to b           the field id and the files do not change
    nullable                the same; the values are validated if nulls become forbidden
    int32 to int64          a field with a new id replaces the old one, and new files contain its
                            values

Some columns can only be rewritten completely: all columns in files before version 2.1, and maps,
packed structs and fixed-size lists in all versions.

    2.1   s 1 {x 2, y 3}   cast s.x   s 1 {x 4, y 3}   new files contain 4
    2.0   s 1 {x 2, y 3}   cast s.x   s 1 {x 4, y 3}   new files contain 1, 4, 3
    0.1   s 1 {x 2, y 3}   cast s.x   s 5 {x 6, y 7}   new files contain 5, 6, 7

Replaced fields are not marked in files of version 0.1, because readers would lose other fields.

Supported casts, also of values in structs and lists:

    int32 -> int64, int64 -> int8      within integers, if every value fits
    float32 -> double, string -> large_string, list<int32> -> large_list<int64>
    int32 -> string                    rejected, because the kind of type differs

A cast fails if the new type cannot represent a value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.columns.column_file import file_version_of
from lancelet.change.columns.computed import with_replaced_inputs
from lancelet.change.columns.expand import with_items
from lancelet.change.columns.fields import (
    ColumnError,
    ColumnUnsupportedError,
    check_fields,
    find_chain,
    next_field_id,
)
from lancelet.change.columns.job import ColumnJob, Committing, report_merge
from lancelet.change.columns.plan import ColumnPlan, no_values, plain_projection
from lancelet.change.columns.rows import read_live
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.mem_wal_guard import refuse_change_of_key, refuse_names_of_log, refuse_with_log
from lancelet.change.publish import publish, with_retries
from lancelet.expr.data_types import print_arrow_type
from lancelet.format import logical_type
from lancelet.format.field import NO_PARENT, Field
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Project
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_DIVISIBLE: Final = {logical_type.STRUCT, *logical_type.LISTS, *logical_type.LARGE_LISTS}
"""Types with child fields that can be stored in separate files."""

_T = pa.types
_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    _T.is_integer,
    _T.is_floating,
    _T.is_temporal,
    _T.is_boolean,
    lambda kind: _T.is_string(kind) or _T.is_large_string(kind),
    lambda kind: _T.is_binary(kind) or _T.is_large_binary(kind),
    _T.is_decimal,
)
_LISTS: Final = (_T.is_list, _T.is_large_list, _T.is_fixed_size_list)


@dataclass(frozen=True, slots=True)
class Alteration:
    """The changes to a column; None leaves a property unchanged."""

    path: str
    name: str | None = None
    nullable: bool | None = None
    data_type: pa.DataType | None = None


def alter_columns(
    snapshot: Snapshot, alterations: Sequence[Alteration], committing: Committing | None = None
) -> Snapshot:
    """Alter columns of the latest version, and return the new version."""
    how = committing or Committing()
    if any(each.data_type is not None for each in alterations):
        job = ColumnJob(snapshot.location.store, lambda now: plan_alterations(now, alterations))
        return job.commit(snapshot, how)

    def attempt(current: Snapshot) -> Snapshot:
        plan = plan_alterations(current, alterations)
        operation = Project(plan.schema, plan.keeps_nullability)
        return publish(current, operation, how.options, how.properties)

    return with_retries(snapshot, attempt, how.retries)


def report_alter_columns(snapshot: Snapshot, alterations: Sequence[Alteration]) -> ChangeReport:
    """Return the effect of altering columns without committing it."""
    if any(each.data_type is not None for each in alterations):
        return report_merge(snapshot, lambda now: plan_alterations(now, alterations))
    plan = plan_alterations(snapshot, alterations)
    operation = Project(plan.schema, plan.keeps_nullability)
    return DryRun.of(snapshot).report(operation, snapshot.num_rows)


def plan_alterations(snapshot: Snapshot, alterations: Sequence[Alteration]) -> ColumnPlan:
    """Plan alterations: the new schema and the columns to write."""
    plan = _planned(snapshot, alterations)
    return replace(plan, schema=with_replaced_inputs(snapshot.schema, plan.schema))


def _planned(snapshot: Snapshot, alterations: Sequence[Alteration]) -> ColumnPlan:
    schema = snapshot.schema
    ids = itertools.count(next_field_id(snapshot))
    changed: dict[int, Field] = {}
    roots: dict[int, Field] = {}
    keeps_nullability = True
    version = file_version_of(snapshot)
    for alteration in alterations:
        chain = find_chain(schema, alteration.path)
        before = changed.get(chain[-1].id, chain[-1])
        after = _altered(before, alteration)
        if after.name != before.name:
            refuse_change_of_key(snapshot, before, "rename")
            refuse_names_of_log(snapshot, [after.name])
        if before.nullable and not after.nullable:
            refuse_with_log(snapshot, "forbid nulls in a column", "merge and drop the MemWAL first")
            check_without_nulls(snapshot, chain, alteration.path)
            keeps_nullability = False
        if alteration.data_type is not None:
            refuse_with_log(
                snapshot, "change the type of a column", "add a column of nulls and fill it"
            )
            root = _rewritten(chain, version, alteration.path)
            _check_not_indexed(
                snapshot, root if version is FileVersion.V0_1 else chain[-1], alteration.path
            )
            roots[root.id] = root
            after = _retyped(after, alteration, ids)
        changed[chain[-1].id] = after
    fields = tuple(_replaced(field, changed) for field in schema.fields)
    check_fields(fields)
    altered = Schema(fields, schema.metadata)
    if not roots:
        return ColumnPlan(altered, Schema(()), no_values, keeps_nullability=keeps_nullability)
    rewrite = _plan_rewrite(schema, altered, roots, changed)
    if version is FileVersion.V0_1:
        rewrite = _renumbered(rewrite, roots, ids)
    # Concurrently appended rows have the old fields, which the new schema does not contain.
    return replace(rewrite, keeps_nullability=False)


def _altered(field: Field, alteration: Alteration) -> Field:
    name = field.name if alteration.name is None else alteration.name
    if name in ROW_FIELDS and field.parent_id == NO_PARENT:
        raise ColumnError("a column must not have the name of a row column", column=name)
    nullable = field.nullable if alteration.nullable is None else alteration.nullable
    return replace(field, name=name, nullable=nullable)


def _retyped(field: Field, alteration: Alteration, ids: Iterator[int]) -> Field:
    """Return a field with another type, new ids and the same metadata."""
    assert alteration.data_type is not None
    check_castable(alteration.path, field.arrow_type, alteration.data_type)
    arrow = pa.field(field.name, alteration.data_type, field.nullable, field.to_arrow().metadata)
    return Field.from_arrow(arrow, ids, parent_id=field.parent_id)


def _rewritten(chain: Sequence[Field], version: FileVersion, path: str) -> Field:
    """Return the field to rewrite completely if the last field of a chain is cast."""
    root = chain[-1]
    if version <= FileVersion.V2_0:
        root = chain[0]
    else:
        for field in chain[:-1]:
            if field.is_packed or field.is_blob or field.logical_type not in _DIVISIBLE:
                root = field
                break
    if root.is_blob or any(field.is_blob for field in root.walk()):
        raise ColumnUnsupportedError(
            f"Column {path} is stored together with a blob, which is not rewritten", column=path
        )
    return root


def _check_not_indexed(snapshot: Snapshot, field: Field, path: str) -> None:
    ids = {node.id for node in field.walk()}
    names = sorted(
        {index.name for index in snapshot.indices.indices if not ids.isdisjoint(index.fields)}
    )
    if names:
        raise ColumnError(
            f"Cannot cast column(s) [{path}] to a new type: they have {len(names)} index(es) "
            f"attached: [{', '.join(names)}]; drop them first and recreate them afterwards",
            column=path,
            indices=names,
        )


def _replaced(field: Field, changed: Mapping[int, Field]) -> Field:
    """Replace the changed fields in a field and its descendants."""
    after = changed.get(field.id, field)
    if after.id != field.id or not field.children:
        return after
    return after.with_children(_replaced(child, changed) for child in field.children)


def _plan_rewrite(
    schema: Schema, altered: Schema, roots: Mapping[int, Field], changed: Mapping[int, Field]
) -> ColumnPlan:
    """Return the plan that rewrites the cast fields and the fields stored with them."""
    before = schema.project_ids({node.id for root in roots.values() for node in root.walk()})
    after = altered.project_ids(
        {node.id for root in roots.values() for node in _replaced(root, changed).walk()}
    )
    projection = plain_projection(before.fields)

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        for rows in read_live(current, fragment, projection):
            arrays = [
                cast_values(array, old, new, old.name)
                for array, old, new in zip(rows.columns, before.fields, after.fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(after.names))

    whole = {root.id for root in roots.values() if root.parent_id == NO_PARENT}
    guides = tuple(field for field in before.fields if field.id not in whole)
    return ColumnPlan(altered, after, values, guides)


def _renumbered(plan: ColumnPlan, roots: Mapping[int, Field], ids: Iterator[int]) -> ColumnPlan:
    """Assign unused ids to the rewritten columns of a plan."""
    fields = tuple(
        field.with_ids(ids) if field.id in roots else field for field in plan.schema.fields
    )
    stored = tuple(field for field in fields if field.name in plan.stored.names)
    return replace(plan, schema=replace(plan.schema, fields=fields), stored=Schema(stored))


def check_without_nulls(snapshot: Snapshot, chain: Sequence[Field], path: str) -> None:
    """Raise if the last field of a chain is null in a row where its parents are valid."""
    pruned = snapshot.schema.project_ids({chain[-1].id}).fields
    projection = plain_projection(pruned)
    for fragment in snapshot.fragments:
        for batch in read_live(snapshot, fragment, projection):
            if _has_null(batch.column(0), depth=len(chain) - 1):
                raise ColumnError(
                    f'Column "{path}" contains NULL values and cannot be made non-nullable',
                    column=path,
                    fragment_id=fragment.id,
                )


def _has_null(array: pa.Array, *, depth: int) -> bool:
    if depth == 0:
        return bool(array.null_count)
    if isinstance(array, pa.StructArray):
        present = array.filter(array.is_valid()) if array.null_count else array
        return _has_null(present.field(0), depth=depth - 1)
    return _has_null(pc.list_flatten(array), depth=depth - 1)


def check_castable(path: str, before: pa.DataType, after: pa.DataType) -> None:
    """Raise if a cast is not supported."""
    stored = _without_tensor(before), _without_tensor(after)
    if not _is_same_kind(*stored) or not _has_kernel(*stored):
        raise ColumnError(
            f'Cannot cast column "{path}" from {print_arrow_type(before)} '
            f"to {print_arrow_type(after)}",
            column=path,
            found=str(before),
            requested=str(after),
        )


def cast_values(array: pa.Array, before: Field, after: Field, path: str) -> pa.Array:
    """Cast the values of a field; child fields with unchanged ids are not cast.

    `before` and `after` have the same structure except below the cast fields.
    """
    if before.id != after.id:
        return _cast(array, after.arrow_type, path)
    if before == after or not before.children:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if before.logical_type == logical_type.STRUCT:
        return _cast_struct(array, before, after, path)
    (old,), (new,) = before.children, after.children
    inner = f"{path}.{old.name}"
    if before.logical_type == logical_type.MAP:
        return _cast_map(array, old, new, inner)
    if isinstance(array, pa.FixedSizeListArray):
        size = array.type.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        kind = pa.list_(new.to_arrow(), size)
        values = cast_values(items, old, new, inner)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=_nulls_of(array))
    items = cast_values(pc.list_flatten(array), old, new, inner)
    return with_items(array, items, new)


def _cast_struct(array: pa.StructArray, before: Field, after: Field, path: str) -> pa.StructArray:
    children, fields = [], []
    for index, (old, new) in enumerate(zip(before.children, after.children, strict=True)):
        values = cast_values(array.field(index), old, new, f"{path}.{old.name}")
        children.append(values)
        fields.append(pa.field(new.name, values.type, new.nullable))
    return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls_of(array))


def _cast_map(array: pa.MapArray, before: Field, after: Field, path: str) -> pa.MapArray:
    """Cast the keys and values of maps; `before` and `after` are the entry fields."""
    start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, start)
    key, value = (
        cast_values(own.slice(start, stop - start), old, new, f"{path}.{old.name}")
        for own, old, new in zip(
            (array.keys, array.items), before.children, after.children, strict=True
        )
    )
    kind = pa.map_(key.type, after.children[1].to_arrow().with_type(value.type))
    return pa.MapArray.from_arrays(offsets, key, value, type=kind, mask=_nulls_of(array))


def _nulls_of(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _without_tensor(data_type: pa.DataType) -> pa.DataType:
    """Return the storage type of a fixed-shape tensor; other types are unchanged."""
    is_tensor = isinstance(data_type, pa.FixedShapeTensorType)
    return data_type.storage_type if is_tensor else data_type


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if isinstance(target, pa.FixedShapeTensorType):
        stored = _cast(array, target.storage_type, path)
        return pa.ExtensionArray.from_storage(target, stored)
    if isinstance(array, pa.FixedShapeTensorArray):
        array = array.storage
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"Can't cast value {_first_refused(array, target)} to type "
            f"{print_arrow_type(target)}: {error}",
            column=path,
            requested=str(target),
        ) from error


def _first_refused(array: pa.Array, target: pa.DataType) -> object:
    """Return the first value that cannot be cast."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            half.cast(target)
        except pa.ArrowInvalid:
            array = half
        else:
            array = array.slice(len(half))
    return array[0].as_py()


def _is_same_kind(before: pa.DataType, after: pa.DataType) -> bool:
    if any(is_kind(before) for is_kind in _LISTS):
        is_list = any(is_kind(after) for is_kind in _LISTS)
        return is_list and (
            _is_same_kind(before.value_type, after.value_type) or _makes_vectors(before, after)
        )
    return any(is_kind(before) and is_kind(after) for is_kind in _FAMILIES)


def _makes_vectors(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether lists of integers become vectors, a cast that pylance does not have."""
    is_vector = pa.types.is_fixed_size_list(after) and pa.types.is_floating(after.value_type)
    return bool(is_vector and pa.types.is_integer(before.value_type))


def _has_kernel(before: pa.DataType, after: pa.DataType) -> bool:
    try:
        pa.array([], before).cast(after)
    except pa.ArrowNotImplementedError:
        return False
    return True
