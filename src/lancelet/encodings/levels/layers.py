"""The layers of a page: which nulls and empty lists its definition levels can tell apart.

Layers are listed from the values outwards. Each takes as many definition levels as it has ways
of being absent, and the levels are numbered in that order. For `list<struct<x: int>>` with
nulls everywhere and empty lists:

    layer                    definition
    NULLABLE_ITEM   x        1 null
    NULLABLE_ITEM   struct   2 null
    NULL_AND_EMPTY  list     3 null, 4 empty
                             0 nothing is absent

Entries up to 2 have a value slot each (a null value still has one); entries of 3 and 4 have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from lancelet.errors import CorruptDataError
from lancelet.values import dataclass


class LayerKind(IntEnum):
    """What may be absent in a layer; the numbers are those of `RepDefLayer`."""

    ALL_VALID_ITEM = 1
    ALL_VALID_LIST = 2
    NULLABLE_ITEM = 3
    NULLABLE_LIST = 4
    EMPTYABLE_LIST = 5
    NULL_AND_EMPTY_LIST = 6

    @property
    def is_list(self) -> bool:
        """Whether the layer is one of lists."""
        return self not in (LayerKind.ALL_VALID_ITEM, LayerKind.NULLABLE_ITEM)

    @property
    def can_be_null(self) -> bool:
        """Whether the layer takes a level for nulls."""
        return self in (
            LayerKind.NULLABLE_ITEM,
            LayerKind.NULLABLE_LIST,
            LayerKind.NULL_AND_EMPTY_LIST,
        )

    @property
    def can_be_empty(self) -> bool:
        """Whether the layer takes a level for empty lists."""
        return self in (LayerKind.EMPTYABLE_LIST, LayerKind.NULL_AND_EMPTY_LIST)

    @staticmethod
    def of(*, is_list: bool, has_nulls: bool, has_empties: bool = False) -> LayerKind:
        """Return the tightest kind."""
        if not is_list:
            return LayerKind.NULLABLE_ITEM if has_nulls else LayerKind.ALL_VALID_ITEM
        if has_nulls:
            return LayerKind.NULL_AND_EMPTY_LIST if has_empties else LayerKind.NULLABLE_LIST
        return LayerKind.EMPTYABLE_LIST if has_empties else LayerKind.ALL_VALID_LIST


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer with its definition levels.

    `null_def` and `empty_def` are 0 where the layer has no such level. `inner_def_max` is the
    greatest level of the layers inside, `slot_def_max` the greatest that leaves a slot in this
    layer's own array.
    """

    kind: LayerKind
    null_def: int
    empty_def: int
    inner_def_max: int
    slot_def_max: int


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers of a page, from the values outwards."""

    each: tuple[Layer, ...]
    rep_max: int
    def_max: int

    @property
    def visible_def_max(self) -> int:
        """The greatest definition level of an entry that has a value slot."""
        return self.each[0].slot_def_max

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """What may be absent in each layer."""
        return tuple(layer.kind for layer in self.each)

    @staticmethod
    def of(kinds: Sequence[LayerKind]) -> Layers:
        """Number the definition levels of layers, given from the values outwards.

        >>> layers = Layers.of([LayerKind.NULLABLE_ITEM, LayerKind.NULL_AND_EMPTY_LIST])
        >>> layers.each[1].null_def, layers.each[1].empty_def, layers.visible_def_max
        (2, 3, 1)
        """
        numbered: list[tuple[LayerKind, int, int, int, int]] = []
        level = 0
        for kind in kinds:
            inner = level
            null_def = level = level + 1 if kind.can_be_null else level
            empty_def = level = level + 1 if kind.can_be_empty else level
            numbered.append(
                (
                    kind,
                    null_def if kind.can_be_null else 0,
                    empty_def if kind.can_be_empty else 0,
                    inner,
                    level,
                )
            )
        each: list[Layer] = []
        slot_def_max = level
        for kind, null_def, empty_def, inner, _ in reversed(numbered):
            each.append(Layer(kind, null_def, empty_def, inner, slot_def_max))
            if kind.is_list:
                slot_def_max = inner
        each.reverse()
        return Layers(tuple(each), sum(kind.is_list for kind in kinds), level)

    @staticmethod
    def parse(numbers: Sequence[int]) -> Layers:
        """Read the layers of a stored page.

        Raises `CorruptDataError` for a kind that does not exist and for a page without layers.
        """
        known = {int(kind) for kind in LayerKind}
        if not numbers or any(number not in known for number in numbers):
            raise CorruptDataError("a page has no layers, or unknown ones", layers=list(numbers))
        return Layers.of([LayerKind(number) for number in numbers])
