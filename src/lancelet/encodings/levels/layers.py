"""The layers of a page: the nulls and empty lists that its definition levels represent.

Layers are ordered from the values outwards. Each has up to two definition levels, for null and
empty, numbered in that order. For `list<struct<x: int>>` with nulls everywhere and empty lists:

    layer                    definition
    NULLABLE_ITEM   x        1 null
    NULLABLE_ITEM   struct   2 null
    NULL_AND_EMPTY  list     3 null, 4 empty
                             0 valid

Entries up to 2 have a value slot each, including null values; entries of 3 and 4 have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from lancelet.errors import CorruptDataError
from lancelet.values import dataclass


class LayerKind(IntEnum):
    """Nullability of a layer; the numbers are those of `RepDefLayer`."""

    ALL_VALID_ITEM = 1
    ALL_VALID_LIST = 2
    NULLABLE_ITEM = 3
    NULLABLE_LIST = 4
    EMPTYABLE_LIST = 5
    NULL_AND_EMPTY_LIST = 6

    @property
    def is_list(self) -> bool:
        """Return whether the layer is a list."""
        return self not in (LayerKind.ALL_VALID_ITEM, LayerKind.NULLABLE_ITEM)

    @property
    def can_be_null(self) -> bool:
        """Return whether the layer has a level for nulls."""
        return self in (
            LayerKind.NULLABLE_ITEM,
            LayerKind.NULLABLE_LIST,
            LayerKind.NULL_AND_EMPTY_LIST,
        )

    @property
    def can_be_empty(self) -> bool:
        """Return whether the layer has a level for empty lists."""
        return self in (LayerKind.EMPTYABLE_LIST, LayerKind.NULL_AND_EMPTY_LIST)

    @staticmethod
    def of(*, is_list: bool, has_nulls: bool, has_empties: bool = False) -> LayerKind:
        """Return the most specific kind."""
        if not is_list:
            return LayerKind.NULLABLE_ITEM if has_nulls else LayerKind.ALL_VALID_ITEM
        if has_nulls:
            return LayerKind.NULL_AND_EMPTY_LIST if has_empties else LayerKind.NULLABLE_LIST
        return LayerKind.EMPTYABLE_LIST if has_empties else LayerKind.ALL_VALID_LIST


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer with its definition levels.

    `null_def` and `empty_def` are 0 if the layer has no such level. `inner_def_max` is the maximum
    level of the inner layers, `slot_def_max` the maximum level with a slot in the array of this
    layer.
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
        """The maximum definition level of an entry with a value slot."""
        return self.each[0].slot_def_max

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer."""
        return tuple(layer.kind for layer in self.each)

    @staticmethod
    def of(kinds: Sequence[LayerKind]) -> Layers:
        """Assign definition levels to layers, ordered from the values outwards.

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
        """Parse the layers of a stored page.

        Raises `CorruptDataError` for an unknown kind and for a page without layers.
        """
        valid_numbers = {int(kind) for kind in LayerKind}
        if not numbers or any(number not in valid_numbers for number in numbers):
            raise CorruptDataError("a page has no layers or unknown layers", layers=list(numbers))
        return Layers.of([LayerKind(number) for number in numbers])
