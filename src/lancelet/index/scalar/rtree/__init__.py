"""The RTREE index kind: bounding boxes of geometries."""
