"""Versions, tags, branches, and what changed between versions."""
