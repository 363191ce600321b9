"""What contains what: a field as a tree of structs and lists over the columns that are its leaves.

    list<struct<x: int, y: list<string>>>

    ListNode
      StructNode
        LeafNode x     column 0    path: list, struct, x
        ListNode
          LeafNode y   column 1    path: list, struct, list, y

Each node on the path from the top to a leaf is one layer of that leaf's levels. Some types look
nested but are leaves, because their values are stored as one: lists of a fixed size over
primitive items, dictionaries, packed structs, blobs and structs without children.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import pyarrow as pa

from lancelet.encodings.base import FileVersion
from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.values import dataclass

BLOB_V2_DESCRIPTOR: Final = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)
"""What a column of blobs holds from 2.2 on: where the bytes are."""


class TypeTooNewError(UnsupportedError, OSError):
    """Files of an older version cannot store a type."""


@dataclass(frozen=True, slots=True)
class LeafNode:
    """A column."""

    field: Field
    data_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StructNode:
    """A struct whose children are columns or contain them."""

    field: Field
    data_type: pa.DataType
    children: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list, large list or map."""

    field: Field
    data_type: pa.DataType
    child: Node


@dataclass(frozen=True, slots=True)
class FixedListNode:
    """A list of a fixed size whose items are structs."""

    field: Field
    data_type: pa.DataType
    child: Node
    dimension: int


Node: TypeAlias = LeafNode | StructNode | ListNode | FixedListNode
Path: TypeAlias = tuple[Node, ...]


def nest(field: Field, version: FileVersion) -> Node:
    """Return the tree of a field, or raise if the file version cannot store its type.

    The type of a node is what its columns hold, which differs from the field's own storage type
    for blobs of 2.2 and later only.
    """
    data_type = field.storage_type
    if is_leaf(field):
        return LeafNode(field, BLOB_V2_DESCRIPTOR if field.is_blob_v2 else data_type)
    if pa.types.is_struct(data_type):
        children = tuple(nest(child, version) for child in field.children)
        return StructNode(field, pa.struct([_arrow_field(child) for child in children]), children)
    if pa.types.is_list(data_type):
        child = nest(field.children[0], version)
        return ListNode(field, pa.list_(_arrow_field(child)), child)
    if pa.types.is_large_list(data_type):
        child = nest(field.children[0], version)
        return ListNode(field, pa.large_list(_arrow_field(child)), child)
    if version < FileVersion.V2_2:
        raise TypeTooNewError(
            "this type is not supported by files before 2.2, which cannot store it; write 2.2",
            field=field.name,
            type=str(data_type),
            version=version.value,
        )
    if pa.types.is_map(data_type):
        entries = nest(field.children[0], version)
        # Users see "key" and "value", whatever the entries are called in the file.
        named = pa.struct([data_type.key_field, data_type.item_field])
        return ListNode(field, data_type, replace(entries, data_type=named))
    if pa.types.is_fixed_size_list(data_type):
        child = nest(field.children[0], version)
        dimension = data_type.list_size
        return FixedListNode(field, pa.list_(_arrow_field(child), dimension), child, dimension)
    raise UnsupportedError("no file can store this type", field=field.name, type=str(data_type))


def is_leaf(field: Field) -> bool:
    """Whether a field is a single column, whatever its type looks like."""
    return not field.children or field.is_blob or is_packed(field)


def is_packed(field: Field) -> bool:
    """Whether a struct's rows are stored as one value each."""
    return field.is_packed and pa.types.is_struct(field.storage_type)


def _arrow_field(node: Node) -> pa.Field:
    # A file can claim that a null column has no nulls; Arrow has no such field.
    nullable = node.field.nullable or pa.types.is_null(node.data_type)
    return pa.field(node.field.name, node.data_type, nullable)


def paths(node: Node, above: Path = ()) -> Iterator[Path]:
    """Yield the path to each leaf, in column order."""
    here = (*above, node)
    match node:
        case LeafNode():
            yield here
        case StructNode(children=children):
            for child in children:
                yield from paths(child, here)
        case ListNode(child=child) | FixedListNode(child=child):
            yield from paths(child, here)


def rows_multiple(path: Path) -> int:
    """Return how many rows of a page stand for one row of the field.

    Lists of a fixed size over structs repeat each entry for all their items, wherever they are
    on the path, so that pages count that many rows.
    """
    multiple = 1
    for node in path:
        if isinstance(node, FixedListNode):
            multiple *= node.dimension
    return multiple
