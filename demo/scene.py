"""What all parts of the demo share: the session, where things are, and what is expected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import data
from report import Report, Step, Version

import lancelet
from lancelet import spark as ls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Demo:
    """What the steps share: the session, where things are, how much there is, what was found."""

    spark: SparkSession
    folder: Path
    rows: int
    report: Report

    @property
    def table(self) -> str:
        return str(self.folder / "orders.lance")

    @property
    def digits(self) -> str:
        return str(self.folder / "digits.lance")

    def versions(self) -> list[Version]:
        """Return what each version of the orders that is still there did."""
        ls.register(self.spark)
        columns = "version, operation, rows, fragments, bytes"
        sql = f"SELECT {columns} FROM lance_versions('{self.table}')"
        return [Version(*row) for row in self.spark.sql(sql).collect()]

    def sql(self, step: Step, text: str, **frames: DataFrame) -> int:
        """Run a statement that changes the orders, and return how many rows it changed."""
        row = self.query(step, text, **frames).collect()
        step.version = lancelet.dataset(self.table).version
        changed = row[0].asDict().get("num_affected_rows", 0) if row else 0
        step.rows = changed
        return changed

    def query(self, step: Step, text: str, **frames: DataFrame) -> DataFrame:
        """Run SQL in which `<orders>` is the table, and keep it for the report."""
        self.report.statements[step.name] = text
        return ls.sql(self.spark, text.replace("<orders>", f"lance.`{self.table}`"), **frames)

    def orders(self, first: int, stop: int, step: int = 1, *, is_late: bool = False) -> DataFrame:
        """Return a data frame of orders, which is made in tasks."""
        make = data.late_orders if is_late else data.orders
        return self.spark.range(first, stop, step, 4).mapInArrow(make, data.ORDERS)


def stored_bytes(uri: str) -> int:
    """Return how large the latest version of a table is."""
    return int(lancelet.dataset(uri).versions()[-1]["metadata"]["total_files_size"])


def expect(what: str, found: object, expected: object) -> None:
    """End the demo where something is not as it should be."""
    if found != expected:
        raise SystemExit(f"{what}: expected {expected}, found {found}")
