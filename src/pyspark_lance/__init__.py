"""Registers the format `lance`: Spark discovers packages with names `pyspark_...`."""

from pyspark_lance.source import DefaultSource

__all__ = ["DefaultSource"]
