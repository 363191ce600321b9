"""Writes and commits: requests, fragments, operations and their metadata."""
