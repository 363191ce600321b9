"""What every job takes beside its own arguments: where it runs, and who is told and may stop it."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TypedDict

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from lancelet.ops.jobs.engine import Job, JobReport, ProgressCallback
from lancelet.ops.jobs.local import LocalEngine
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.spark.engine import SparkEngine
from lancelet.values import dataclass


class Place(TypedDict, total=False):
    """Keyword arguments that say more about where a table is.

    Attributes:
        storage_options: Settings of the store, such as credentials.
        branch: The branch to work on.
    """

    storage_options: Mapping[str, str] | None
    branch: str | None


class Running(Place, total=False):
    """Keyword arguments of every job, beside those of `Place`.

    Attributes:
        spark: The session whose executors do the work; without one, processes of this machine.
        progress: Told how far the job is, such as a `TerminalBar`.
        stop: Ends the job without a commit when it is set, from any thread.
    """

    spark: SparkSession | None
    progress: ProgressCallback | None
    stop: threading.Event | None


@dataclass(frozen=True, slots=True)
class Finished:
    """What a job did: the version there is after it, the rows it worked on, and what it took."""

    version: int
    num_rows: int
    report: JobReport


def begin(uri: str | os.PathLike[str], running: Running) -> tuple[Job, TableRef]:
    """Return a job on the engine that was asked for, and the table it is about."""
    session = running.get("spark")
    engine = LocalEngine(dumps=cloudpickle.dumps) if session is None else SparkEngine(session)
    job = Job(engine, running.get("progress"), running.get("stop"))
    return job, table_at(uri, running)


def table_at(uri: str | os.PathLike[str], place: Place) -> TableRef:
    """Return the table at a place, at its latest version."""
    table = TableRef.of(os.fspath(uri), place.get("storage_options"))
    branch = place.get("branch")
    return table if branch in {None, "main"} else table.on_branch(str(branch))
