"""Version 2.3: a column per leaf, with separate planes for structure and values."""

from lancelet.encodings.v2_3.fields import (
    columns_of,
    encode_field,
    open_field,
    pack_page,
)

__all__ = ["columns_of", "encode_field", "open_field", "pack_page"]
