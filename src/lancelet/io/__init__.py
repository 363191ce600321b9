"""Object storage: stores, readers and writers of named objects, locally and in the cloud.

Dependencies of remote stores are imported on first use.
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
