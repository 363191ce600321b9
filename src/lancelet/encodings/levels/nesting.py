"""A field as a tree of structs and lists with the columns as leaves.

    list<struct<x: int, y: list<string>>>

    ListNode
      StructNode
        LeafNode x     column 0    path: list, struct, x
        ListNode
          LeafNode y   column 1    path: list, struct, list, y

Each node on the path to a leaf is one layer of the levels of the leaf. Some nested types are
leaves, because their values are stored as one: fixed-size lists of primitive items, dictionaries,
packed structs, blobs, and structs without children.
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
"""The type of blob columns since 2.2: descriptors."""


class TypeTooNewError(UnsupportedError, OSError):
    """The file version is too old for a type."""


@dataclass(frozen=True, slots=True)
class LeafNode:
    """A column."""

    field: Field
    data_type: pa.DataType


@dataclass(frozen=True, slots=True)
class StructNode:
    """A struct with leaf or nested children."""

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
    """A fixed-size list of structs."""

    field: Field
    data_type: pa.DataType
    child: Node
    dimension: int


Node: TypeAlias = LeafNode | StructNode | ListNode | FixedListNode
Path: TypeAlias = tuple[Node, ...]


def nest(field: Field, version: FileVersion) -> Node:
    """Return the tree of a field, or raise if the file version cannot store its type.

    Node types are those of the stored columns; they differ from the storage type of the field only
    for blobs since 2.2.
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
            "files before version 2.2 do not support this type; write version 2.2",
            field=field.name,
            type=str(data_type),
            version=version.value,
        )
    if pa.types.is_map(data_type):
        entries = nest(field.children[0], version)
        # The Arrow map type determines the names of the entries, not the file.
        named = pa.struct([data_type.key_field, data_type.item_field])
        return ListNode(field, data_type, replace(entries, data_type=named))
    if pa.types.is_fixed_size_list(data_type):
        child = nest(field.children[0], version)
        dimension = data_type.list_size
        return FixedListNode(field, pa.list_(_arrow_field(child), dimension), child, dimension)
    raise UnsupportedError(
        "no file version can store this type", field=field.name, type=str(data_type)
    )


def is_leaf(field: Field) -> bool:
    """Return whether a field is stored as a single column."""
    return not field.children or field.is_blob or is_packed(field)


def is_packed(field: Field) -> bool:
    """Return whether each row of a struct is stored as one value."""
    return field.is_packed and pa.types.is_struct(field.storage_type)


def _arrow_field(node: Node) -> pa.Field:
    # Files may declare a null column non-nullable, which Arrow rejects.
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
    """Return the number of page rows per row of the field.

    Fixed-size lists of structs repeat each entry for all their items, at any position in the path,
    so that pages count each item as a row.
    """
    multiple = 1
    for node in path:
        if isinstance(node, FixedListNode):
            multiple *= node.dimension
    return multiple
