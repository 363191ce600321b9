"""Nesting as levels: what is missing, and where lists begin, as two small numbers per entry."""

from lancelet.encodings.levels.layers import Layer, LayerKind, Layers
from lancelet.encodings.levels.nesting import (
    BLOB_V2_DESCRIPTOR,
    FixedListNode,
    LeafNode,
    ListNode,
    Node,
    Path,
    StructNode,
    nest,
    paths,
    rows_multiple,
)
from lancelet.encodings.levels.shred import ShreddedLeaf, plain_layers, shred, shred_alike
from lancelet.encodings.levels.unravel import (
    check_layers,
    check_levels,
    fixed_lists_around,
    lists_around,
    merge,
    struct_around,
    unravel,
    visible_validity,
)
from lancelet.kernels import Levels

__all__ = [
    "BLOB_V2_DESCRIPTOR",
    "FixedListNode",
    "Layer",
    "LayerKind",
    "Layers",
    "LeafNode",
    "Levels",
    "ListNode",
    "Node",
    "Path",
    "ShreddedLeaf",
    "StructNode",
    "check_layers",
    "check_levels",
    "fixed_lists_around",
    "lists_around",
    "merge",
    "nest",
    "paths",
    "plain_layers",
    "rows_multiple",
    "shred",
    "shred_alike",
    "struct_around",
    "unravel",
    "visible_validity",
]
