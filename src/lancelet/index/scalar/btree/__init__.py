"""Values in order, cut into pages, with the first and last value of each."""

from lancelet.index.scalar.btree.kind import BTree

__all__ = ["BTree"]
