"""A set of rows for each distinct value."""

from lancelet.index.scalar.bitmap.kind import Bitmap

__all__ = ["Bitmap"]
