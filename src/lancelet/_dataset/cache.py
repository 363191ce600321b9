"""Streams that are kept, under pylance's name for the module."""

from lancelet.dataset.scan.sampling import CachedDataset

__all__ = ["CachedDataset"]
