"""Indices of vectors: partitions around centroids, whose rows are kept whole or as codes."""
