"""Compaction, cleanup, settings and statistics."""
