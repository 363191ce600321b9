"""Cached streams. Mirrors the pylance module of this name."""

from lancelet.dataset.scan.sampling import CachedDataset

__all__ = ["CachedDataset"]
