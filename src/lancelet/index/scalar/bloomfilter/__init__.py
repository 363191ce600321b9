"""A Bloom filter of each zone of rows."""

from lancelet.index.scalar.bloomfilter.kind import BloomFilter

__all__ = ["BloomFilter"]
