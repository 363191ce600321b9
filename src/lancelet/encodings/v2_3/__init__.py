"""Version 2.3: a column per leaf, with separate planes for structure and values."""

from lancelet.encodings.v2_3.fields import (
    columns_of,
    encode_field,
    encode_plain_fields,
    open_field,
)

__all__ = ["columns_of", "encode_field", "encode_plain_fields", "open_field"]
