"""Registration of the format and the SQL functions in a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lancelet.spark.functions import TABLE_FUNCTIONS, register_functions
from lancelet.spark.search_functions import SEARCH_FUNCTIONS
from pyspark_lance import DefaultSource


def register(spark: SparkSession) -> None:
    """Register `format("lance")` and functions such as `lance_scan` in a session.

    Spark finds the format without this call if the driver can import `pyspark_lance`. The functions
    always need it. In a classic session, so do writes by `format("lance")` in other threads than
    that which created the session, once in each thread.
    """
    # Spark looks up formats for writes in the active session of the thread, which this call sets.
    spark.createDataFrame([], "id long")
    spark.dataSource.register(DefaultSource)
    register_functions(spark, {**TABLE_FUNCTIONS, **SEARCH_FUNCTIONS})
