"""Sparse structure (2.3): for each layer of nesting, what is out of the ordinary, by position.

    rows of list<int?>   [[1, null], [], null, [2]]

    layer      slots   stored
    list       4       not empty 0 3, counts 2 1, null 2        the rest, 1, is empty
    validity   3       null 1

Layers come from the outside in, and what one calls its children are the slots of the next. Sets
of positions are sorted. They are kept as they are, so that a page of a billion slots with a
dozen nulls costs a dozen numbers; only the slots that are read become flags and offsets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings import registry
from lancelet.encodings.base import FixedWidth
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.leaf import Picked
from lancelet.encodings.spans import expand
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings23_pb as pb
from lancelet.values import dataclass

Flags: TypeAlias = npt.NDArray[np.bool_]

SLOTS_MAX = 1 << 48
"""The most slots that a page is believed to have."""


@dataclass(frozen=True, slots=True, eq=False)
class ValiditySet:
    """Which slots are valid: all but the listed ones, or just these."""

    position: Int64s
    are_nulls: bool

    def of(self, picked: Picked) -> Flags | None:
        """Return which of some slots are valid, or `None` if all slots of the page are."""
        if self.are_nulls and not len(self.position):
            return None
        return is_member(self.position, picked) ^ self.are_nulls

    @property
    def nbytes(self) -> int:
        """Return the memory this takes."""
        return int(self.position.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class ListSet:
    """The lists of a layer that have children, and which of the others are null."""

    position: Int64s
    first_child: Int64s
    validity: ValiditySet

    def lengths(self, picked: Picked) -> tuple[Int64s, Picked]:
        """Return the lengths of some lists, and the slots of their children."""
        if isinstance(picked, slice):
            first, last = np.searchsorted(self.position, [picked.start, picked.stop])
            lengths = np.zeros(picked.stop - picked.start, np.int64)
            counts = np.diff(self.first_child[first : last + 1])
            lengths[self.position[first:last] - picked.start] = counts
            return lengths, slice(int(self.first_child[first]), int(self.first_child[last]))
        at = np.searchsorted(self.position, picked)
        has_children = is_member(self.position, picked)
        at = at[has_children]
        counts = self.first_child[at + 1] - self.first_child[at]
        lengths = np.zeros(len(picked), np.int64)
        lengths[has_children] = counts
        return lengths, expand(self.first_child[at], counts)

    @property
    def nbytes(self) -> int:
        """Return the memory this takes."""
        return self.position.nbytes + self.first_child.nbytes + self.validity.nbytes


@dataclass(frozen=True, slots=True, eq=False)
class FixedListSet:
    """Lists of a fixed size, and which are null."""

    dimension: int
    validity: ValiditySet

    def children(self, picked: Picked) -> Picked:
        """Return the slots of the children of some lists."""
        if isinstance(picked, slice):
            return slice(picked.start * self.dimension, picked.stop * self.dimension)
        each = picked[:, None] * self.dimension + np.arange(self.dimension)
        return each.reshape(-1)

    @property
    def nbytes(self) -> int:
        """Return the memory this takes."""
        return self.validity.nbytes


SparseLayer: TypeAlias = ValiditySet | ListSet | FixedListSet


@dataclass(frozen=True, slots=True, eq=False)
class SparseLayers:
    """The structure of a page, from the outside in."""

    each: tuple[SparseLayer, ...]

    @property
    def nbytes(self) -> int:
        """Return the memory this takes."""
        return sum(layer.nbytes for layer in self.each)


def is_member(position: Int64s, picked: Picked) -> Flags:
    """Return which of some slots are in a sorted set.

    >>> is_member(np.array([2, 5]), slice(4, 7)).tolist()
    [False, True, False]
    """
    if isinstance(picked, slice):
        flags = np.zeros(picked.stop - picked.start, np.bool_)
        first, last = np.searchsorted(position, [picked.start, picked.stop])
        flags[position[first:last] - picked.start] = True
        return flags
    at = np.searchsorted(position, picked)
    found: Flags = np.append(position, -1)[at] == picked
    return found


def count_slots(message: pb.SparseStructure, num_rows: int) -> int:
    """Return how many slots the innermost layer has."""
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
            raise CorruptDataError("a page claims more slots than it can have", slots=slots)
    return slots


def count_buffers(message: pb.SparseStructure) -> int:
    """Return how many buffers of the page belong to its structure."""
    return sum(registry.owns_bytes(encoding) for encoding in _encodings(message))


def parse_structure(
    message: pb.SparseStructure, num_rows: int, buffers: Sequence[Bytes]
) -> SparseLayers:
    """Read the structure of a page from its message and the buffers that belong to it."""
    waiting = iter(buffers)

    def numbers(encoding: Encoding, count: int, most: int) -> Int64s:
        if count > most:
            raise CorruptDataError(
                "a page lists more positions than it has slots", positions=count, slots=most
            )
        data = next(waiting) if registry.owns_bytes(encoding) else np.empty(0, np.uint8)
        block = registry.decode_block(encoding, data, count)
        if not isinstance(block, FixedWidth) or block.bits != 64:
            raise CorruptDataError("positions are not numbers of 64 bits", found=str(type(block)))
        raw = block.data if block.data.ctypes.data % 8 == 0 else block.data.copy()
        return raw.view(np.int64)

    def positions(encoding: Encoding, count: int, slots: int) -> Int64s:
        found = numbers(encoding, count, slots)
        if len(found) and (
            int(found[0]) < 0 or int(found[-1]) >= slots or bool(np.any(found[1:] <= found[:-1]))
        ):
            raise CorruptDataError("positions do not ascend, or exceed the slots", slots=slots)
        return found

    def validity(message: pb.SparseValiditySet, slots: int) -> ValiditySet:
        if message.meaning not in (pb.SparseValiditySet.NULLS, pb.SparseValiditySet.VALIDS):
            raise CorruptDataError("a set of positions has no meaning", meaning=message.meaning)
        found = positions(message.positions, message.num_positions, slots)
        return ValiditySet(found, message.meaning == pb.SparseValiditySet.NULLS)

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
                raise CorruptDataError("a layer of a sparse structure is unknown", layer=unknown)
    return SparseLayers(tuple(layers))


def _encodings(message: pb.SparseStructure) -> Iterator[Encoding]:
    """Yield all encodings of a structure, in the order of their buffers."""
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
    """Return the first child of each list, and the number of children behind."""
    if len(counts) and (int(counts.min()) <= 0 or int(counts.max()) > total):
        raise CorruptDataError("a list that is not empty has an impossible length", children=total)
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    # No count exceeds 2^48, so a sum that wrapped around would have been negative before.
    if int(sums[-1]) != total or bool(np.any(sums < 0)):
        raise CorruptDataError(
            "the lengths of lists do not add up to their children",
            expected=total,
            found=int(sums[-1]),
        )
    return sums
