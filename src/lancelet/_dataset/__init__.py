"""Helpers of loaders, under pylance's name for the package."""

from lancelet.dataset.scan.sampling import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
