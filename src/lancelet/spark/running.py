"""Arguments shared by all jobs: the engine, the table, progress and cancellation."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TypedDict

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from lancelet.jobs.engine import Job, JobReport, ProgressCallback
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.engine import SparkEngine
from lancelet.values import dataclass


class TableOptions(TypedDict, total=False):
    """Keyword arguments that locate a table.

    Attributes:
        storage_options: Settings of the store, such as credentials.
        branch: The branch to work on.
    """

    storage_options: Mapping[str, str] | None
    branch: str | None


class Running(TableOptions, total=False):
    """Keyword arguments of every job, in addition to those of `TableOptions`.

    Attributes:
        spark: The session that runs the tasks; without one, local processes run them.
        progress: Receives the progress of the job, for example a `TerminalBar`.
        stop: An event that cancels the job without a commit, from any thread.
    """

    spark: SparkSession | None
    progress: ProgressCallback | None
    stop: threading.Event | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a job: the new version, the number of processed rows and the report."""

    version: int
    num_rows: int
    report: JobReport


def begin(uri: str | os.PathLike[str], running: Running) -> tuple[Job, TableRef]:
    """Create a job on the requested engine, and return it with its table."""
    session = running.get("spark")
    engine = LocalEngine(dumps=cloudpickle.dumps) if session is None else SparkEngine(session)
    job = Job(engine, running.get("progress"), running.get("stop"))
    return job, table_at(uri, running)


def table_at(uri: str | os.PathLike[str], table_options: TableOptions) -> TableRef:
    """Return a reference to the latest version of a table."""
    table = TableRef.of(os.fspath(uri), table_options.get("storage_options"))
    branch = table_options.get("branch")
    return table if branch in {None, "main"} else table.on_branch(str(branch))
