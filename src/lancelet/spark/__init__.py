"""Lance tables in Spark: the format `lance`, and jobs that SQL has no words for."""

from lancelet.spark.session import register

__all__ = ["register"]
