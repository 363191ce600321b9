"""Nesting as repetition and definition levels: nulls, and the starts of lists."""

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
from lancelet.encodings.levels.shred import ShreddedLeaf, plain_layers, shred, shred_leaf
from lancelet.encodings.levels.unravel import (
    check_layers,
    check_levels,
    merge,
    unravel,
    visible_validity,
    wrap_in_fixed_lists,
    wrap_in_lists,
    wrap_in_struct,
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
    "merge",
    "nest",
    "paths",
    "plain_layers",
    "rows_multiple",
    "shred",
    "shred_leaf",
    "unravel",
    "visible_validity",
    "wrap_in_fixed_lists",
    "wrap_in_lists",
    "wrap_in_struct",
]
