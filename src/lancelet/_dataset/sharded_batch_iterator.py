"""Shards of datasets, under pylance's name for the module."""

from lancelet.dataset.sharded_batches import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
