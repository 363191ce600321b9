"""Bytes in named objects: where they are kept, and how they are read and written safely.

What remote stores need is imported with the first of them.
"""

from lancelet.io.open import open_folder, open_store
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    StorageOptions,
    Store,
)

__all__ = [
    "BytesLike",
    "Listing",
    "ObjectInfo",
    "ObjectReader",
    "ObjectWriter",
    "StorageOptions",
    "Store",
    "open_folder",
    "open_store",
]
