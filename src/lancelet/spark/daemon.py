"""Spark's daemon of Python workers, with what tables need already imported.

    spark.python.daemon.module    lancelet.spark.daemon

Spark starts a Python worker for every plan of a read, commit of a write and batch of a stream, and
some for the tasks themselves. It forks them from a daemon, which knows nothing of tables, so each
worker imports some hundred modules before it starts to work. Forked from this one it has them. The
setting is for the start of a session or a server; nothing depends on it but time.
"""

from __future__ import annotations

from pyspark.daemon import manager

import lancelet.spark.reader
import lancelet.spark.stream_reader
import lancelet.spark.stream_writer
import lancelet.spark.writer  # noqa: F401 - imported so that workers need not
import pyspark_lance  # noqa: F401 - Spark looks for it by this name

if __name__ == "__main__":
    manager()
