"""Full zip: control word, length and bytes of each item are adjacent, so one read gets a row.

    bits_rep 1, bits_def 1, control word = rep << 1 | def, one byte
    fixed, 2 bytes       02 'a' 'b'    00 'c' 'd'    01 .. ..     third item null, with filler
    variable, length 4   02 2 0 0 0 'a' 'b'    00 1 0 0 0 'c'    01

An item is visible, and has a value slot, unless its definition level is above `max_visible_def`:
then it represents a null or empty list. A fixed-width item has bytes if it is visible, a
variable-width one only if its definition level is 0. Without levels there is no control word.

The start of an item depends on all items before, so this implementation is sequential.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import check_slices, check_whole_values
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.full_zip import ZipShape, check_item_bytes, check_zipped
from lancelet.kernels.offsets import (
    Offsets,
    check_has_offsets,
    check_offset_bytes,
    check_offsets,
    offsets_of,
)
from lancelet.kernels.reference.copies import gather

Levels: TypeAlias = npt.NDArray[np.uint16]


def unzip_fixed(
    slices: ByteSlices, shape: ZipShape, value_bytes: int
) -> tuple[Levels, Levels, Bytes, Int64s]:
    """Decode fixed-width items to the end of every slice.

    Returns repetition and definition levels (empty if they have no bits), the bytes of the visible
    items, and the number of items in each slice.
    """
    kernel = "unzip_fixed"
    check_slices(slices, kernel=kernel)
    check_item_bytes(shape, value_bytes)
    controls: list[int] = []
    starts: list[int] = []
    items = np.zeros(len(slices), np.int64)
    for index in range(len(slices)):
        data = slices.slice_bytes(index)
        base = int(slices.position[index])
        at = 0
        while at < data.nbytes:
            control, at = _control(data, at, shape, kernel, index)
            controls.append(control)
            items[index] += 1
            if shape.is_visible(control):
                if value_bytes > data.nbytes - at:
                    raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=index)
                starts.append(base + at)
                at += value_bytes
    rep, definition = _levels(controls, shape)
    position = np.array(starts, np.int64)
    values = gather(slices.source, position, np.full(len(position), value_bytes, np.int64))
    return rep, definition, values, items


def unzip_variable(
    slices: ByteSlices, shape: ZipShape, length_bytes: int, out_bits: int
) -> tuple[Levels, Levels, Offsets, Bytes, Int64s]:
    """Decode variable-width items to the end of every slice.

    Returns repetition and definition levels (empty if they have no bits), offsets and bytes of the
    visible items (nulls are empty), and the number of items in each slice.
    """
    kernel = "unzip_variable"
    check_slices(slices, kernel=kernel)
    check_offset_bytes(length_bytes)
    controls: list[int] = []
    starts: list[int] = []
    sizes: list[int] = []
    items = np.zeros(len(slices), np.int64)
    for index in range(len(slices)):
        data = slices.slice_bytes(index)
        base = int(slices.position[index])
        at = 0
        while at < data.nbytes:
            control, at = _control(data, at, shape, kernel, index)
            controls.append(control)
            items[index] += 1
            size = 0
            if shape.definition(control) == 0:
                if length_bytes > data.nbytes - at:
                    raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=index)
                size = int.from_bytes(data[at : at + length_bytes].tobytes(), "little")
                at += length_bytes
                if size > data.nbytes - at:
                    raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=index)
            if shape.is_visible(control):
                starts.append(base + at)
                sizes.append(size)
            at += size
    rep, definition = _levels(controls, shape)
    size_array = np.array(sizes, np.int64)
    offsets = offsets_of(size_array, out_bits=out_bits, kernel=kernel)
    data = gather(slices.source, np.array(starts, np.int64), size_array)
    return rep, definition, offsets, data, items


def zip_fixed(
    rep: Levels, definition: Levels, values: Bytes, shape: ZipShape, value_bytes: int
) -> tuple[Bytes, Int64s]:
    """Encode fixed-width items; return the bytes, and the start of each item and the end."""
    count = check_whole_values(values, value_bytes)
    control, visible = check_zipped(rep, definition, shape, count)
    size = shape.control_bytes + np.where(visible, value_bytes, 0)
    starts, out = _layout(control, size, shape)
    at = starts[:-1][visible] + shape.control_bytes
    out[at[:, None] + np.arange(value_bytes)] = values.reshape(count, value_bytes)
    return out, starts


def zip_variable(
    rep: Levels,
    definition: Levels,
    offsets: Offsets,
    data: Bytes,
    shape: ZipShape,
    length_bytes: int,
) -> tuple[Bytes, Int64s]:
    """Encode variable-width items; return the bytes, and the start of each item and the end.

    `offsets` has an entry per visible item; bytes of nulls are dropped.
    """
    check_offset_bytes(length_bytes)
    check_has_offsets(offsets, kernel="zip_variable")
    check_offsets(offsets, data.nbytes, kernel="zip_variable")
    control, visible = check_zipped(rep, definition, shape, len(offsets) - 1)
    present = shape.definition(control) == 0
    slot = np.flatnonzero(present[visible])
    source = offsets[slot].astype(np.int64)
    length = offsets[slot + 1].astype(np.int64) - source
    if length_bytes == 4 and np.any(length >= 1 << 32):
        raise corrupt(Fault.TOO_LARGE, kernel="zip_variable", index=int(slot[length.argmax()]))
    size = np.full(len(control), shape.control_bytes, np.int64)
    size[present] += length_bytes + length
    starts, out = _layout(control, size, shape)
    at = starts[:-1][present] + shape.control_bytes
    lengths = length.astype(f"<u{length_bytes}").view(np.uint8).reshape(-1, length_bytes)
    out[at[:, None] + np.arange(length_bytes)] = lengths
    ends = np.cumsum(length)
    within = np.arange(int(length.sum())) - np.repeat(ends - length, length)
    out[np.repeat(at + length_bytes, length) + within] = gather(data, source, length)
    return out, starts


def _control(data: Bytes, at: int, shape: ZipShape, kernel: str, index: int) -> tuple[int, int]:
    stop = at + shape.control_bytes
    if stop > data.nbytes:
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=index)
    return int.from_bytes(data[at:stop].tobytes(), "little"), stop


def _levels(controls: list[int], shape: ZipShape) -> tuple[Levels, Levels]:
    control = np.array(controls, np.uint32)
    none = np.empty(0, np.uint16)
    rep = (control >> np.uint32(shape.bits_def)) & np.uint32((1 << shape.bits_rep) - 1)
    definition = control & np.uint32((1 << shape.bits_def) - 1)
    return (
        rep.astype(np.uint16) if shape.bits_rep else none,
        definition.astype(np.uint16) if shape.bits_def else none,
    )


def _layout(control: npt.NDArray[np.uint32], size: Int64s, shape: ZipShape) -> tuple[Int64s, Bytes]:
    """Return the start of each item, and the output with control words."""
    starts = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=starts[1:])
    out = np.zeros(int(starts[-1]), np.uint8)
    control_bytes = control.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : shape.control_bytes]
    out[starts[:-1, None] + np.arange(shape.control_bytes)] = control_bytes
    return starts, out
