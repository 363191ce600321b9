"""The Spark session of a statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lancelet.spark.sql.reading import OpenTable
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Session:
    """The Spark session of a statement with its parameters and data frames.

    `open_tables` maps the placeholder of a path to an open version. `with_clause` are the common
    table expressions before a statement that changes rows, which all its queries may use.
    """

    spark: SparkSession
    values: Mapping[str, Any] = field(default_factory=dict)
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    open_tables: Mapping[str, OpenTable] = field(default_factory=dict)
    with_clause: str = ""

    def run(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Run a query with data frames for `{name}` and parameters for `:name`."""
        all_frames = {**self.frames, **frames}
        values = dict(self.values) or None
        return (
            self.spark.sql(text, args=values, **all_frames)
            if all_frames
            else self.spark.sql(text, values)
        )
