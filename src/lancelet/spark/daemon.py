"""A daemon for Spark's Python workers with lancelet already imported.

    spark.python.daemon.module    lancelet.spark.daemon

Spark starts a Python worker for each planned read, each commit of a write and each batch of a
stream, and for some tasks. Workers are forked from a daemon. With this daemon they need not import
some hundred modules each. The setting takes effect when a session or server starts and only saves
time.
"""

from __future__ import annotations

from pyspark.daemon import manager

import lancelet.spark.reader
import lancelet.spark.stream_reader
import lancelet.spark.stream_writer
import lancelet.spark.writer  # noqa: F401 - imported so that workers need not
import pyspark_lance  # noqa: F401 - Spark imports it by this name

if __name__ == "__main__":
    manager()
