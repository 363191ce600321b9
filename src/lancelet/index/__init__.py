"""Indices: a package per kind, which knows rows and files and nothing of tables."""
