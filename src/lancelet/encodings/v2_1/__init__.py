"""Versions 2.1 and 2.2: a column per leaf, nesting as levels, four page layouts."""

from lancelet.encodings.v2_1.fields import (
    columns_of,
    encode_field,
    open_field,
    pack_page,
)

__all__ = ["columns_of", "encode_field", "open_field", "pack_page"]
