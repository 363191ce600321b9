"""Making the format and the functions of SQL known to a session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from lancelet.spark.functions import TABLE_FUNCTIONS, register_functions
from lancelet.spark.search_functions import SEARCH_FUNCTIONS
from pyspark_lance import DefaultSource


def register(spark: SparkSession) -> None:
    """Make `format("lance")` and functions such as `lance_scan` known to a session.

    Spark finds the format by itself where the driver can import `pyspark_lance`, and then this
    call changes nothing of it; the functions always need it.
    """
    spark.dataSource.register(DefaultSource)
    register_functions(spark, {**TABLE_FUNCTIONS, **SEARCH_FUNCTIONS})
