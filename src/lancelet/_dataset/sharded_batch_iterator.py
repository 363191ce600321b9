"""Shards of datasets, under pylance's name for the module."""

from lancelet.dataset.scan.sampling import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
