"""Versions of a table: snapshots, commits, conflicts and references."""
