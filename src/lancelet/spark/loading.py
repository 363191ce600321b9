"""Loads files into a table, as `lancelet ingest` does.

The format determines the reader:

    parquet, delta, files     by `convert`, in tasks of lancelet, with Arrow's types
    csv, json, orc, ...       by Spark's reader of that name and `write`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, Unpack

from pyspark.sql import SparkSession

from lancelet.errors import InvalidInputError
from lancelet.jobs.engine import ProgressCallback
from lancelet.spark.conversion.run import convert
from lancelet.spark.running import Finished, TableOptions
from lancelet.spark.writing import write

_OWN_FORMATS: Final = frozenset({None, "parquet", "delta", "files"})
MODES: Final = ("create", "append", "overwrite")
_CONNECT_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Environment variables that select Spark Connect, which has no master."""


def open_session(master: str | None = None, remote: str | None = None) -> SparkSession:
    """Start a Spark session on a master, or connect to a server; by default run on all local cores.

    Local workers use the current Python interpreter. Arguments take precedence over the
    environment.
    """
    if master is not None and remote is not None:
        raise InvalidInputError(
            "pass either `master` or `remote`, not both", found=(master, remote)
        )
    builder = SparkSession.builder.appName("lancelet ingest")
    if remote is not None:
        return builder.remote(remote).getOrCreate()
    for name in _CONNECT_VARIABLES:
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
    **table_options: Unpack[TableOptions],
) -> Finished:
    """Load a source into a table, which is created if needed.

    Args:
        source: The path to read.
        target: The table.
        source_format: `parquet`, `delta`, `files`, or the name of a Spark reader; detected by
            default.
        mode: `create`, `append` or `overwrite`.
        read_options: Options of Spark's reader.
        progress: Receives the progress of the job.
        spark: The session.
        table_options: See `TableOptions`.
    """
    if mode not in MODES:
        raise InvalidInputError("unknown mode", mode=mode, expected=MODES)
    if source_format in _OWN_FORMATS:
        if read_options:
            raise InvalidInputError(
                (
                    "only Spark readers have options; remove them or choose a format such as csv "
                    "or json"
                ),
                format=source_format,
                found=list(read_options),
            )
        return convert(
            source,
            target,
            source_format=source_format,
            mode=mode,
            spark=spark,
            progress=progress,
            **table_options,
        )
    assert source_format is not None
    frame = spark.read.format(source_format).options(**(read_options or {})).load(source)
    return write(frame, target, mode=mode, progress=progress, **table_options)
