"""Bytes in named objects: where they are kept, and how they are read and written safely.

What remote stores need is imported with the first of them.
"""

from typing import TYPE_CHECKING

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
from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.io import client, fsspec_store, remote  # noqa: TC004 - found on demand

__all__ = [
    "BytesLike",
    "Listing",
    "ObjectInfo",
    "ObjectReader",
    "ObjectWriter",
    "StorageOptions",
    "Store",
    "client",
    "fsspec_store",
    "open_folder",
    "open_store",
    "remote",
]

import_on_demand(__name__, {})
