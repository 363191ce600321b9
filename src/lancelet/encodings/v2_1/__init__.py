"""Versions 2.1 and 2.2: a column per leaf, nesting as levels, four page layouts."""

from lancelet.encodings.v2_1.fields import (
    columns_of,
    encode_field,
    encode_plain_fields,
    open_field,
)

__all__ = ["columns_of", "encode_field", "encode_plain_fields", "open_field"]
