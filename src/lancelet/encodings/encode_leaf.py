"""From a shredded leaf to the bodies of its pages: layout and buffers, whatever the generation.

    all null, or no value      constant page of levels only
    one value all over         constant page with the value, from 2.2 on
    else                       mini-block or full zip, as the values suggest

A chunk of a mini-block page counts its entries with 16 bits. Where more than that have no value
in a row (thousands of empty lists, then one that is not), the page is cut in two by rows, and
again, until it fits; a single row that still does not fit becomes a full-zip page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import Block, FileVersion, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkLimits
from lancelet.encodings.constant import ConstantLayout, build_constant
from lancelet.encodings.fullzip.read import FullZipLayout
from lancelet.encodings.fullzip.write import build_full_zip
from lancelet.encodings.leaf import slice_block
from lancelet.encodings.levels import ShreddedLeaf
from lancelet.encodings.miniblock.read import MiniBlockLayout
from lancelet.encodings.miniblock.write import build_mini_block
from lancelet.encodings.options import EncodingOptions
from lancelet.encodings.plan import codec_for, wants_full_zip
from lancelet.errors import UnsupportedError

Layout: TypeAlias = MiniBlockLayout | FullZipLayout | ConstantLayout
_Body: TypeAlias = tuple[Layout, tuple[Bytes, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class PageBody:
    """A page before its layout has become a message; rows count within the leaf."""

    first_row: int
    num_rows: int
    layout: Layout
    buffers: tuple[Bytes, ...]


def encode_leaf(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, *, multiple: int = 1
) -> Iterator[PageBody]:
    """Yield the pages of a leaf; they are cut at multiples of `multiple` rows only."""
    waiting = [(0, leaf)]
    while waiting:
        first_row, part = waiting.pop()
        num_rows = _num_rows(part)
        can_be_cut = num_rows > multiple
        body = _encode(part, version, options, can_be_cut=can_be_cut)
        if body is not None:
            yield PageBody(first_row, num_rows, *body)
            continue
        middle = num_rows // (2 * multiple) * multiple
        head, tail = _cut(part, middle)
        waiting += [(first_row + middle, tail), (first_row, head)]


def _encode(
    leaf: ShreddedLeaf, version: FileVersion, options: EncodingOptions, *, can_be_cut: bool
) -> _Body | None:
    """Return the body of one page, or `None` if it has to be cut in two."""
    has_2_2 = version >= FileVersion.V2_2
    valid = _valid_slots(leaf)
    data_type = leaf.values.type
    if pa.types.is_struct(data_type) and data_type.num_fields == 0:
        if leaf.definition is not None or leaf.repetition is not None:
            raise UnsupportedError(
                "a struct without children cannot be null or lie in a list", field=leaf.field.name
            )
        return build_constant(leaf, None, has_level_encodings=False)
    if len(leaf.values) == 0 or (valid is not None and len(valid) == 0):
        return build_constant(leaf, None, has_level_encodings=has_2_2)
    if pa.types.is_dictionary(data_type):
        raise NotImplementedError
    block = block_from_arrow(leaf.values)
    if has_2_2 and isinstance(block, FixedWidth | Variable):
        first = 0 if valid is None else int(valid[0])
        value = slice_block(block, first, first + 1)
        if _is_constant(block, first, valid):
            return build_constant(leaf, value, has_level_encodings=True)
    if not wants_full_zip(block):
        limits = ChunkLimits() if has_2_2 else ChunkLimits(bytes_max=16384)
        body = build_mini_block(
            leaf,
            codec_for(block, False).encode_chunks(block, limits),
            has_large_chunks=has_2_2,
            has_run_lengths=has_2_2,
        )
        if body is not None or can_be_cut:
            return body
    return build_full_zip(leaf, codec_for(block, True).encode_values(block))


def _is_constant(block: FixedWidth | Variable, first: int, valid) -> bool:
    if isinstance(block, FixedWidth):
        if block.bits == 1:
            bits = np.unpackbits(block.data, bitorder="little", count=block.count)
            bits = bits if valid is None else bits[valid]
            return bool((bits == bits[0]).all())
        rows = block.data.reshape(block.count, -1)
        one = rows[first]
        if valid is not None:
            rows = rows[valid]
        return bool((rows[:64] == one).all() and (rows == one).all())
    lengths = np.diff(block.offsets)
    if valid is not None:
        lengths = lengths[valid]
    if not (lengths == lengths[0]).all():
        return False
    data = (
        block.data[block.offsets[0] : block.offsets[-1]].reshape(len(lengths), -1)
        if lengths[0]
        else None
    )
    return data is None or bool((data == data[0]).all())


def _valid_slots(leaf: ShreddedLeaf):
    """Return the slots that hold a value, or `None` if all do."""
    if leaf.definition is None:
        return None
    visible = leaf.definition
    if leaf.layers.visible_def_max < leaf.layers.def_max:
        visible = visible[visible <= leaf.layers.visible_def_max]
    valid = np.flatnonzero(visible == 0)
    return None if len(valid) == len(visible) else valid


def _num_rows(leaf: ShreddedLeaf) -> int:
    if leaf.repetition is None:
        return leaf.num_entries
    return int(np.count_nonzero(leaf.repetition == leaf.layers.rep_max))


def _cut(leaf: ShreddedLeaf, row: int) -> tuple[ShreddedLeaf, ShreddedLeaf]:
    """Return the rows before `row`, and those from it on."""
    entry = row
    if leaf.repetition is not None:
        entry = int(np.flatnonzero(leaf.repetition == leaf.layers.rep_max)[row])
    slot = entry
    if leaf.definition is not None:
        slot = int(np.count_nonzero(leaf.definition[:entry] <= leaf.layers.visible_def_max))
    parts = []
    for entries, slots in (
        (slice(None, entry), leaf.values.slice(0, slot)),
        (slice(entry, None), leaf.values.slice(slot)),
    ):
        parts.append(
            replace(
                leaf,
                repetition=None if leaf.repetition is None else leaf.repetition[entries],
                definition=None if leaf.definition is None else leaf.definition[entries],
                values=slots,
            )
        )
    return parts[0], parts[1]
