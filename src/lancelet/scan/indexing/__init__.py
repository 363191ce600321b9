"""Evaluate filters with scalar indices."""
