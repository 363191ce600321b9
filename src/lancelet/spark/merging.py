"""Merging a data frame into a table: Spark joins, tasks rewrite, one version has it all.

    merge(frame, uri, on=["id"])
        .when_matched_update()                          with all columns of the source
        .when_matched_update({"n": "target.n + 1"}, condition="source.n > 0")
        .when_matched_delete("source.is_gone")
        .when_not_matched_insert()
        .when_not_matched_by_source_delete("target.day < '2024-01-01'")
        .execute()

    source  1: 7   2: 9          joined   source 1, target at address 40    update
    table   7 at 40, 8 at 41              source 2, -                       insert
                                          -, target at address 41           delete, if asked for

Conditions and values are SQL of Spark over `source` and `target`; of several clauses of one kind
the first whose condition is true counts. Keys are compared as SQL does, so a null matches nothing.
A row of the table that two source rows would change is an error.

The keys that were inserted are recorded with the version, so that two merges which insert the same
key at once do not both land: the later one is done again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from functools import partial, reduce
from operator import and_
from typing import Final, Unpack

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import DataType, LongType, StructField, StructType

from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedError,
    similar_names,
)
from lancelet.ops.jobs.engine import Job, JobReport
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.publish import Retries, with_retries
from lancelet.spark.columns import ROW_ADDRESS
from lancelet.spark.files import plan_files
from lancelet.spark.fitting import fitted, has_names
from lancelet.spark.frames import quoted, run_over
from lancelet.spark.merge_tasks import (
    ACTION,
    ADDRESS,
    Action,
    MergeCounts,
    commit_merge,
    repeated,
    write_merged,
)
from lancelet.spark.options import WriteSettings
from lancelet.spark.running import Running, begin
from lancelet.spark.scanning import scan_version
from lancelet.spark.types import spark_schema
from lancelet.spark.write_schema import brought_field, schema_for_table
from lancelet.spark.writing import Once
from lancelet.table.mark import Mark
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_TIMES: Final = "__lancelet_times"


class Case(IntEnum):
    """Which sides of the join a clause is for."""

    MATCHED = 0
    SOURCE_ONLY = 1
    TARGET_ONLY = 2


@dataclass(frozen=True, slots=True)
class Clause:
    """What to do with joined rows of a case for which a condition is true."""

    case: Case
    action: Action
    condition: str | None = None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge did."""

    version: int
    counts: MergeCounts
    report: JobReport


@dataclass(frozen=True, slots=True)
class Matched:
    """A source of which rows match those of a table, if columns of both are equal.

    `keys` are columns of the table, and those of the source that they must be equal to. Where it
    `only_deletes`, whatever matches is deleted, so that several rows may match the same one.
    """

    frame: DataFrame
    keys: Sequence[tuple[str, str]]
    only_deletes: bool = False

    def has_repeats(self, table: StructType) -> bool:
        """Say whether several rows of the source may match the same row by having equal values.

        Values of the type of the table that equal the same are equal to each other. Those of
        another type need not be, as the texts '1' and '01', which both equal the number 1.
        """
        types = {each.name: each.dataType for each in table} | {ROW_ADDRESS: LongType()}
        brought = {each.name: each.dataType for each in self.frame.schema}
        same = [two for one, two in self.keys if one in types and types[one] == brought.get(two)]
        if not same:
            return True
        values = [F.col(quoted(name)) for name in same]
        rows = self.frame.where(reduce(and_, (value.isNotNull() for value in values)))
        times = rows.groupBy(*values).agg(F.count(F.lit(1)).alias(_TIMES))
        return not times.where(F.col(_TIMES) > 1).isEmpty()


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge that is being described; nothing happens before `execute`."""

    frame: DataFrame
    table: TableRef
    on: tuple[str, ...]
    running: Running
    clauses: tuple[Clause, ...] = ()

    def when_matched_update(
        self, values: Mapping[str, str] | None = None, *, condition: str | None = None
    ) -> Merge:
        """Update matched rows: with all columns that the source has, or with the values given."""
        return self._with(Clause(Case.MATCHED, Action.UPDATE, condition, values))

    def when_matched_delete(self, condition: str | None = None) -> Merge:
        """Delete matched rows."""
        return self._with(Clause(Case.MATCHED, Action.DELETE, condition))

    def when_not_matched_insert(
        self, values: Mapping[str, str] | None = None, *, condition: str | None = None
    ) -> Merge:
        """Insert source rows without a match; columns that are not given are null."""
        return self._with(Clause(Case.SOURCE_ONLY, Action.INSERT, condition, values))

    def when_not_matched_by_source_update(
        self, values: Mapping[str, str], *, condition: str | None = None
    ) -> Merge:
        """Update rows of the table without a match."""
        return self._with(Clause(Case.TARGET_ONLY, Action.UPDATE, condition, values))

    def when_not_matched_by_source_delete(self, condition: str | None = None) -> Merge:
        """Delete rows of the table without a match."""
        return self._with(Clause(Case.TARGET_ONLY, Action.DELETE, condition))

    def execute(self, *, once: Once | None = None, retries: Retries | None = None) -> MergeResult:
        """Do it, again where others changed the same rows first."""
        if not self.clauses:
            raise InvalidInputError("the merge has no clause, so it would not change anything")
        job, _ = begin(self.table.uri, self.running | {"spark": self.frame.sparkSession})
        mark = None if once is None else Mark(once.sequence, once.batch)
        matching = [each for each in self.clauses if each.case is Case.MATCHED]
        only_deletes = all(
            each.action is Action.DELETE and each.condition is None for each in matching
        )
        keys = [(name, name) for name in self.on]
        return change_rows(
            job,
            self.table,
            self._joined,
            self.on,
            mark=mark,
            retries=retries,
            matched=Matched(self.frame, keys, only_deletes) if matching else None,
        )

    def _with(self, clause: Clause) -> Merge:
        return replace(self, clauses=(*self.clauses, clause))

    def _joined(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows that change: what happens to each, where it is, and its new values."""
        schema = target_schema(snapshot, self.frame.schema)
        names = schema.fieldNames()
        self._check(snapshot, schema)
        read = names if self._reads_target(names) else list(self.on)
        target = scan_version(
            self.frame.sparkSession, self.table, snapshot, columns=[*read, "_rowaddr"]
        ).select(F.struct(*map(quoted, read)).alias("target"), F.col("_rowaddr").alias(ADDRESS))
        source = self.frame.select(F.struct(*map(quoted, self.frame.columns)).alias("source"))
        keys = [_of("source", name) == _of("target", name) for name in self.on]
        # Spark takes both sides for small, and would send all of one to every worker.
        joined = source.hint("merge").join(
            target.hint("merge"), reduce(and_, keys), self._join_type()
        )
        clause = self._clause_number()
        chosen = joined.withColumn("clause", clause).where("clause is not null")
        made = {
            (number, name): value
            for number, each in enumerate(self.clauses)
            for name in names
            if (value := self._value(each, name, set(read))) is not None
        }
        labels = {key: f"__lancelet_{key[0]}_{key[1]}" for key in made}
        shown = [
            F.when(F.col("clause") == key[0], value).alias(labels[key])
            for key, value in made.items()
        ]
        given = chosen.select("clause", ADDRESS, *shown)
        types = {each.name: each.dataType for each in given.schema}
        values = []
        for field in schema:
            value = F.lit(None).cast(field.dataType)
            for key in [key for key in made if key[1] == field.name]:
                of = _fitted(F.col(quoted(labels[key])), types[labels[key]], field)
                value = F.when(F.col("clause") == key[0], of).otherwise(value)
            values.append(value.alias(field.name))
        actions = F.lit(None).cast("int")
        for number, each in enumerate(self.clauses):
            actions = F.when(F.col("clause") == number, int(each.action)).otherwise(actions)
        chosen = given.select(actions.alias(ACTION), F.col(ADDRESS), *values)
        return chosen.sortWithinPartitions(ACTION)

    def _join_type(self) -> str:
        cases = {clause.case for clause in self.clauses}
        if Case.TARGET_ONLY in cases:
            return "full_outer" if Case.SOURCE_ONLY in cases else "right_outer"
        return "left_outer" if Case.SOURCE_ONLY in cases else "inner"

    def _clause_number(self) -> Column:
        """Return the number of the first clause whose case and condition a row fulfils."""
        cases = {
            Case.MATCHED: F.col("source").isNotNull() & F.col(ADDRESS).isNotNull(),
            Case.SOURCE_ONLY: F.col(ADDRESS).isNull(),
            Case.TARGET_ONLY: F.col("source").isNull(),
        }
        found = [
            F.when(
                cases[clause.case]
                & (F.lit(True) if clause.condition is None else F.expr(clause.condition)),
                F.lit(number),
            )
            for number, clause in enumerate(self.clauses)
        ]
        return F.coalesce(*found)

    def _value(self, clause: Clause, name: str, read: set[str]) -> Column | None:
        """Return the new value of a column in rows of a clause, None for a null."""
        if clause.action is Action.DELETE:
            return None
        if clause.values is None and name in self.frame.columns:
            return _of("source", name)
        if clause.values is not None and name in clause.values:
            return F.expr(clause.values[name])
        is_kept = clause.action is Action.UPDATE and name in read
        return _of("target", name) if is_kept else None

    def _reads_target(self, names: Sequence[str]) -> bool:
        """Say whether more of the table than its keys is needed."""
        brought = set(self.frame.columns)
        for clause in self.clauses:
            texts = [clause.condition or "", *(clause.values or {}).values()]
            if any("target" in text for text in texts):
                return True
            if clause.action is Action.UPDATE:
                given = brought if clause.values is None else set(clause.values)
                if not given >= set(names):
                    return True
        return False

    def _check(self, snapshot: Snapshot, schema: StructType) -> None:
        """Refuse keys and columns that are not there, before anything is joined."""
        names = schema.fieldNames()
        wanted = [*self.on, *(name for clause in self.clauses for name in clause.values or {})]
        for name in wanted:
            if name not in names:
                raise FieldNotFoundError(
                    f"the table has no such column{similar_names(name, names)}", column=name
                )
        missing = [name for name in self.on if name not in self.frame.columns]
        if missing:
            raise FieldNotFoundError("the source lacks a key", column=missing[0])
        if any(clause.values is None and clause.action < Action.DELETE for clause in self.clauses):
            schema_for_table(snapshot.schema, self.frame.schema)
        blobs = [field.name for field in snapshot.schema.fields if field.is_blob]
        if blobs and self._reads_target(names):
            raise UnsupportedError(
                "rows with blobs can only be updated if the source brings all columns",
                columns=blobs,
            )


def merge(
    frame: DataFrame,
    uri: str | os.PathLike[str],
    *,
    on: str | Sequence[str],
    **running: Unpack[Running],
) -> Merge:
    """Begin a merge of a data frame into a table, on columns that both have.

    Args:
        frame: The source.
        uri: The table.
        on: The columns of the key.
        running: See `Running`; the session is that of the data frame.
    """
    _, table = begin(uri, running)
    return Merge(frame, table, (on,) if isinstance(on, str) else tuple(on), running)


def change_rows(
    job: Job,
    table: TableRef,
    changed: Callable[[Snapshot], DataFrame],
    on: tuple[str, ...] = (),
    *,
    mark: Mark | None = None,
    retries: Retries | None = None,
    settings: WriteSettings | None = None,
    matched: Matched | None = None,
) -> MergeResult:
    """Change the rows that `changed` finds in a version, again where others changed them first.

    Args:
        job: Where it runs.
        table: The table.
        changed: Returns rows with `ACTION`, by which each partition is sorted, `ADDRESS`, and,
            unless all are deleted, the columns of `target_schema`.
        on: The key of inserted rows, by which two merges notice that they insert the same.
        mark: Makes a batch of a stream that comes again change nothing.
        retries: How often it is tried again.
        settings: How new rows are written.
        matched: The source that is matched. Several rows of it that change one of the table, and
            do not just delete it, are refused before any is written.
    """
    only_deletes = matched is not None and matched.only_deletes

    def attempt(snapshot: Snapshot) -> MergeResult:
        if mark is not None and mark.is_reached(snapshot.manifest.config):
            return MergeResult(snapshot.version, MergeCounts(), job.report)
        frame = changed(snapshot)
        checked = None if only_deletes else matched
        if checked is not None and checked.has_repeats(target_schema(snapshot)):
            at = F.col(ADDRESS)
            times = frame.where(at.isNotNull()).groupBy(at).agg(F.count(F.lit(1)).alias(_TIMES))
            extra = times.agg(F.sum(F.col(_TIMES) - 1)).collect()[0][0]
            if extra:
                raise repeated(on, extra)
        brought = target_schema(snapshot, frame.schema)
        files = plan_files(settings or WriteSettings(table), snapshot, brought, replaces=False)
        run = partial(write_merged, files, on)
        parts = run_over(job, "merge", frame, run)
        published, counts = commit_merge(
            snapshot, files, on, parts, mark, only_deletes=only_deletes
        )
        return MergeResult(published.version, counts, job.report)

    return with_retries(table.at(None).open(), attempt, retries or Retries(seconds=3600.0))


def target_schema(snapshot: Snapshot, brought: StructType | None = None) -> StructType:
    """Return the schema of rows that are written to a table, given what brings their values.

    Blobs are bytes there, or text with their URIs where that is what is brought.
    """
    types = {} if brought is None else {field.name: field.dataType for field in brought}
    fields = [
        brought_field(field.to_arrow(), types.get(field.name)) for field in snapshot.schema.fields
    ]
    return spark_schema(pa.schema(fields))


def _of(side: str, name: str) -> Column:
    return F.col(f"{side}.{quoted(name)}")


def _fitted(value: Column, found: DataType, field: StructField) -> Column:
    """Return a value as the type of a column; fields within are those of the same name."""
    facts = {"expected": field.dataType.simpleString(), "found": found.simpleString()}
    if not has_names(found, field.dataType):
        raise SchemaMismatchError(
            "the fields of a value are not those of its column", column=field.name, **facts
        )
    message = f"a value does not fit `{field.name}`, which has type {facts['expected']}"
    return fitted(value, found, field.dataType, F.lit(message), by_name=True)
