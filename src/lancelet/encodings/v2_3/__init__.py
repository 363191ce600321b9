"""Version 2.3: a column per leaf, structure and values in planes of their own."""

from lancelet.encodings.v2_3.fields import (
    columns_of,
    encode_field,
    encode_plain_fields,
    open_field,
)

__all__ = ["columns_of", "encode_field", "encode_plain_fields", "open_field"]
