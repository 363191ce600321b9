"""Versions 2.1 and 2.2: a column per leaf, structure as levels, four layouts of pages."""

from lancelet.encodings.v2_1.fields import bundle_columns, columns_of, encode_field, open_field
from lancelet.encodings.v2_1.small import encode_small_fields

__all__ = ["bundle_columns", "columns_of", "encode_field", "encode_small_fields", "open_field"]
