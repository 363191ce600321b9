"""`LanceTable`: Delta's Python API for Lance tables, in both spellings.

    from lancelet.spark import LanceTable as DeltaTable

    table = DeltaTable.forPath(spark, "/data/t")
    (table.alias("t").merge(updates, "t.id = s.id")
        .whenMatchedUpdateAll().whenNotMatchedInsertAll().execute())

Conditions and values are SQL text. Each call runs one statement of `sql`, which is atomic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from lancelet.errors import InvalidInputError
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.files import latest_of
from lancelet.spark.frames import literal, quoted
from lancelet.spark.sql.run import sql
from lancelet.spark.sql.source import parse_query
from lancelet.values import dataclass

_SOURCE = "lancelet_merged"


@dataclass(frozen=True, slots=True)
class LanceTable:
    """A table in a session; `name` identifies it in statements, `own` is its alias."""

    spark: SparkSession
    name: str
    own: str = "target"

    @classmethod
    def for_path(
        cls, spark: SparkSession, path: str, storage_options: Mapping[str, str] | None = None
    ) -> LanceTable:
        """Return the table at a path; the table must exist."""
        name = f"lance.{quoted(path)}"
        if storage_options:
            shown = [(f"storage.{key}", value) for key, value in storage_options.items()]
            name += f" WITH ({', '.join(f'{literal(a)} = {literal(b)}' for a, b in shown)})"
        found = cls(spark, name)
        found.to_df()
        return found

    @classmethod
    def for_name(cls, spark: SparkSession, name: str) -> LanceTable:
        """Return a table of an attached namespace, such as `lake.db.t`."""
        found = cls(spark, name)
        found.to_df()
        return found

    @staticmethod
    def is_lance_table(spark: SparkSession, path: str) -> bool:
        """Return whether a path contains a Lance table."""
        del spark
        return latest_of(TableRef.of(path)) is not None

    def alias(self, name: str) -> LanceTable:
        """Return the table with an alias for conditions and values."""
        return replace(self, own=name)

    def to_df(self) -> DataFrame:
        """Return the rows of the latest version."""
        return self._run("SELECT * FROM <>")

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the operation of each version, latest first."""
        found = self._run("DESCRIBE HISTORY <>").orderBy("version", ascending=False)
        return found if limit is None else found.limit(limit)

    def detail(self) -> DataFrame:
        """Return the location and size of the table."""
        return self._run("DESCRIBE DETAIL <>")

    def delete(self, condition: str | None = None) -> DataFrame:
        """Delete the rows that match a condition, or all rows."""
        where = "" if condition is None else f" WHERE {_text(condition)}"
        return self._run(f"DELETE FROM <> AS {quoted(self.own)}{where}")

    def update(
        self, condition: str | None = None, set: Mapping[str, str] | None = None
    ) -> DataFrame:
        """Set columns to SQL expressions in the rows that match a condition, or in all rows."""
        if not set:
            raise InvalidInputError("an update requires columns and values, such as set={...}")
        where = "" if condition is None else f" WHERE {_text(condition)}"
        return self._run(f"UPDATE <> AS {quoted(self.own)} SET {_values(set)}{where}")

    def merge(self, source: DataFrame, condition: str) -> MergeBuilder:
        """Start a merge of a data frame; the condition determines its alias."""
        tree = parse_query(f"SELECT 1 FROM t WHERE {_text(condition)}")
        names = (
            set()
            if tree is None
            else {each.table for each in tree.find_all(exp.Column) if each.table}
        )
        others = sorted(each for each in names if each.lower() != self.own.lower())
        if len(others) > 1:
            raise InvalidInputError(
                f"the condition refers to more than one source besides the table `{self.own}`",
                found=others,
            )
        return MergeBuilder(self, source, others[0] if others else "source", condition)

    def optimize(self) -> OptimizeBuilder:
        """Start a compaction."""
        return OptimizeBuilder(self)

    def vacuum(self, retention_hours: float | None = None) -> DataFrame:
        """Delete old versions and unreferenced files."""
        retention = (
            "" if retention_hours is None else f" RETAIN {round(retention_hours * 60)} MINUTES"
        )
        return self._run(f"VACUUM <>{retention}")

    def restore_to_version(self, version: int | str) -> DataFrame:
        """Restore a version by number or tag."""
        shown = str(version) if isinstance(version, int) else literal(version)
        return self._run(f"RESTORE TABLE <> TO VERSION AS OF {shown}")

    def restore_to_timestamp(self, timestamp: str) -> DataFrame:
        """Restore the version at a time."""
        return self._run(f"RESTORE TABLE <> TO TIMESTAMP AS OF {literal(timestamp)}")

    def _run(self, text: str, **frames: Any) -> DataFrame:
        return sql(self.spark, text.replace("<>", self.name, 1), **frames)

    forPath = for_path
    forName = for_name
    isLanceTable = is_lance_table
    isDeltaTable = is_lance_table
    toDF = to_df
    restoreToVersion = restore_to_version
    restoreToTimestamp = restore_to_timestamp


@dataclass(frozen=True, slots=True)
class OptimizeBuilder:
    """A compaction under construction; `execute_compaction` runs it."""

    table: LanceTable
    condition: str | None = None

    def where(self, condition: str) -> OptimizeBuilder:
        """Compact only fragments with rows that match a condition."""
        return replace(self, condition=condition)

    def execute_compaction(self) -> DataFrame:
        """Run the compaction."""
        where = "" if self.condition is None else f" WHERE {_text(self.condition)}"
        return self.table._run(f"OPTIMIZE <>{where}")  # noqa: SLF001 - its own builder

    executeCompaction = execute_compaction


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """A merge under construction; `execute` runs it."""

    table: LanceTable
    source: DataFrame
    own: str
    condition: str
    clauses: tuple[str, ...] = ()

    def when_matched_update(
        self, condition: str | None = None, set: Mapping[str, str] | None = None
    ) -> MergeBuilder:
        """Update matched rows."""
        return self._with("MATCHED", condition, f"UPDATE SET {_values(set or {})}")

    def when_matched_update_all(self, condition: str | None = None) -> MergeBuilder:
        """Update matched rows with all columns of the source."""
        return self._with("MATCHED", condition, "UPDATE SET *")

    def when_matched_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete matched rows."""
        return self._with("MATCHED", condition, "DELETE")

    def when_not_matched_insert(
        self, condition: str | None = None, values: Mapping[str, str] | None = None
    ) -> MergeBuilder:
        """Insert source rows without a match."""
        given = values or {}
        names = ", ".join(map(_path, given))
        shown = ", ".join(map(_text, given.values()))
        return self._with("NOT MATCHED", condition, f"INSERT ({names}) VALUES ({shown})")

    def when_not_matched_insert_all(self, condition: str | None = None) -> MergeBuilder:
        """Insert source rows without a match, with all columns."""
        return self._with("NOT MATCHED", condition, "INSERT *")

    def when_not_matched_by_source_update(
        self, condition: str | None = None, set: Mapping[str, str] | None = None
    ) -> MergeBuilder:
        """Update rows of the table without a match."""
        return self._with("NOT MATCHED BY SOURCE", condition, f"UPDATE SET {_values(set or {})}")

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> MergeBuilder:
        """Delete rows of the table without a match."""
        return self._with("NOT MATCHED BY SOURCE", condition, "DELETE")

    def execute(self) -> DataFrame:
        """Run the merge and return the numbers of changed rows."""
        text = (
            f"MERGE INTO <> AS {quoted(self.table.own)} "
            f"USING (SELECT * FROM {{{_SOURCE}}}) AS {quoted(self.own)} "
            f"ON {_text(self.condition)} {' '.join(self.clauses)}"
        )
        return self.table._run(text, **{_SOURCE: self.source})  # noqa: SLF001 - its own builder

    def _with(self, case: str, condition: str | None, action: str) -> MergeBuilder:
        test = "" if condition is None else f" AND ({_text(condition)})"
        return replace(self, clauses=(*self.clauses, f"WHEN {case}{test} THEN {action}"))

    whenMatchedUpdate = when_matched_update
    whenMatchedUpdateAll = when_matched_update_all
    whenMatchedDelete = when_matched_delete
    whenNotMatchedInsert = when_not_matched_insert
    whenNotMatchedInsertAll = when_not_matched_insert_all
    whenNotMatchedBySourceUpdate = when_not_matched_by_source_update
    whenNotMatchedBySourceDelete = when_not_matched_by_source_delete


def _values(given: Mapping[str, str]) -> str:
    if not given:
        raise InvalidInputError("an update requires columns and values: set={...}")
    return ", ".join(f"{_path(name)} = {_text(value)}" for name, value in given.items())


def _path(name: str) -> str:
    return ".".join(quoted(part) for part in name.split("."))


def _text(value: object) -> str:
    """Return SQL text; Column expressions have no SQL text."""
    if not isinstance(value, str):
        raise InvalidInputError(
            "conditions and values must be SQL text, such as 't.n + 1'", found=type(value).__name__
        )
    return value
