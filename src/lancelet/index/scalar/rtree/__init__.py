"""The RTREE kind: which geometries lie where."""
