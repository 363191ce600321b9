"""Helpers of loaders, under pylance's name for the package."""

from lancelet.dataset.sharded_batches import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
