"""Streams that are kept, under pylance's name for the module."""

from lancelet.dataset.stream_cache import CachedDataset

__all__ = ["CachedDataset"]
