"""Index kind names for listings, including kinds that this release cannot search."""

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
"""Titles by the message name of the index details."""
