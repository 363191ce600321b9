"""Loading anything into a table, as `lancelet ingest` does: what we read ourselves, or Spark reads.

parquet, delta, files     by `convert`, in tasks of ours, with Arrow's types
csv, json, orc, ...       by Spark's reader of that name and `write`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, Unpack

from pyspark.sql import SparkSession

from lancelet.errors import InvalidInputError
from lancelet.ops.jobs.engine import ProgressCallback
from lancelet.spark.conversion.run import convert
from lancelet.spark.running import Finished, Place
from lancelet.spark.writing import write

_OURS: Final = frozenset({None, "parquet", "delta", "files"})
MODES: Final = ("create", "append", "overwrite")
_NAMES_OF_SERVERS: Final = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""What says in the environment that a session is one of Connect, which has no master."""


def open_session(master: str | None = None, remote: str | None = None) -> SparkSession:
    """Start or reach Spark: on a master, by Connect, or with every processor of this machine.

    Workers on this machine run the Python that runs this. What is asked for here counts, whatever
    the environment says.
    """
    if master is not None and remote is not None:
        raise InvalidInputError("a session is either on a master or remote", found=(master, remote))
    builder = SparkSession.builder.appName("lancelet ingest")
    if remote is not None:
        return builder.remote(remote).getOrCreate()
    for name in _NAMES_OF_SERVERS:
        os.environ.pop(name, None)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    for name, value in quiet.items():
        builder = builder.config(name, value)
    return builder.master(master or "local[*]").getOrCreate()


def load(
    source: str,
    target: str,
    *,
    source_format: str | None = None,
    mode: str = "append",
    read_options: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
    spark: SparkSession,
    **place: Unpack[Place],
) -> Finished:
    """Load a source into a table, which is made where there is none.

    Args:
        source: What to read.
        target: The table.
        source_format: `parquet`, `delta`, `files`, or the name of a reader of Spark; by default
            what lies there.
        mode: `create`, `append` or `overwrite`.
        read_options: Options of Spark's reader.
        progress: Told how far the job is.
        spark: The session.
        place: See `Place`.
    """
    if mode not in MODES:
        raise InvalidInputError("unknown mode", mode=mode, known=MODES)
    if source_format in _OURS:
        if read_options:
            raise InvalidInputError(
                "only readers of Spark have options", format=source_format, found=list(read_options)
            )
        return convert(
            source,
            target,
            source_format=source_format,
            mode=mode,
            spark=spark,
            progress=progress,
            **place,
        )
    assert source_format is not None
    frame = spark.read.format(source_format).options(**(read_options or {})).load(source)
    return write(frame, target, mode=mode, progress=progress, **place)
