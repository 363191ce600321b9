"""Definition levels are numbered from the values outwards, only where something may be absent."""

from __future__ import annotations

import pytest

from lancelet.encodings.levels import LayerKind, Layers
from lancelet.errors import CorruptDataError


def test_levels_are_numbered_outwards():
    layers = Layers.of(
        [
            LayerKind.NULLABLE_ITEM,
            LayerKind.ALL_VALID_ITEM,
            LayerKind.NULL_AND_EMPTY_LIST,
            LayerKind.NULLABLE_ITEM,
            LayerKind.EMPTYABLE_LIST,
        ]
    )
    assert [(x.null_def, x.empty_def) for x in layers.each] == [
        (1, 0), (0, 0), (2, 3), (4, 0), (0, 5),
    ]  # fmt: skip
    assert [x.inner_def_max for x in layers.each] == [0, 1, 1, 3, 4]
    assert [x.slot_def_max for x in layers.each] == [1, 1, 4, 4, 5]
    assert (layers.rep_max, layers.def_max, layers.visible_def_max) == (2, 5, 1)


@pytest.mark.parametrize("numbers", [[], [0], [7], [1, 9]])
def test_unknown_layers_are_corrupt(numbers):
    with pytest.raises(CorruptDataError):
        Layers.parse(numbers)


@pytest.mark.parametrize("kind", list(LayerKind))
def test_of_gives_the_kind_back(kind):
    again = LayerKind.of(
        is_list=kind.is_list, has_nulls=kind.can_be_null, has_empties=kind.can_be_empty
    )
    assert again is kind
