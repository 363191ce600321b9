"""What listings call each kind of index, those too that this release does not search."""

from __future__ import annotations

from typing import Final

TITLES: Final = {
    "InvertedIndexDetails": "Inverted",
    "NGramIndexDetails": "NGram",
    "LabelListIndexDetails": "LabelList",
    "ZoneMapIndexDetails": "ZoneMap",
    "BloomFilterIndexDetails": "BloomFilter",
    "RTreeIndexDetails": "RTree",
    "MinHashLshIndexDetails": "MinHashLsh",
    "VectorIndexDetails": "IVF",
    "FragmentReuseIndexDetails": "FragmentReuse",
    "MemWalIndexDetails": "MemWal",
    "BitmapIndexDetails": "Bitmap",
    "JsonIndexDetails": "Json",
    "FMIndexDetails": "Fm",
    "BTreeIndexDetails": "BTree",
}
"""By the name of the message of the details."""
