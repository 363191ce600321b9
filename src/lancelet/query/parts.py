"""Fields that several files of a fragment hold together.

Columns that were added or rewritten later are in files of their own, so a struct may have one
field here and another there:

    wanted    s{x, y, z}
    file a    s{x, y}       part of s
    file b    s{z}          part of s, whose rows are null where those of file a are
    neither   q             null in every row
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.query.scan_types import scan_type

Piece: TypeAlias = tuple[Field, pa.Array]
"""A part of a field and its values."""


def part_within(field: Field, field_ids: Collection[int]) -> Field | None:
    """Return the part of a field that a file with these ids holds, or None if it holds none.

    A file lists the ids of its leaves, and depending on its version also those of parents; blobs
    and packed structs are columns as a whole.
    """
    if not field.children or field.is_blob or field.is_packed:
        return field if field.id in field_ids else None
    parts = [part_within(child, field_ids) for child in field.children]
    kept = [part for part in parts if part is not None]
    if not kept:
        return None
    return field if kept == list(field.children) else field.with_children(kept)


def assemble(field: Field, pieces: Sequence[Piece], num_rows: int) -> pa.Array:
    """Return the values of a field, given its parts; what no part has is null."""
    if not pieces:
        return pa.nulls(num_rows, scan_type(field))
    if len(pieces) == 1 and pieces[0][0] == field:
        return pieces[0][1]
    if field.logical_type == logical_type.STRUCT:
        return _struct(field, pieces, num_rows)
    if field.logical_type in logical_type.LISTS or field.logical_type in logical_type.LARGE_LISTS:
        return _list(field, pieces)
    raise UnsupportedError(
        "the parts of a field of this type are in several files",
        field=field.name,
        logical_type=field.logical_type,
    )


def _struct(field: Field, pieces: Sequence[Piece], num_rows: int) -> pa.Array:
    children = []
    for child in field.children:
        of_child = [
            (own, array.field(place))
            for part, array in pieces
            for place, own in enumerate(part.children)
            if own.id == child.id
        ]
        children.append(assemble(child, of_child, num_rows))
    first = pieces[0][1]
    fields = [
        child.to_arrow().with_type(array.type)
        for child, array in zip(field.children, children, strict=True)
    ]
    mask = first.is_null() if first.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _list(field: Field, pieces: Sequence[Piece]) -> pa.Array:
    """Join lists whose items have their fields in several files; the lengths are the same."""
    first = pieces[0][1]
    items = [(part.children[0], pc.list_flatten(array)) for part, array in pieces]
    joined = assemble(field.children[0], items, len(items[0][1]))
    lengths = pc.fill_null(pc.list_value_length(first), 0)
    is_large = field.logical_type in logical_type.LARGE_LISTS
    number, kind = (pa.int64(), pa.LargeListArray) if is_large else (pa.int32(), pa.ListArray)
    zero = pa.array([0], number)
    offsets = pa.concat_arrays([zero, pc.cumulative_sum(lengths.cast(number))])
    mask = first.is_null() if first.null_count else None
    return kind.from_arrays(offsets, joined, mask=mask).cast(scan_type(field))
