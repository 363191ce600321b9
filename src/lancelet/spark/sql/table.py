"""`LanceTable`: Delta's Python API for Lance tables, in both spellings.

    from lancelet.spark import LanceTable as DeltaTable

    table = DeltaTable.forPath(spark, "/data/t")
    (table.alias("t").merge(updates.alias("s"), "t.id = s.id")
        .whenMatchedUpdateAll().whenNotMatchedInsertAll().execute())

Conditions and values are SQL text or Column expressions that name columns, as in
`F.col("t.n") + 1`. A call with text only runs one statement of `sql`; Column expressions are
evaluated by Spark on the rows of the table. Each change is one version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import DataType, StructField, StructType
from sqlglot import exp

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.conversion.run import convert
from lancelet.spark.files import add_new_columns, latest_of
from lancelet.spark.frames import find_name, literal, quoted
from lancelet.spark.merging import Expression, Merge, MergeResult, update_matching
from lancelet.spark.options import WriteSettings
from lancelet.spark.sql.column_definitions import parse_columns
from lancelet.spark.sql.names import attached, locate, reference_at
from lancelet.spark.sql.run import sql
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, parse_query
from lancelet.spark.sql.target import counted, without_generated_text
from lancelet.spark.writing import write
from lancelet.values import dataclass

_SOURCE: Final = "lancelet_merged"
_REPLACED: Final = {
    "generate": "other engines read Lance tables with pylance or lancelet",
    "upgradeTableProtocol": "lancelet.spark.migrate changes the file version of a table",
    "addFeatureSupport": "features are enabled by table properties",
    "dropFeatureSupport": "features are disabled by table properties",
    "executeZOrderBy": "create an index: CREATE INDEX name ON table (column) USING BTREE",
    "partitionedBy": "Lance tables have no partitions; omit the call, or create an index",
    "clusterBy": "create an index instead: CREATE INDEX name ON table (column) USING BTREE",
}
_DETAIL: Final = (
    "format string, location string, version long, numFiles long, numRows long, "
    "properties map<string, string>"
)
_QUALIFIER: Final = re.compile(r"(?<![\w.`])([A-Za-z_]\w*)\.")
_TEXT: Final = re.compile(r"'[^']*'")
_ACTIONS: Final = {"update": "UPDATE SET", "insert": "INSERT", "delete": "DELETE"}


class _Replaced:
    """Raises for methods of Delta without an equivalent; the error says what to use instead."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        """Raise for a name that is not an attribute."""
        if name in _REPLACED:
            raise UnsupportedError(f"`{name}` is not supported: {_REPLACED[name]}")
        raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class LanceTable(_Replaced):
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

    @staticmethod
    def create(spark: SparkSession | None = None) -> TableBuilder:
        """Start the definition of a new table."""
        return TableBuilder(spark, "CREATE TABLE")

    @staticmethod
    def create_if_not_exists(spark: SparkSession | None = None) -> TableBuilder:
        """Start the definition of a table that is created if it does not exist."""
        return TableBuilder(spark, "CREATE TABLE IF NOT EXISTS")

    @staticmethod
    def replace(spark: SparkSession | None = None) -> TableBuilder:
        """Start the definition of a table that replaces an existing one."""
        return TableBuilder(spark, "REPLACE TABLE")

    @staticmethod
    def create_or_replace(spark: SparkSession | None = None) -> TableBuilder:
        """Start the definition of a table that replaces an existing one, if there is one."""
        return TableBuilder(spark, "CREATE OR REPLACE TABLE")

    @classmethod
    def convert_to_lance(
        cls,
        spark: SparkSession,
        identifier: str,
        partition_schema: str | StructType | None = None,
        *,
        target: str | None = None,
    ) -> LanceTable:
        """Convert a folder of Parquet or a Delta table, and return the Lance table.

        Data files of Lance tables are Lance files, so the rows are written once more, beside the
        files of the source, which remain. Programs that cannot afford both read the source as it
        is: `spark.read.parquet`.

        Args:
            spark: The session.
            identifier: The source, as ``parquet.`/path` `` or ``delta.`/path` ``.
            partition_schema: Ignored: partition columns are found by the names of folders.
            target: The path of the Lance table, by default that of the source, whose files remain.
        """
        del partition_schema
        kind, dot, path = identifier.partition(".")
        if not dot or kind.lower() not in {"parquet", "delta"}:
            raise InvalidInputError(
                "the source must be parquet.`/path` or delta.`/path`", found=identifier
            )
        path = path.strip("`")
        target = target or path
        try:
            convert(path, target, source_format=kind.lower(), target_format="lance", spark=spark)
        except UnsupportedError:  # Spark reads what the conversion does not, such as partitions
            write(spark.read.format(kind.lower()).load(path), target)
        return cls.for_path(spark, target)

    def alias(self, name: str) -> LanceTable:
        """Return the table with an alias for conditions and values."""
        return replace(self, own=name)

    def to_df(self) -> DataFrame:
        """Return the rows of the latest version."""
        return self._run("SELECT * FROM <>")

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the operation of each version, latest first; `timestamp` is that of its commit."""
        found = self._run("DESCRIBE HISTORY <>").orderBy("version", ascending=False)
        found = found.withColumn("timestamp", F.col("committed_at"))
        return found if limit is None else found.limit(limit)

    def detail(self) -> DataFrame:
        """Return a row with the location, version, size and properties of the table."""
        snapshot = self.table.open()
        files = sum(len(fragment.files) for fragment in snapshot.fragments)
        properties = dict(snapshot.manifest.config)
        row = ("lance", self.table.uri, snapshot.version, files, snapshot.num_rows, properties)
        return self.spark.createDataFrame([row], _DETAIL)

    def delete(self, condition: Expression | None = None) -> DataFrame:
        """Delete the rows that match a condition, or all rows."""
        if isinstance(condition, Column):
            return self._changed(condition, None)
        where = "" if condition is None else f" WHERE {condition}"
        return self._run(f"DELETE FROM <> AS {quoted(self.own)}{where}")

    def update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> DataFrame:
        """Set columns to expressions in the rows that match a condition, or in all rows."""
        if not set:
            raise InvalidInputError("an update requires columns and values, such as set={...}")
        if any(isinstance(each, Column) for each in (condition, *set.values())):
            return self._changed(condition, set)
        where = "" if condition is None else f" WHERE {condition}"
        return self._run(f"UPDATE <> AS {quoted(self.own)} SET {_values(set)}{where}")

    def merge(self, source: DataFrame, condition: Expression) -> MergeBuilder:
        """Start a merge of a data frame; the condition determines its alias."""
        names = _qualifiers(condition)
        others = sorted(each for each in names if each.lower() != self.own.lower())
        if len(others) > 1:  # some may be structs
            others = [each for each in others if each not in source.columns]
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
        return self._run(f"RESTORE TABLE <> TO VERSION AS OF {_version(version)}")

    def restore_to_timestamp(self, timestamp: str) -> DataFrame:
        """Restore the version at a time."""
        return self._run(f"RESTORE TABLE <> TO TIMESTAMP AS OF {literal(timestamp)}")

    def clone(
        self,
        target: str,
        isShallow: bool = False,  # noqa: N803 - as in Delta
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> LanceTable:
        """Create a copy at a path or name; a shallow one shares the data files."""
        return self._cloned(target, "", isShallow, replace, properties)

    def clone_at_version(
        self,
        version: int | str,
        target: str,
        isShallow: bool = False,  # noqa: N803 - as in Delta
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> LanceTable:
        """Create a copy of a version."""
        pin = f" VERSION AS OF {_version(version)}"
        return self._cloned(target, pin, isShallow, replace, properties)

    def clone_at_timestamp(
        self,
        timestamp: str,
        target: str,
        isShallow: bool = False,  # noqa: N803 - as in Delta
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> LanceTable:
        """Create a copy of the version at a time."""
        pin = f" TIMESTAMP AS OF {literal(timestamp)}"
        return self._cloned(target, pin, isShallow, replace, properties)

    def _cloned(
        self,
        target: str,
        pin: str,
        is_shallow: bool,
        replace: bool,
        properties: Mapping[str, str] | None,
    ) -> LanceTable:
        is_path = "/" in target and "`" not in target
        made = LanceTable(self.spark, f"lance.{quoted(target)}" if is_path else target)
        kind = "SHALLOW" if is_shallow else "DEEP"
        verb = "CREATE OR REPLACE" if replace else "CREATE"
        made._run(f"{verb} TABLE <> {kind} CLONE {self.name}{pin}")
        if properties:
            made._run(f"ALTER TABLE <> SET TBLPROPERTIES ({_properties(properties)})")
        return made

    def _run(self, text: str, **frames: Any) -> DataFrame:
        return sql(self.spark, text.replace("<>", self.name, 1), **frames)

    def _changed(
        self, condition: Expression | None, values: Mapping[str, Expression] | None
    ) -> DataFrame:
        table = self.table
        if values is not None:
            values = _with_names(table, values)
        try:
            done = update_matching(self.spark, table, condition, values, alias=self.own)
        except AnalysisException as error:
            raise _with_hint(error, self.own) from None
        return counted(Session(self.spark), done)

    @property
    def table(self) -> TableRef:
        """The location of the table."""
        source = Source(self.name)
        found = reference_at(source, 0, attached(self.spark))
        if found is None:
            raise InvalidInputError(
                "not the name of a Lance table; use a path or a name in an attached namespace",
                name=self.name,
            )
        return locate(self.spark, source, found[0])

    forPath = for_path
    forName = for_name
    isLanceTable = is_lance_table
    isDeltaTable = is_lance_table
    createIfNotExists = create_if_not_exists
    createOrReplace = create_or_replace
    convertToLance = convert_to_lance
    convertToDelta = convert_to_lance
    toDF = to_df
    restoreToVersion = restore_to_version
    restoreToTimestamp = restore_to_timestamp
    cloneAtVersion = clone_at_version
    cloneAtTimestamp = clone_at_timestamp


@dataclass(frozen=True, slots=True)
class TableBuilder(_Replaced):
    """The definition of a table under construction; `execute` creates the table."""

    spark: SparkSession | None
    statement: str
    name: str = ""
    columns: tuple[StructField, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    note: str | None = None

    def table_name(self, name: str) -> TableBuilder:
        """Set the name, such as `lake.db.t`."""
        return replace(self, name=name)

    def location(self, path: str) -> TableBuilder:
        """Set the path."""
        return replace(self, name=f"lance.{quoted(path)}")

    def comment(self, comment: str) -> TableBuilder:
        """Set the message of the first version."""
        return replace(self, note=comment)

    def property(self, key: str, value: str) -> TableBuilder:
        """Set a property."""
        return replace(self, properties=(*self.properties, (key, value)))

    def add_column(
        self,
        name: str,
        data_type: str | DataType | None = None,
        nullable: bool = True,
        comment: str | None = None,
        **options: Any,
    ) -> TableBuilder:
        """Add a column; `data_type` is SQL text or a type, also as `dataType`."""
        del comment  # columns have no comments
        kind = options.pop("dataType", data_type)
        if options:
            raise UnsupportedError(
                "columns cannot be generated; compute the value in the query that writes it",
                column=name,
                options=list(options),
            )
        if isinstance(kind, str):
            text = f"{quoted(name)} {kind}"
            session = Session(self._session())
            column = parse_columns(session, Source(text), text, (0, 0), "invalid type")[0]
            return replace(self, columns=(*self.columns, _with_nulls(column, nullable=nullable)))
        if kind is None:
            raise InvalidInputError("a column requires a type", column=name)
        return replace(self, columns=(*self.columns, StructField(name, kind, nullable)))

    def add_columns(self, columns: StructType | list[StructField]) -> TableBuilder:
        """Add columns."""
        return replace(self, columns=(*self.columns, *columns))

    def execute(self) -> LanceTable:
        """Create the table."""
        if not self.name:
            raise InvalidInputError("a table requires tableName(...) or location(...)")
        text = f"{self.statement} {self.name} USING lance"
        if self.properties:
            text += f" TBLPROPERTIES ({_properties(dict(self.properties))})"
        if self.note is not None:
            text += f" COMMENT {literal(self.note)}"
        empty = self._session().createDataFrame([], StructType(list(self.columns)))
        sql(
            self._session(), f"{text} AS SELECT * FROM {{lancelet_columns}}", lancelet_columns=empty
        )
        return LanceTable(self._session(), self.name)

    def _session(self) -> SparkSession:
        return SparkSession.active() if self.spark is None else self.spark

    tableName = table_name
    addColumn = add_column
    addColumns = add_columns


@dataclass(frozen=True, slots=True)
class OptimizeBuilder(_Replaced):
    """A compaction under construction; `execute_compaction` runs it."""

    table: LanceTable
    condition: str | None = None

    def where(self, condition: str) -> OptimizeBuilder:
        """Compact only fragments with rows that match a condition."""
        return replace(self, condition=condition)

    def execute_compaction(self) -> DataFrame:
        """Run the compaction."""
        where = "" if self.condition is None else f" WHERE {self.condition}"
        return self.table._run(f"OPTIMIZE <>{where}")  # noqa: SLF001 - its own builder

    executeCompaction = execute_compaction


@dataclass(frozen=True, slots=True)
class _When:
    """A clause of a merge: its case in SQL, action, condition, and values (None for all)."""

    case: str
    action: str
    condition: Expression | None
    values: Mapping[str, Expression] | None = None

    @property
    def expressions(self) -> tuple[Expression | None, ...]:
        return (self.condition, *(self.values or {}).values())

    def text(self) -> str:
        test = "" if self.condition is None else f" AND ({self.condition})"
        action = _ACTIONS[self.action]
        if self.action == "update":
            action += " *" if self.values is None else f" {_values(self.values)}"
        elif self.action == "insert" and self.values is None:
            action += " *"
        elif self.action == "insert":
            names = ", ".join(map(_path, self.values or {}))
            values = ", ".join(map(str, (self.values or {}).values()))
            action += f" ({names}) VALUES ({values})"
        return f"WHEN {self.case}{test} THEN {action}"


@dataclass(frozen=True, slots=True)
class MergeBuilder:
    """A merge under construction; `execute` runs it."""

    table: LanceTable
    source: DataFrame
    own: str
    condition: Expression
    clauses: tuple[_When, ...] = ()
    adds_columns: bool = False

    def with_schema_evolution(self) -> MergeBuilder:
        """Add the new columns of the source to the table."""
        return replace(self, adds_columns=True)

    def when_matched_update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> MergeBuilder:
        """Update matched rows."""
        return self._with(_When("MATCHED", "update", condition, _given(set)))

    def when_matched_update_all(self, condition: Expression | None = None) -> MergeBuilder:
        """Update matched rows with all columns of the source."""
        return self._with(_When("MATCHED", "update", condition))

    def when_matched_delete(self, condition: Expression | None = None) -> MergeBuilder:
        """Delete matched rows."""
        return self._with(_When("MATCHED", "delete", condition))

    def when_not_matched_insert(
        self,
        condition: Expression | None = None,
        values: Mapping[str, Expression] | None = None,
    ) -> MergeBuilder:
        """Insert source rows without a match."""
        return self._with(_When("NOT MATCHED", "insert", condition, _given(values)))

    def when_not_matched_insert_all(self, condition: Expression | None = None) -> MergeBuilder:
        """Insert source rows without a match, with all columns."""
        return self._with(_When("NOT MATCHED", "insert", condition))

    def when_not_matched_by_source_update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, Expression] | None = None,
    ) -> MergeBuilder:
        """Update rows of the table without a match."""
        return self._with(_When("NOT MATCHED BY SOURCE", "update", condition, _given(set)))

    def when_not_matched_by_source_delete(
        self, condition: Expression | None = None
    ) -> MergeBuilder:
        """Delete rows of the table without a match."""
        return self._with(_When("NOT MATCHED BY SOURCE", "delete", condition))

    def execute(self) -> DataFrame:
        """Run the merge and return the numbers of changed rows."""
        given = [self.condition, *(each for clause in self.clauses for each in clause.expressions)]
        if any(isinstance(each, Column) for each in given):
            try:
                return counted(Session(self.table.spark), self._merge_columns())
            except AnalysisException as error:
                raise _with_hint(error, self.table.own) from None
        evolves = " WITH SCHEMA EVOLUTION" if self.adds_columns else ""
        text = (
            f"MERGE{evolves} INTO <> AS {quoted(self.table.own)} "
            f"USING (SELECT * FROM {{{_SOURCE}}}) AS {quoted(self.own)} "
            f"ON {self.condition} {' '.join(each.text() for each in self.clauses)}"
        )
        return self.table._run(text, **{_SOURCE: self.source})  # noqa: SLF001 - its own builder

    def _merge_columns(self) -> MergeResult:
        table = self.table.table
        if self.adds_columns:
            add_new_columns(table, self.source.schema, WriteSettings(table))
        names = (self.own, self.table.own)
        merge = Merge(self.source, table, (), {}, condition=self.condition, names=names)
        for clause in self.clauses:
            values = clause.values and _with_names(table, clause.values)
            condition = clause.condition
            match clause.case, clause.action:
                case "MATCHED", "update":
                    merge = merge.when_matched_update(values, condition=condition)
                case "MATCHED", _:
                    merge = merge.when_matched_delete(condition)
                case "NOT MATCHED", _:
                    merge = merge.when_not_matched_insert(values, condition=condition)
                case _, "update":
                    merge = merge.when_not_matched_by_source_update(
                        values or {}, condition=condition
                    )
                case _:
                    merge = merge.when_not_matched_by_source_delete(condition)
        return merge.execute()

    def _with(self, clause: _When) -> MergeBuilder:
        return replace(self, clauses=(*self.clauses, clause))

    withSchemaEvolution = with_schema_evolution
    whenMatchedUpdate = when_matched_update
    whenMatchedUpdateAll = when_matched_update_all
    whenMatchedDelete = when_matched_delete
    whenNotMatchedInsert = when_not_matched_insert
    whenNotMatchedInsertAll = when_not_matched_insert_all
    whenNotMatchedBySourceUpdate = when_not_matched_by_source_update
    whenNotMatchedBySourceDelete = when_not_matched_by_source_delete


def _given(values: Mapping[str, Expression] | None) -> Mapping[str, Expression]:
    if not values:
        raise InvalidInputError("the clause requires columns and values: {'column': 'value'}")
    return values


def _values(given: Mapping[str, Expression]) -> str:
    return ", ".join(f"{_path(name)} = {value}" for name, value in given.items())


def _path(name: str) -> str:
    return ".".join(quoted(part.strip("`")) for part in name.split("."))


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())


def _version(version: int | str) -> str:
    return str(version) if isinstance(version, int) else literal(version)


def _with_nulls(field: StructField, *, nullable: bool) -> StructField:
    return StructField(field.name, field.dataType, nullable and field.nullable, field.metadata)


def _with_names(table: TableRef, values: Mapping[str, Expression]) -> dict[str, Expression]:
    """Return values by the names of the table, without the alias before them."""
    names = table.open().schema.names
    found = {}
    for given, value in values.items():
        name = given.rpartition(".")[2].strip("`")
        found[find_name(names, given) or find_name(names, name) or given] = value
    return found


def _qualifiers(condition: Expression) -> set[str]:
    """Return the names before the columns of a condition."""
    if isinstance(condition, Column):  # shown as Column<'=(t.id, s.id)'>
        return set(_QUALIFIER.findall(_TEXT.sub("", str(condition)[len("Column<'") :])))
    tree = parse_query(f"SELECT 1 FROM t WHERE {condition}")
    columns = () if tree is None else tree.find_all(exp.Column)
    return {each.table for each in columns if each.table}


def _with_hint(error: AnalysisException, alias: str) -> AnalysisException:
    error = without_generated_text(error)
    error.add_note(
        "Column expressions name columns of the table and the source by their aliases, such as "
        f"F.col('{alias}.id'); columns of other data frames are unknown"
    )
    return error
