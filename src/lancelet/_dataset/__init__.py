"""Helpers of data loaders. Mirrors the pylance package of this name."""

from lancelet.dataset.scan.sampling import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
