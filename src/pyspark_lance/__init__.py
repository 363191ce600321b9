"""Spark finds this package by its name and registers the format `lance` by itself."""

from pyspark_lance.source import DefaultSource

__all__ = ["DefaultSource"]
