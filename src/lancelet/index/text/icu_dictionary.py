"""Reader of ICU dictionaries, which returns the words as a tree of arrays.

A dictionary consists of a header of eight numbers and a trie of UTF-16 units, or of bytes that are
units minus an offset.

    indexes    [0] start of the trie    [3] total size   [4] kind: & 7 is 1 for UTF-16 units
               [5] & 1fffff: offset added to bytes
    node       a value followed by a transition, or a final value
               a linear match: a sequence of units
               a branch: a binary search down to five transitions, then unit, value or distance
    number     a lead unit, with one more unit beyond each of several limits

    to, too    linear match "to", value, linear match "o", final value

The trie is decoded one level at a time. The tree stores nodes in this order, so the children of a
node are adjacent; see `lancelet.index.kernels.segments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import StorageError
from lancelet.values import dataclass

_INDEXES: Final = 8
_IS_UNITS: Final = 1
_KIND_MASK: Final = 7
_OFFSET_MASK: Final = 0x1FFFFF
_LINEAR_BRANCH_MAX: Final = 5
_NODES_PER_UNIT: Final = 8
_NODES_BASE: Final = 1000
"""Minimum of the node limit. Damaged dictionaries can contain many paths to one node."""


@dataclass(frozen=True, eq=False)
class WordTree:
    """A trie of words in breadth-first order; node 0 is the root."""

    units: npt.NDArray[np.uint16]
    children: npt.NDArray[np.int32]
    num_children: npt.NDArray[np.uint16]
    is_word: Bytes


@dataclass(frozen=True)
class _Numbers:
    """Encoding of variable-size numbers. A lead of at least `limits[k]` has k + 1 more units."""

    limits: tuple[int, ...]
    bases: tuple[int, ...]
    unit_bits: int

    def read(self, units: Int64s, at: Int64s, lead: Int64s) -> tuple[Int64s, Int64s]:
        """Decode numbers with lead units before `at`; return them and the positions after them."""
        num_more = np.searchsorted(self.limits, lead, "right")
        base = np.array([*self.bases, *[-1] * (len(self.limits) + 1 - len(self.bases))])[num_more]
        numbers = np.where(base < 0, 0, lead - base)
        for index in range(len(self.limits)):
            has = num_more > index
            numbers[has] = numbers[has] << self.unit_bits | units[at[has] + index]
        return numbers, at + num_more


@dataclass(frozen=True)
class _Encoding:
    """Encoding of one kind of trie."""

    linear_from: int
    value_from: int
    final: int
    values: _Numbers
    deltas: _Numbers


_BYTE_ENCODING: Final = _Encoding(
    linear_from=0x10,
    value_from=0x20,
    final=1,
    values=_Numbers((0x51, 0x6C, 0x7E, 0x7F), (0x10, 0x51, 0x6C), 8),
    deltas=_Numbers((0xC0, 0xF0, 0xFE, 0xFF), (0, 0xC0, 0xF0), 8),
)
_UNIT_ENCODING: Final = _Encoding(
    linear_from=0x30,
    value_from=0x40,
    final=0x8000,
    values=_Numbers((0x4000, 0x7FFF), (0, 0x4000), 16),
    deltas=_Numbers((0xFC00, 0xFFFF), (0, 0xFC00), 16),
)
_NODE_VALUES: Final = _Numbers((0x4040, 0x7FC0), (0, 0), 16)
"""Values before a node of UTF-16 units share its lead unit, where the node has six bits."""
_NODE_MASK: Final = 0x3F


def read_dictionary(data: bytes) -> WordTree:
    """Return the words of a dictionary."""
    try:
        indexes = np.frombuffer(data, np.int32, _INDEXES).tolist()
        is_units = indexes[4] & _KIND_MASK == _IS_UNITS
        units = np.frombuffer(data, np.uint16 if is_units else np.uint8, offset=indexes[0])
        trie = _Trie(units.astype(np.int64), _UNIT_ENCODING if is_units else _BYTE_ENCODING)
        return trie.read(0 if is_units else indexes[5] & _OFFSET_MASK)
    except (ValueError, IndexError) as error:
        raise StorageError("damaged tokenizer dictionary", bytes=len(data)) from error


def join_trees(trees: Sequence[WordTree]) -> WordTree:
    """Concatenate trees; nodes 0, 1, ... are their roots."""
    num_nodes = [len(tree.units) for tree in trees]
    rests = np.cumsum([len(trees), *[count - 1 for count in num_nodes]])
    children = [
        tree.children + np.int32(start - 1)
        for tree, start in zip(trees, rests[:-1].tolist(), strict=True)
    ]

    return WordTree(
        _roots_first([tree.units for tree in trees]),
        _roots_first(children),
        _roots_first([tree.num_children for tree in trees]),
        _roots_first([tree.is_word for tree in trees]),
    )


def _roots_first(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([*(array[:1] for array in arrays), *(array[1:] for array in arrays)])


@dataclass(frozen=True, eq=False)
class _Level:
    """Positions in a trie: parent nodes, offsets, and the remaining units of a linear match."""

    node: Int64s
    at: Int64s
    rest: Int64s

    def __getitem__(self, mask: npt.NDArray[np.bool_]) -> _Level:
        return _Level(self.node[mask], self.at[mask], self.rest[mask])


@dataclass(frozen=True, eq=False)
class _Trie:
    units: Int64s
    encoding: _Encoding

    def read(self, offset: int) -> WordTree:
        """Decode the words, adding `offset` to each unit."""
        zero = np.zeros(1, np.int64)
        level = _Level(zero, zero, zero)
        units, parents, word_nodes = [zero], [zero - 1], []
        num_nodes = 1
        num_nodes_max = _NODES_BASE + _NODES_PER_UNIT * len(self.units)
        while len(level.node):
            level, ending = self._after_values(level)
            word_nodes.append(ending)
            transitions = self._children(level)
            parent, unit, at, rest = (
                np.concatenate(parts) for parts in zip(*transitions, strict=True)
            )
            order = np.lexsort((unit, parent))
            units.append(unit[order] + offset)
            parents.append(parent[order])
            level = _Level(num_nodes + np.arange(len(order)), at[order], rest[order])
            num_nodes += len(order)
            if num_nodes > num_nodes_max:
                raise ValueError(num_nodes)
        parent = np.concatenate(parents)[1:]
        counts = np.bincount(parent, minlength=num_nodes)
        is_word = np.zeros(num_nodes, np.uint8)
        is_word[np.concatenate(word_nodes)] = 1
        return WordTree(
            np.concatenate(units).astype(np.uint16),
            (1 + np.cumsum(counts) - counts).astype(np.int32),
            counts.astype(np.uint16),
            is_word,
        )

    def _after_values(self, level: _Level) -> tuple[_Level, Int64s]:
        """Skip values; return the positions that continue and the nodes with values.

        `rest` of a position is the remaining length of a linear match, or -1 minus the lead of a
        node.
        """
        inside = level.rest > 0
        inner, outer = level[inside], level[~inside]
        lead = self.units[outer.at]
        has_value = lead >= self.encoding.value_from
        has_children = ~has_value | (lead & self.encoding.final == 0)
        ending = outer.node[has_value]
        outer, lead, has_value = outer[has_children], lead[has_children], has_value[has_children]
        at = outer.at + 1
        if self.encoding is _UNIT_ENCODING:
            _, at[has_value] = _NODE_VALUES.read(self.units, at[has_value], lead[has_value])
            lead = np.where(has_value, lead & _NODE_MASK, lead)
        else:
            _, after = self.encoding.values.read(self.units, at[has_value], lead[has_value] >> 1)
            lead[has_value] = self.units[after]
            at[has_value] = after + 1
        outer = _Level(outer.node, at, -1 - lead)
        positions = zip(
            (inner.node, inner.at, inner.rest), (outer.node, outer.at, outer.rest), strict=True
        )
        return _Level(*(np.concatenate(pair) for pair in positions)), ending

    def _children(self, level: _Level) -> list[tuple[Int64s, Int64s, Int64s, Int64s]]:
        """Return transitions as parent node, unit, child position and remaining units."""
        lead = -1 - level.rest
        is_branch = (lead >= 0) & (lead < self.encoding.linear_from)
        lines, lead_of_lines = level[~is_branch], lead[~is_branch]
        rest = np.where(lines.rest > 0, lines.rest - 1, lead_of_lines - self.encoding.linear_from)
        transitions = [(lines.node, self.units[lines.at], lines.at + 1, rest)]
        branches = level[is_branch]
        node, at, num_transitions = branches.node, branches.at, lead[is_branch]
        is_long = num_transitions == 0
        num_transitions[is_long] = self.units[at[is_long]]
        at = at + is_long
        num_transitions = num_transitions + 1
        while len(node):
            split = num_transitions > _LINEAR_BRANCH_MAX
            transitions += self._linear_transitions(
                node[~split], at[~split], num_transitions[~split]
            )
            node, at, num_transitions = node[split], at[split] + 1, num_transitions[split]
            delta, after = self.encoding.deltas.read(self.units, at + 1, self.units[at])
            node = np.concatenate([node, node])
            at = np.concatenate([after + delta, after])
            num_transitions = np.concatenate(
                [num_transitions >> 1, num_transitions - (num_transitions >> 1)]
            )
        return transitions

    def _linear_transitions(
        self, node: Int64s, at: Int64s, num_transitions: Int64s
    ) -> list[tuple[Int64s, Int64s, Int64s, Int64s]]:
        """Return the transitions of linear branches. The last transition has no number."""
        transitions = []
        while len(node):
            last = num_transitions == 1
            transitions.append((node[last], self.units[at[last]], at[last] + 1, at[last] * 0))
            node, at, num_transitions = node[~last], at[~last], num_transitions[~last] - 1
            lead = self.units[at + 1]
            is_final = lead & self.encoding.final != 0
            number = lead & 0x7FFF if self.encoding is _UNIT_ENCODING else lead >> 1
            delta, after = self.encoding.values.read(self.units, at + 2, number)
            child = np.where(is_final, at + 1, after + delta)
            transitions.append((node, self.units[at], child, at * 0))
            at = after
        return transitions
