"""Version 2.0: one column per field, pages of nested array encodings."""

from lancelet.encodings.v2_0.columns import columns_of
from lancelet.encodings.v2_0.reader import open_field

__all__ = ["columns_of", "open_field"]
