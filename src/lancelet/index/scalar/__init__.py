"""Scalar indices, which support filters."""
