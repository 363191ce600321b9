"""Sparse structure (2.3): positions of nulls and non-empty lists in each layer.

    rows of list<int?>   [[1, null], [], null, [2]]

    layer      slots   stored
    list       4       non-empty 0 3, counts 2 1, null 2        slot 1 is empty
    validity   3       null 1

Layers are ordered from the outside in; the children of a layer are the slots of the next one.
Position sets are sorted and kept in sparse form, so that a page of a billion slots with a dozen
nulls needs a dozen numbers; only the slots being read are expanded to flags and offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.base import FixedWidth
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.pages.leaf import Selection
from lancelet.encodings.row_ranges import expand
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings23_pb as pb
from lancelet.values import dataclass

Flags: TypeAlias = npt.NDArray[np.bool_]

SLOTS_MAX = 1 << 48
"""Maximum accepted number of slots per page."""


@dataclass(frozen=True, slots=True, eq=False)
class ValiditySet:
    """Valid slots: all except the listed ones, or only these."""

    position: Int64s
    are_nulls: bool

    def get_validity(self, selection: Selection) -> Flags | None:
        """Return a mask of the valid slots in a selection, or `None` if the page has no nulls."""
        if self.are_nulls and not len(self.position):
            return None
        return is_member(self.position, selection) ^ self.are_nulls

    @property
    def nbytes(self) -> int:
        """Return the memory usage in bytes."""
        return int(self.position.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class ListSet:
    """The non-empty lists of a layer, and the validity of all lists."""

    position: Int64s
    first_child: Int64s
    validity: ValiditySet

    def lengths(self, selection: Selection) -> tuple[Int64s, Selection]:
        """Return the lengths of selected lists, and the slots of their children."""
        if isinstance(selection, slice):
            first, last = np.searchsorted(self.position, [selection.start, selection.stop])
            lengths = np.zeros(selection.stop - selection.start, np.int64)
            counts = np.diff(self.first_child[first : last + 1])
            lengths[self.position[first:last] - selection.start] = counts
            return lengths, slice(int(self.first_child[first]), int(self.first_child[last]))
        indices = np.searchsorted(self.position, selection)
        has_children = is_member(self.position, selection)
        indices = indices[has_children]
        counts = self.first_child[indices + 1] - self.first_child[indices]
        lengths = np.zeros(len(selection), np.int64)
        lengths[has_children] = counts
        return lengths, expand(self.first_child[indices], counts)

    @property
    def nbytes(self) -> int:
        """Return the memory usage in bytes."""
        return self.position.nbytes + self.first_child.nbytes + self.validity.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class FixedListSet:
    """Fixed-size lists and their validity."""

    dimension: int
    validity: ValiditySet

    def children(self, selection: Selection) -> Selection:
        """Return the slots of the children of selected lists."""
        if isinstance(selection, slice):
            return slice(selection.start * self.dimension, selection.stop * self.dimension)
        each = selection[:, None] * self.dimension + np.arange(self.dimension)
        return each.reshape(-1)

    @property
    def nbytes(self) -> int:
        """Return the memory usage in bytes."""
        return self.validity.nbytes


SparseLayer: TypeAlias = ValiditySet | ListSet | FixedListSet


@dataclass(frozen=True, slots=True, eq=False)
class SparseLayers:
    """The structure of a page, from the outside in."""

    each: tuple[SparseLayer, ...]

    @property
    def nbytes(self) -> int:
        """Return the memory usage in bytes."""
        return sum(layer.nbytes for layer in self.each)


def is_member(position: Int64s, selection: Selection) -> Flags:
    """Return a mask of the selected slots that are in a sorted set.

    >>> is_member(np.array([2, 5]), slice(4, 7)).tolist()
    [False, True, False]
    """
    if isinstance(selection, slice):
        flags = np.zeros(selection.stop - selection.start, np.bool_)
        first, last = np.searchsorted(position, [selection.start, selection.stop])
        flags[position[first:last] - selection.start] = True
        return flags
    indices = np.searchsorted(position, selection)
    is_contained: Flags = np.append(position, -1)[indices] == selection
    return is_contained


def count_slots(message: pb.SparseStructure, num_rows: int) -> int:
    """Return the number of slots of the innermost layer."""
    slots = num_rows
    for layer in message.layers:
        match layer.WhichOneof("layer"):
            case "list":
                slots = int(layer.list.num_child_slots)
            case "fixed_size_list":
                slots *= int(layer.fixed_size_list.dimension)
            case _:
                pass
        if slots > SLOTS_MAX:
            raise CorruptDataError("a page claims too many slots", slots=slots)
    return slots


def count_buffers(message: pb.SparseStructure) -> int:
    """Return the number of page buffers of the structure."""
    return sum(registry.owns_bytes(encoding) for encoding in _encodings(message))


def parse_structure(
    message: pb.SparseStructure, num_rows: int, buffers: Sequence[Bytes]
) -> SparseLayers:
    """Parse the structure of a page from its message and buffers."""
    remaining = iter(buffers)

    def numbers(encoding: Encoding, count: int, count_max: int) -> Int64s:
        if count > count_max:
            raise CorruptDataError(
                "a page lists more positions than it has slots", positions=count, slots=count_max
            )
        data = next(remaining) if registry.owns_bytes(encoding) else np.empty(0, np.uint8)
        block = registry.decode_block(encoding, data, count)
        if not isinstance(block, FixedWidth) or block.bits != 64:
            raise CorruptDataError("positions must have 64 bits", found=str(type(block)))
        raw = block.data if block.data.ctypes.data % 8 == 0 else block.data.copy()
        return raw.view(np.int64)

    def positions(encoding: Encoding, count: int, slots: int) -> Int64s:
        ascending = numbers(encoding, count, slots)
        if len(ascending) and (
            int(ascending[0]) < 0
            or int(ascending[-1]) >= slots
            or bool(np.any(ascending[1:] <= ascending[:-1]))
        ):
            raise CorruptDataError("positions do not ascend or exceed the slots", slots=slots)
        return ascending

    def validity(message: pb.SparseValiditySet, slots: int) -> ValiditySet:
        if message.meaning not in (pb.SparseValiditySet.NULLS, pb.SparseValiditySet.VALIDS):
            raise CorruptDataError("unknown meaning of a set of positions", meaning=message.meaning)
        null_positions = positions(message.positions, message.num_positions, slots)
        return ValiditySet(null_positions, message.meaning == pb.SparseValiditySet.NULLS)

    layers: list[SparseLayer] = []
    slots = num_rows
    for layer in message.layers:
        match layer.WhichOneof("layer"):
            case "validity":
                layers.append(validity(layer.validity, slots))
            case "list":
                count = layer.list.num_non_empty_positions
                position = positions(layer.list.non_empty_positions, count, slots)
                counts = numbers(layer.list.counts, count, slots)
                nulls = validity(layer.list.validity, slots)
                slots = int(layer.list.num_child_slots)
                first_child = _sums(counts, slots)
                layers.append(ListSet(position, first_child, nulls))
            case "fixed_size_list":
                dimension = int(layer.fixed_size_list.dimension)
                layers.append(
                    FixedListSet(dimension, validity(layer.fixed_size_list.validity, slots))
                )
                slots *= dimension
            case unknown:
                raise CorruptDataError("unknown layer of a sparse structure", layer=unknown)
    return SparseLayers(tuple(layers))


def _encodings(message: pb.SparseStructure) -> Iterator[Encoding]:
    """Yield all encodings of a structure, in buffer order."""
    for layer in message.layers:
        match layer.WhichOneof("layer"):
            case "validity":
                yield layer.validity.positions
            case "list":
                yield layer.list.non_empty_positions
                yield layer.list.counts
                yield layer.list.validity.positions
            case "fixed_size_list":
                yield layer.fixed_size_list.validity.positions
            case _:
                pass


def _sums(counts: Int64s, total: int) -> Int64s:
    """Return the first child of each list, followed by the number of children."""
    if len(counts) and (int(counts.min()) <= 0 or int(counts.max()) > total):
        raise CorruptDataError("invalid length of a non-empty list", children=total)
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    # Counts are at most 2^48, so an overflow would first produce a negative sum.
    if int(sums[-1]) != total or bool(np.any(sums < 0)):
        raise CorruptDataError(
            "the list lengths do not match the number of children",
            expected=total,
            found=int(sums[-1]),
        )
    return sums
