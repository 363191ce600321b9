"""Version 2.0: one column per field, pages of nested array encodings."""

from lancelet.encodings.v2_0.columns import check_storable, columns_of
from lancelet.encodings.v2_0.reader import open_field
from lancelet.encodings.v2_0.writer import column_encodings, encode_field

__all__ = ["check_storable", "column_encodings", "columns_of", "encode_field", "open_field"]
