"""Lists of words as the ICU library has them, read into a tree of arrays.

A dictionary is a header of eight numbers and a trie: of UTF-16 units, or of bytes that are the
units less a number.

    indexes    [0] where the trie begins   [3] size of all   [4] kind: & 7 is 1 for UTF-16 units
               [5] & 1fffff: what to add to a byte
    node       a value, then what may follow; a final value, and nothing follows
               a few units that must come next ("linear match")
               a branch: halves while more than five ways are left, then unit, value or distance
    number     a lead unit, below some limits alone, from each limit on with one more unit

    to, too    linear match "to", value, linear match "o", final value

The trie is read level by level, all nodes of a level at once. The tree has its nodes in that
order, so the children of a node are next to each other; see `lancelet.kernels.segment_rules`.
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
_LINEAR_BRANCH_MOST: Final = 5
_NODES_OF_A_UNIT: Final = 8
_NODES_LEAST: Final = 1000
"""No dictionary has more nodes; in a damaged one, many ways may lead to one place."""


@dataclass(frozen=True, eq=False)
class WordTree:
    """Words by what they begin with; node 0 is the root."""

    units: npt.NDArray[np.uint16]
    children: npt.NDArray[np.int32]
    num_children: npt.NDArray[np.uint16]
    is_word: Bytes


@dataclass(frozen=True)
class _Numbers:
    """Numbers of a varying size; a lead from `limits[k]` on has k + 1 more units."""

    limits: tuple[int, ...]
    bases: tuple[int, ...]
    unit_bits: int

    def read(self, units: Int64s, at: Int64s, lead: Int64s) -> tuple[Int64s, Int64s]:
        """Return numbers whose lead stands before `at`, and where what follows them begins."""
        more = np.searchsorted(self.limits, lead, "right")
        base = np.array([*self.bases, *[-1] * (len(self.limits) + 1 - len(self.bases))])[more]
        found = np.where(base < 0, 0, lead - base)
        for place in range(len(self.limits)):
            has = more > place
            found[has] = found[has] << self.unit_bits | units[at[has] + place]
        return found, at + more


@dataclass(frozen=True)
class _Encoding:
    """How tries of one kind are written."""

    linear_from: int
    value_from: int
    final: int
    values: _Numbers
    deltas: _Numbers


_OF_BYTES: Final = _Encoding(
    linear_from=0x10,
    value_from=0x20,
    final=1,
    values=_Numbers((0x51, 0x6C, 0x7E, 0x7F), (0x10, 0x51, 0x6C), 8),
    deltas=_Numbers((0xC0, 0xF0, 0xFE, 0xFF), (0, 0xC0, 0xF0), 8),
)
_OF_UNITS: Final = _Encoding(
    linear_from=0x30,
    value_from=0x40,
    final=0x8000,
    values=_Numbers((0x4000, 0x7FFF), (0, 0x4000), 16),
    deltas=_Numbers((0xFC00, 0xFFFF), (0, 0xFC00), 16),
)
_NODE_VALUES: Final = _Numbers((0x4040, 0x7FC0), (0, 0), 16)
"""Values before a node of UTF-16 units share its lead, which has six bits for the node."""
_NODE_MASK: Final = 0x3F


def read_words(data: bytes) -> WordTree:
    """Return the words of a dictionary."""
    try:
        indexes = np.frombuffer(data, np.int32, _INDEXES).tolist()
        is_units = indexes[4] & _KIND_MASK == _IS_UNITS
        units = np.frombuffer(data, np.uint16 if is_units else np.uint8, offset=indexes[0])
        trie = _Trie(units.astype(np.int64), _OF_UNITS if is_units else _OF_BYTES)
        return trie.read(0 if is_units else indexes[5] & _OFFSET_MASK)
    except (ValueError, IndexError) as error:
        raise StorageError("a tokenizer dictionary is damaged", bytes=len(data)) from error


def join_trees(trees: Sequence[WordTree]) -> WordTree:
    """Return trees as a forest: nodes 0, 1, ... are their roots."""
    num_nodes = [len(tree.units) for tree in trees]
    rests = np.cumsum([len(trees), *[count - 1 for count in num_nodes]])
    moved = [
        tree.children + np.int32(start - 1)
        for tree, start in zip(trees, rests[:-1].tolist(), strict=True)
    ]

    return WordTree(
        _roots_first([tree.units for tree in trees]),
        _roots_first(moved),
        _roots_first([tree.num_children for tree in trees]),
        _roots_first([tree.is_word for tree in trees]),
    )


def _roots_first(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return np.concatenate([*(array[:1] for array in arrays), *(array[1:] for array in arrays)])


@dataclass(frozen=True, eq=False)
class _Level:
    """Places in a trie: the node that each goes on from, and units that must come next there."""

    node: Int64s
    at: Int64s
    rest: Int64s

    def __getitem__(self, which: npt.NDArray[np.bool_]) -> _Level:
        return _Level(self.node[which], self.at[which], self.rest[which])


@dataclass(frozen=True, eq=False)
class _Trie:
    units: Int64s
    encoding: _Encoding

    def read(self, offset: int) -> WordTree:
        """Return the words; `offset` is added to what they are made of."""
        zero = np.zeros(1, np.int64)
        level = _Level(zero, zero, zero)
        made_of, parents, words = [zero], [zero - 1], []
        num_nodes = 1
        most = _NODES_LEAST + _NODES_OF_A_UNIT * len(self.units)
        while len(level.node):
            level, ending = self._after_values(level)
            words.append(ending)
            found = self._children(level)
            parent, unit, at, rest = (np.concatenate(parts) for parts in zip(*found, strict=True))
            order = np.lexsort((unit, parent))
            made_of.append(unit[order] + offset)
            parents.append(parent[order])
            level = _Level(num_nodes + np.arange(len(order)), at[order], rest[order])
            num_nodes += len(order)
            if num_nodes > most:
                raise ValueError(num_nodes)
        parent = np.concatenate(parents)[1:]
        counts = np.bincount(parent, minlength=num_nodes)
        is_word = np.zeros(num_nodes, np.uint8)
        is_word[np.concatenate(words)] = 1
        return WordTree(
            np.concatenate(made_of).astype(np.uint16),
            (1 + np.cumsum(counts) - counts).astype(np.int32),
            counts.astype(np.uint16),
            is_word,
        )

    def _after_values(self, level: _Level) -> tuple[_Level, Int64s]:
        """Return the places that go on, behind their values, and the nodes that have values.

        `rest` of the places is what is left of a linear match, or -1 less the lead of a node.
        """
        inside = level.rest > 0
        inner, outer = level[inside], level[~inside]
        lead = self.units[outer.at]
        has_value = lead >= self.encoding.value_from
        goes_on = ~has_value | (lead & self.encoding.final == 0)
        ending = outer.node[has_value]
        outer, lead, has_value = outer[goes_on], lead[goes_on], has_value[goes_on]
        at = outer.at + 1
        if self.encoding is _OF_UNITS:
            _, at[has_value] = _NODE_VALUES.read(self.units, at[has_value], lead[has_value])
            lead = np.where(has_value, lead & _NODE_MASK, lead)
        else:
            _, after = self.encoding.values.read(self.units, at[has_value], lead[has_value] >> 1)
            lead[has_value] = self.units[after]
            at[has_value] = after + 1
        outer = _Level(outer.node, at, -1 - lead)
        places = zip(
            (inner.node, inner.at, inner.rest), (outer.node, outer.at, outer.rest), strict=True
        )
        return _Level(*(np.concatenate(pair) for pair in places)), ending

    def _children(self, level: _Level) -> list[tuple[Int64s, Int64s, Int64s, Int64s]]:
        """Return for each way on: the node, the unit, where its own node is, and what is left."""
        lead = -1 - level.rest
        is_branch = (lead >= 0) & (lead < self.encoding.linear_from)
        lines, lead_of_lines = level[~is_branch], lead[~is_branch]
        rest = np.where(lines.rest > 0, lines.rest - 1, lead_of_lines - self.encoding.linear_from)
        found = [(lines.node, self.units[lines.at], lines.at + 1, rest)]
        branches = level[is_branch]
        node, at, ways = branches.node, branches.at, lead[is_branch]
        is_long = ways == 0
        ways[is_long] = self.units[at[is_long]]
        at = at + is_long
        ways = ways + 1
        while len(node):
            split = ways > _LINEAR_BRANCH_MOST
            found += self._ways(node[~split], at[~split], ways[~split])
            node, at, ways = node[split], at[split] + 1, ways[split]
            delta, after = self.encoding.deltas.read(self.units, at + 1, self.units[at])
            node = np.concatenate([node, node])
            at = np.concatenate([after + delta, after])
            ways = np.concatenate([ways >> 1, ways - (ways >> 1)])
        return found

    def _ways(
        self, node: Int64s, at: Int64s, ways: Int64s
    ) -> list[tuple[Int64s, Int64s, Int64s, Int64s]]:
        """Return the ways on of branches that list them all; the last has no number."""
        found = []
        while len(node):
            last = ways == 1
            found.append((node[last], self.units[at[last]], at[last] + 1, at[last] * 0))
            node, at, ways = node[~last], at[~last], ways[~last] - 1
            lead = self.units[at + 1]
            is_final = lead & self.encoding.final != 0
            number = lead & 0x7FFF if self.encoding is _OF_UNITS else lead >> 1
            delta, after = self.encoding.values.read(self.units, at + 2, number)
            place = np.where(is_final, at + 1, after + delta)
            found.append((node, self.units[at], place, at * 0))
            at = after
        return found
