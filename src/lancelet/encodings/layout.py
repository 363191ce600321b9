"""The layouts that all generations with levels share, and pages on their way to the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from lancelet.buffers import Bytes
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.levels import Layers, ShreddedLeaf
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class MiniBlockLayout:
    """A page of chunks; without a repetition index its rows are its values."""

    layers: Layers
    values: Encoding
    num_values: int
    num_buffers: int
    has_large_chunks: bool
    repetition: Encoding | None = None
    definition: Encoding | None = None
    dictionary: Encoding | None = None
    num_dictionary_items: int = 0
    repetition_index_depth: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class FullZipLayout:
    """A page of items side by side.

    Values have `value_bits` each, or lengths of `length_bits`; the other is `None`.
    """

    layers: Layers
    values: Encoding
    bits_rep: int
    bits_def: int
    value_bits: int | None
    length_bits: int | None
    num_items: int
    num_visible_items: int


@dataclass(frozen=True, slots=True, eq=False)
class ConstantLayout:
    """A page of levels around one value, or around none.

    With neither an `inline_value` nor a buffer for it, everything is null. Levels without an
    encoding are plain numbers.
    """

    layers: Layers
    inline_value: bytes | None
    has_value_buffer: bool = False
    repetition: Encoding | None = None
    definition: Encoding | None = None
    num_repetition: int = 0
    num_definition: int = 0


Layout: TypeAlias = MiniBlockLayout | FullZipLayout | ConstantLayout


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The layout of a page with its buffers; `encoding` and `refused` are for reports."""

    layout: Layout
    buffers: tuple[Bytes, ...]
    encoding: str
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PageBody:
    """A page before its layout has become a message.

    `leaf` is what the page holds, `first_row` where that begins in the leaf of the column.
    """

    first_row: int
    leaf: ShreddedLeaf
    body: Body
