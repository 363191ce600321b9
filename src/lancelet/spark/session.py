"""Making the format known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pyspark_lance import DefaultSource


def register(spark: SparkSession) -> None:
    """Make `format("lance")` known to a session; harmless where it is known already.

    Spark finds the package `pyspark_lance` by itself where the driver can import it; a session
    whose server looks elsewhere needs this call.
    """
    spark.dataSource.register(DefaultSource)
