"""What small pages are made of: buffers, a message, and words for a report.

A page of one value all over has it in its message, if it is a number, or in a buffer:

    7 7 7            constant, inline value 07 00 00 00
    "ab" "ab"        constant, a buffer that holds "ab"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.encodings.base import ColumnChoice, EncodedPage, Variable
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.layout import ConstantLayout
from lancelet.encodings.levels import LayerKind, Layers
from lancelet.encodings.v2_1.messages import message_of, sealed
from lancelet.format.field import Field

ALL_VALID: Final = Layers.of([LayerKind.ALL_VALID_ITEM])
"""The layers of a page without nulls."""

_NOTHING: Final[Mapping[str, str]] = {}
_MESSAGE_OF_ONE_TEXT: Final = sealed(
    message_of(ConstantLayout(ALL_VALID, inline_value=None, has_value_buffer=True))
)


class Page(NamedTuple):
    """The buffers of a page, its message, its layout and what its message says."""

    buffers: tuple[Bytes, ...]
    message: bytes
    layout: str
    description: str


def page_of_one_number(value: bytes) -> Page:
    """Return the page of a value of fixed width that all rows have."""
    return Page((), _message_of_one(value), "constant", "constant")


def page_of_one_text(value: Variable) -> Page:
    """Return the page of a string that all rows have."""
    return Page((build_value(value),), _MESSAGE_OF_ONE_TEXT, "constant", "constant")


def encoded_page(
    array: pa.Array, field: Field, page: Page, refused: Mapping[str, str] = _NOTHING
) -> EncodedPage:
    """Return the only page of the only column of a field, ready to be written."""
    buffers, encoding, layout, description = page
    encoded_bytes = sum(map(len, buffers))
    choice = ColumnChoice(field.name, layout, description, array.nbytes, encoded_bytes, refused)
    return EncodedPage(0, 0, len(array), buffers, encoding, (choice,))


@lru_cache(64)
def _message_of_one(value: bytes) -> bytes:
    return sealed(message_of(ConstantLayout(ALL_VALID, inline_value=value)))
