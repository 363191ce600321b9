"""Assemble fields that are stored in several files of a fragment.

Columns that were added or rewritten later are in separate files, so the fields of a struct may be
in different files:

    requested s{x, y, z}
    file a    s{x, y}       part of s
    file b    s{z}          part of s, null in the same rows as in file a
    neither   q             null in every row
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.expr.scan_types import scan_type
from lancelet.format import logical_type
from lancelet.format.field import Field

Piece: TypeAlias = tuple[Field, pa.Array]
"""A part of a field and its values."""


def part_within(field: Field, field_ids: Collection[int]) -> Field | None:
    """Return the part of a field stored in a file with these field ids, or None.

    A file lists the ids of leaf fields and, depending on its version, of their parents. Blobs and
    packed structs are stored as one column.
    """
    if not field.children or field.is_blob or field.is_packed:
        return field if field.id in field_ids else None
    parts = [part_within(child, field_ids) for child in field.children]
    stored = [part for part in parts if part is not None]
    if not stored:
        return None
    return field if stored == list(field.children) else field.with_children(stored)


def assemble(field: Field, parts: Sequence[Piece], num_rows: int) -> pa.Array:
    """Assemble a field from its parts; missing fields are null."""
    if not parts:
        return pa.nulls(num_rows, scan_type(field))
    if len(parts) == 1 and parts[0][0] == field:
        return parts[0][1]
    if field.logical_type == logical_type.STRUCT:
        return _struct(field, parts, num_rows)
    if field.logical_type in logical_type.LISTS or field.logical_type in logical_type.LARGE_LISTS:
        return _list(field, parts)
    raise UnsupportedError(
        "a field of this type cannot be assembled from several files",
        field=field.name,
        logical_type=field.logical_type,
    )


def _struct(field: Field, parts: Sequence[Piece], num_rows: int) -> pa.Array:
    children = []
    for child in field.children:
        of_child = [
            (own, array.field(index))
            for part, array in parts
            for index, own in enumerate(part.children)
            if own.id == child.id
        ]
        children.append(assemble(child, of_child, num_rows))
    first = parts[0][1]
    fields = [
        child.to_arrow().with_type(array.type)
        for child, array in zip(field.children, children, strict=True)
    ]
    mask = first.is_null() if first.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _list(field: Field, parts: Sequence[Piece]) -> pa.Array:
    """Assemble lists from parts with equal list lengths."""
    first = parts[0][1]
    items = [(part.children[0], pc.list_flatten(array)) for part, array in parts]
    joined = assemble(field.children[0], items, len(items[0][1]))
    lengths = pc.fill_null(pc.list_value_length(first), 0)
    is_large = field.logical_type in logical_type.LARGE_LISTS
    number, kind = (pa.int64(), pa.LargeListArray) if is_large else (pa.int32(), pa.ListArray)
    zero = pa.array([0], number)
    offsets = pa.concat_arrays([zero, pc.cumulative_sum(lengths.cast(number))])
    mask = first.is_null() if first.null_count else None
    return kind.from_arrays(offsets, joined, mask=mask).cast(scan_type(field))
