"""Merges a data frame into a table: Spark joins, tasks write, and one commit publishes.

    merge(frame, uri, on=["id"])
        .when_matched_update()                          with all columns of the source
        .when_matched_update({"n": "target.n + 1"}, condition="source.n > 0")
        .when_matched_delete("source.is_gone")
        .when_not_matched_insert()
        .when_not_matched_by_source_delete("target.day < '2024-01-01'")
        .execute()

    source  1: 7   2: 9          joined   source 1, target at address 40    update
    table   7 at 40, 8 at 41              source 2, -                       insert
                                          -, target at address 41           delete, if specified

Conditions and values are Spark SQL or Column expressions over `source` and `target`. Of several
clauses of one case, the first one with a true condition applies. Keys are compared with SQL
equality, so nulls never match. Several source rows that change the same row are an error.

Inserted keys are recorded in the transaction, so that of two concurrent merges that insert the same
key, the later one is retried.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial, reduce
from operator import and_
from typing import Final, NoReturn, Unpack

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import LongType, StructType

from lancelet.change.publish import Retries, with_retries
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedError,
    similar_names,
)
from lancelet.jobs.engine import Job, JobReport
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.columns import ROW_ADDRESS
from lancelet.spark.files import Publication, plan_files
from lancelet.spark.fitting import fit_value
from lancelet.spark.frames import find_name, quoted, run_over
from lancelet.spark.merge_keys import SmallSource
from lancelet.spark.merge_tasks import (
    ACTION,
    ADDRESS,
    Action,
    MergeCounts,
    commit_merge,
    repeated_match_error,
    write_merged,
)
from lancelet.spark.options import WriteSettings
from lancelet.spark.running import Running, begin
from lancelet.spark.scanning import scan_version
from lancelet.spark.write_schema import refuse_blobs, schema_for_table, target_schema
from lancelet.spark.writing import Once
from lancelet.table.snapshot import Snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.values import dataclass

_COUNT: Final = "__lancelet_times"
_CLAUSE: Final = "__lancelet_clause"
_IS_SOURCE: Final = "__lancelet_source"


Expression = str | Column
"""SQL text, or a Column expression."""


class Case(IntEnum):
    """The sides of the join that a clause applies to."""

    MATCHED = 0
    SOURCE_ONLY = 1
    TARGET_ONLY = 2


@dataclass(frozen=True, slots=True)
class Clause:
    """The action for joined rows of a case that match a condition."""

    case: Case
    action: Action
    condition: Expression | None = None
    values: Mapping[str, Expression] | None = None


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The counts, the new version and the report of a merge."""

    version: int
    counts: MergeCounts
    report: JobReport


@dataclass(frozen=True, slots=True)
class Matched:
    """The source of a merge and its join columns.

    `keys` are pairs of table and source columns. With `only_deletes`, every match is deleted, so
    several source rows may match the same row. `small` has the rows if the driver has read them.
    """

    frame: DataFrame
    keys: Sequence[tuple[str, str]]
    only_deletes: bool = False
    small: SmallSource | None = None

    def may_repeat_rows(self, table: StructType) -> bool:
        """Return whether several source rows may match the same row.

        Source values of the same type as the table column are equal if they match the same value.
        Values of other types may differ: the strings '1' and '01' both equal the number 1.
        """
        types = {each.name: each.dataType for each in table} | {ROW_ADDRESS: LongType()}
        source_types = {each.name: each.dataType for each in self.frame.schema}
        same_type_columns = [
            two for one, two in self.keys if one in types and types[one] == source_types.get(two)
        ]
        if not same_type_columns:
            return True
        if self.small is not None and self.small.compares_bytes(same_type_columns):
            return self.small.repeats(same_type_columns)
        values = [F.col(quoted(name)) for name in same_type_columns]
        rows = self.frame.where(reduce(and_, (value.isNotNull() for value in values)))
        counts = rows.groupBy(*values).agg(F.count(F.lit(1)).alias(_COUNT))
        return not counts.where(F.col(_COUNT) > 1).isEmpty()


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge under construction; `execute` runs it.

    Rows match if the columns `on` are equal, or if `condition` is true. `names` are the aliases of
    the source and the table in expressions.
    """

    frame: DataFrame
    table: TableRef
    on: tuple[str, ...]
    running: Running
    clauses: tuple[Clause, ...] = ()
    condition: Expression | None = None
    names: tuple[str, str] = ("source", "target")
    small: SmallSource | None = None

    def when_matched_update(
        self,
        values: Mapping[str, Expression] | None = None,
        *,
        condition: Expression | None = None,
    ) -> Merge:
        """Update matched rows with all columns of the source, or with the given values."""
        return self._with(Clause(Case.MATCHED, Action.UPDATE, condition, values))

    def when_matched_delete(self, condition: Expression | None = None) -> Merge:
        """Delete matched rows."""
        return self._with(Clause(Case.MATCHED, Action.DELETE, condition))

    def when_not_matched_insert(
        self,
        values: Mapping[str, Expression] | None = None,
        *,
        condition: Expression | None = None,
    ) -> Merge:
        """Insert source rows without a match; other columns become null."""
        return self._with(Clause(Case.SOURCE_ONLY, Action.INSERT, condition, values))

    def when_not_matched_by_source_update(
        self, values: Mapping[str, Expression], *, condition: Expression | None = None
    ) -> Merge:
        """Update table rows without a match."""
        return self._with(Clause(Case.TARGET_ONLY, Action.UPDATE, condition, values))

    def when_not_matched_by_source_delete(self, condition: Expression | None = None) -> Merge:
        """Delete table rows without a match."""
        return self._with(Clause(Case.TARGET_ONLY, Action.DELETE, condition))

    def execute(
        self,
        *,
        once: Once | None = None,
        retries: Retries | None = None,
        message: str | None = None,
    ) -> MergeResult:
        """Run the merge; it is retried after conflicts with concurrent changes.

        `message` is a note for the transaction.
        """
        if not self.clauses:
            raise InvalidInputError(
                "the merge has no clauses and would change nothing; add "
                "one, such as `when_matched_update()`"
            )
        job, _ = begin(self.table.uri, self.running | {"spark": self.frame.sparkSession})
        watermark = None if once is None else BatchWatermark(once.sequence, once.batch)
        matching = [each for each in self.clauses if each.case is Case.MATCHED]
        only_deletes = all(
            each.action is Action.DELETE and each.condition is None for each in matching
        )
        merge = self._with_small_source()
        return change_rows(
            job,
            self.table,
            merge.changed,
            self.on,
            watermark=watermark,
            retries=retries,
            settings=replace(WriteSettings(self.table), message=message),
            matched=(
                Matched(merge.frame, self._keys, only_deletes, merge.small) if matching else None
            ),
        )

    @property
    def _keys(self) -> list[tuple[str, str]]:
        return [(name, name) for name in self.on]

    def _with_small_source(self) -> Merge:
        """Return the merge of rows that the driver has read, if they are few."""
        expressions = [each.condition for each in self.clauses]
        expressions += [value for each in self.clauses for value in (each.values or {}).values()]
        has_columns = any(isinstance(each, Column) for each in expressions)
        if has_columns or any(each.case is Case.TARGET_ONLY for each in self.clauses):
            return self  # columns may be those of the frame, and other rows are needed too
        if not set(self.on) <= set(self.frame.columns):
            return self
        small = SmallSource.read(self.frame, self.table.at(None).open(), self._keys)
        return self if small is None else replace(self, frame=small.frame, small=small)

    def _with(self, clause: Clause) -> Merge:
        return replace(self, clauses=(*self.clauses, clause))

    def changed(self, snapshot: Snapshot) -> DataFrame:
        """Return the changed rows with their action, address and new values."""
        schema = target_schema(snapshot, self.frame.schema)
        names = schema.fieldNames()
        self._check(snapshot, schema)
        read = names if self._reads_target(names) else list(self.on)
        target = scan_version(
            self.frame.sparkSession,
            self.table,
            snapshot,
            columns=[*read, "_rowaddr"],
            filter=None if self.small is None else self.small.filter_of(snapshot, self._keys),
        ).withColumnRenamed("_rowaddr", ADDRESS)
        source = self.frame.withColumn(_IS_SOURCE, F.lit(1))
        source_name, target_name = self.names
        matches = (
            reduce(and_, [self._source(name) == self._target(name) for name in self.on])
            if self.condition is None
            else column_of(self.condition)
        )
        # Spark estimates both sides as small and would broadcast one of them.
        joined = (
            source.alias(source_name)
            .hint("merge")
            .join(target.alias(target_name).hint("merge"), matches, self._join_type())
        )
        chosen = joined.withColumn(_CLAUSE, self._clause_number()).where(f"{_CLAUSE} is not null")
        new_values = {
            (number, name): value
            for number, each in enumerate(self.clauses)
            for name in names
            if (value := self._value(each, name, set(read))) is not None
        }
        labels = {key: f"__lancelet_{key[0]}_{key[1]}" for key in new_values}
        value_columns = [
            F.when(F.col(_CLAUSE) == key[0], value).alias(labels[key])
            for key, value in new_values.items()
        ]
        selected = chosen.select(_CLAUSE, ADDRESS, *value_columns)
        types = {each.name: each.dataType for each in selected.schema}
        values = []
        for field in schema:
            value = F.lit(None).cast(field.dataType)
            for key in [key for key in new_values if key[1] == field.name]:
                label = labels[key]
                fitted = fit_value(F.col(quoted(label)), types[label], field, _fail, by_name=True)
                value = F.when(F.col(_CLAUSE) == key[0], fitted).otherwise(value)
            values.append(value.alias(field.name))
        actions = F.lit(None).cast("int")
        for number, each in enumerate(self.clauses):
            actions = F.when(F.col(_CLAUSE) == number, int(each.action)).otherwise(actions)
        chosen = selected.select(actions.alias(ACTION), F.col(ADDRESS), *values)
        return chosen.sortWithinPartitions(ACTION)

    def _source(self, name: str) -> Column:
        return F.col(f"{quoted(self.names[0])}.{quoted(name)}")

    def _target(self, name: str) -> Column:
        return F.col(f"{quoted(self.names[1])}.{quoted(name)}")

    def _join_type(self) -> str:
        cases = {clause.case for clause in self.clauses}
        if Case.TARGET_ONLY in cases:
            return "full_outer" if Case.SOURCE_ONLY in cases else "right_outer"
        return "left_outer" if Case.SOURCE_ONLY in cases else "inner"

    def _clause_number(self) -> Column:
        """Return the number of the first clause that applies to a row."""
        is_source, is_target = F.col(_IS_SOURCE).isNotNull(), F.col(ADDRESS).isNotNull()
        cases = {
            Case.MATCHED: is_source & is_target,
            Case.SOURCE_ONLY: ~is_target,
            Case.TARGET_ONLY: ~is_source,
        }
        numbers = [
            F.when(
                cases[clause.case]
                & (F.lit(True) if clause.condition is None else column_of(clause.condition)),
                F.lit(number),
            )
            for number, clause in enumerate(self.clauses)
        ]
        return F.coalesce(*numbers)

    def _value(self, clause: Clause, name: str, read: set[str]) -> Column | None:
        """Return the new value of a column in rows of a clause; None for null."""
        if clause.action is Action.DELETE:
            return None
        if clause.values is None and find_name(self.frame.columns, name) is not None:
            return self._source(name)
        if clause.values is not None and name in clause.values:
            return column_of(clause.values[name])
        keeps_value = clause.action is Action.UPDATE and name in read
        return self._target(name) if keeps_value else None

    def _reads_target(self, names: Sequence[str]) -> bool:
        """Return whether the merge needs table columns other than the keys."""
        source_columns = set(self.frame.columns)
        if self.condition is not None:
            return True
        for clause in self.clauses:
            for each in (clause.condition or "", *(clause.values or {}).values()):
                if isinstance(each, Column) or self.names[1] in each:
                    return True
            if clause.action is Action.UPDATE:
                changed_columns = source_columns if clause.values is None else set(clause.values)
                if not changed_columns >= set(names):
                    return True
        return False

    def _check(self, snapshot: Snapshot, schema: StructType) -> None:
        """Raise if keys or columns do not exist, before the join."""
        names = schema.fieldNames()
        required = [*self.on, *(name for clause in self.clauses for name in clause.values or {})]
        for name in required:
            if name not in names:
                raise FieldNotFoundError(
                    f"the table has no such column{similar_names(name, names)}", column=name
                )
        missing = [name for name in self.on if name not in self.frame.columns]
        if missing:
            raise FieldNotFoundError(
                "the source has no column with the name of a key", column=missing[0]
            )
        if any(clause.values is None and clause.action < Action.DELETE for clause in self.clauses):
            schema_for_table(snapshot.schema, self.frame.schema, is_cast_by_spark=True)
        blobs = [field.name for field in snapshot.schema.fields if field.is_blob]
        if blobs and self._reads_target(names):
            raise UnsupportedError(
                "rows with blobs can only be updated if the source contains all columns",
                columns=blobs,
            )


def merge(
    frame: DataFrame,
    uri: str | os.PathLike[str],
    *,
    on: str | Sequence[str],
    **running: Unpack[Running],
) -> Merge:
    """Start a merge of a data frame into a table on common columns.

    Args:
        frame: The source.
        uri: The table.
        on: The key columns.
        running: See `Running`; the session of the data frame is used.
    """
    _, table = begin(uri, running)
    return Merge(frame, table, (on,) if isinstance(on, str) else tuple(on), running)


def change_rows(
    job: Job,
    table: TableRef,
    changed: Callable[[Snapshot], DataFrame],
    on: tuple[str, ...] = (),
    *,
    watermark: BatchWatermark | None = None,
    retries: Retries | None = None,
    settings: WriteSettings | None = None,
    matched: Matched | None = None,
) -> MergeResult:
    """Apply the changes that `changed` computes for a version; retried after conflicts.

    Args:
        job: The job that runs the tasks.
        table: The table.
        changed: Returns rows with `ACTION` (the sort key of each partition), `ADDRESS`, and,
            unless all are deleted, the columns of `target_schema`.
        on: The key of inserted rows, used to detect concurrent inserts of the same key.
        watermark: Identifies a batch of a stream; a batch that was already applied is skipped.
        retries: Limits of the retries after conflicts.
        settings: How new rows are written, and the message of the version.
        matched: The source of the merge. Several source rows that change the same row, other than
            by deletion, are an error before anything is written.
    """
    only_deletes = matched is not None and matched.only_deletes
    settings = settings or WriteSettings(table)
    publication = Publication(message=settings.message, watermark=watermark)

    def attempt(snapshot: Snapshot) -> MergeResult:
        if watermark is not None and watermark.is_reached(snapshot.manifest.config):
            return MergeResult(snapshot.version, MergeCounts(), job.report)
        frame = changed(snapshot)
        checked_source = None if only_deletes else matched
        if checked_source is not None and checked_source.may_repeat_rows(target_schema(snapshot)):
            address = F.col(ADDRESS)
            times = (
                frame.where(address.isNotNull())
                .groupBy(address)
                .agg(F.count(F.lit(1)).alias(_COUNT))
            )
            extra = times.agg(F.sum(F.col(_COUNT) - 1)).collect()[0][0]
            if extra:
                raise repeated_match_error(on, extra)
        written_schema = target_schema(snapshot, frame.schema)
        files = plan_files(settings, snapshot, written_schema, replaces=False)
        run = partial(write_merged, files, on)
        parts = run_over(job, "merge", frame, run)
        published, counts = commit_merge(
            snapshot, files, on, parts, publication, only_deletes=only_deletes
        )
        return MergeResult(published.version, counts, job.report)

    return with_retries(table.at(None).open(), attempt, retries or Retries(seconds=3600.0))


def update_matching(
    session: SparkSession,
    table: TableRef,
    condition: Expression | None,
    values: Mapping[str, Expression] | None,
    *,
    alias: str,
) -> MergeResult:
    """Update the rows that match a condition, or delete them if there are no values.

    Args:
        session: The session that computes conditions and values.
        table: The table.
        condition: The rows to change, by default all.
        values: The new values by column.
        alias: The name of the table in expressions.
    """
    job, _ = begin(table.uri, {"spark": session})

    def changed(snapshot: Snapshot) -> DataFrame:
        schema = target_schema(snapshot)
        columns = schema.fieldNames()
        for name in values or {}:
            if name not in columns:
                raise FieldNotFoundError(
                    "the table has no such column; fields of structs are set by SQL text, or by a "
                    f"struct of all fields{similar_names(name, columns)}",
                    column=name,
                )
        refuse_blobs(snapshot, values)
        read = _used(columns, condition) if values is None else columns
        rows = scan_version(session, table, snapshot, columns=[*read, "_rowaddr"])
        found = rows.withColumnRenamed("_rowaddr", ADDRESS).alias(alias)
        if condition is not None:
            found = found.where(column_of(condition))
        action = Action.DELETE if values is None else Action.UPDATE
        head = [F.lit(int(action)).alias(ACTION), F.col(ADDRESS)]
        if values is None:
            return found.select(*head)
        shown = [
            column_of(values[name]) if name in values else F.col(f"{quoted(alias)}.{quoted(name)}")
            for name in columns
        ]
        named = [value.alias(name) for value, name in zip(shown, columns, strict=True)]
        made = found.select(*head, *named)
        types = {each.name: each.dataType for each in made.schema}
        fitted = []
        for field in schema:
            value = F.col(quoted(field.name))
            value = fit_value(value, types[field.name], field, _fail, by_name=True)
            fitted.append(value.alias(field.name))
        return made.select(ACTION, ADDRESS, *fitted)

    return change_rows(job, table, changed)


def _used(columns: Sequence[str], condition: Expression | None) -> Sequence[str]:
    """Return the columns whose names occur in a condition, or all if it may refer to others."""
    text = str(condition).lower()
    if "*" in text or "..." in text:
        return columns
    return [] if condition is None else [each for each in columns if each.lower() in text]


def column_of(expression: Expression) -> Column:
    """Return a Column for SQL text or a Column."""
    return F.expr(expression) if isinstance(expression, str) else expression


def _fail(message: str) -> NoReturn:
    raise SchemaMismatchError(message)
