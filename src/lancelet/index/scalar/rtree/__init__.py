"""The RTREE kind: which geometries lie where."""

from lancelet.index.scalar.rtree.kind import RTree

__all__ = ["RTree"]
