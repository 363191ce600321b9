"""Shape of full-zip items, and shared validation of items and levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class ZipShape:
    """Layout of the control words of a full-zip page.

    `max_visible_def` is the largest definition level with a value slot; without list layers that is
    every level.
    """

    bits_rep: int
    bits_def: int
    max_visible_def: int = 0xFFFF

    def __post_init__(self) -> None:
        if not (0 <= self.bits_rep <= 16 and 0 <= self.bits_def <= 16):
            raise InvalidInputError(
                "levels have at most 16 bits", bits_rep=self.bits_rep, bits_def=self.bits_def
            )

    @property
    def control_bytes(self) -> int:
        """Return the width of a control word: 0, 1, 2 or 4 bytes."""
        bits = self.bits_rep + self.bits_def
        return 0 if bits == 0 else 1 if bits <= 8 else 2 if bits <= 16 else 4

    def definition(self, control: Any) -> Any:
        """Return the definition level of one or many control words."""
        return control & ((1 << self.bits_def) - 1)

    def is_visible(self, control: Any) -> Any:
        """Return whether items, given by control words, have a value slot."""
        return self.definition(control) <= self.max_visible_def


def check_item_bytes(shape: ZipShape, value_bytes: int) -> None:
    """Raise unless items have at least one byte, which is needed to count them."""
    if value_bytes < 0 or shape.control_bytes + value_bytes == 0:
        raise InvalidInputError("an item has at least one byte", value_bytes=value_bytes)


def check_zipped(
    rep: npt.NDArray[np.uint16], definition: npt.NDArray[np.uint16], shape: ZipShape, slots: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.bool_]]:
    """Return control words and the mask of visible items; raise unless levels and values match."""
    count = len(rep) if shape.bits_rep else len(definition) if shape.bits_def else slots
    if len(rep) != (count if shape.bits_rep else 0):
        raise InvalidInputError("repetition levels do not fit the items", levels=len(rep))
    if len(definition) != (count if shape.bits_def else 0):
        raise InvalidInputError("definition levels do not fit the items", levels=len(definition))
    control = np.zeros(count, np.uint32)
    for levels, bits, shift in (
        (rep, shape.bits_rep, shape.bits_def),
        (definition, shape.bits_def, 0),
    ):
        if bits:
            if len(levels) and int(levels.max()) >> bits:
                raise InvalidInputError("a level does not fit its control word", bits=bits)
            control |= levels.astype(np.uint32) << np.uint32(shift)
    visible = np.asarray(shape.is_visible(control), np.bool_)
    if int(visible.sum()) != slots:
        raise InvalidInputError(
            "levels and values differ", visible=int(visible.sum()), values=slots
        )
    return control, visible
