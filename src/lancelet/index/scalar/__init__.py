"""Indices that answer filters."""
