"""Running a function over the partitions of a data frame, with one result from each."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lancelet.jobs.engine import Done, Job, Outcome, PhaseControl, run_task
from lancelet.spark.arrow_tasks import map_in_arrow
from lancelet.spark.control import running
from lancelet.spark.engine import watching

_RESULT: Final = "outcome binary"

BatchesFunction = Callable[[Iterator[pa.RecordBatch]], Done[Any]]


def run_over(job: Job, phase: str, frame: DataFrame, function: BatchesFunction) -> list[Any]:
    """Run a function over the batches of each partition; results are in order of arrival."""

    def outcomes(watch: PhaseControl) -> list[Outcome]:
        over = map_in_arrow(frame, partial(_on_worker, function), _RESULT)
        with running(frame.sparkSession) as control, watching(control, watch):
            rows = over.collect()
        return [pickle.loads(row.outcome) for row in rows]  # noqa: S301 - our own workers wrote it

    return job.collect(phase, outcomes)


def _on_worker(
    function: BatchesFunction, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    outcome = pickle.dumps(run_task(function, batches))
    yield pa.RecordBatch.from_arrays([pa.array([outcome], pa.binary())], ["outcome"])


def literal(text: str) -> str:
    """Return a text as an SQL string literal."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether column names that differ by case are different names in a session."""
    return str(spark.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def find_name(names: Sequence[str], name: str, *, is_exact: bool = False) -> str | None:
    """Return the one of `names` that `name` refers to, or None if there is none or several.

    >>> find_name(["id", "Name"], "NAME")
    'Name'
    """
    if name in names:
        return name
    found = [] if is_exact else [each for each in names if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else None
