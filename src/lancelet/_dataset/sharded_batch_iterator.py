"""Sharded reads of datasets. Mirrors the pylance module of this name."""

from lancelet.dataset.scan.sampling import ShardedBatchIterator

__all__ = ["ShardedBatchIterator"]
