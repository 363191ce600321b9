"""The table that a statement changes: its location, queries over it, and casts to its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, NoReturn

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import DataType, StructField, StructType
from sqlglot import exp

from lancelet.dataset.dataset import LanceDataset
from lancelet.errors import similar_names
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.fitting import fit_value
from lancelet.spark.frames import find_name, is_case_sensitive, quoted
from lancelet.spark.merging import MergeResult
from lancelet.spark.options import ReadOptions, WriteSettings
from lancelet.spark.reader import pinned
from lancelet.spark.running import Running
from lancelet.spark.sql.analysis import TableColumns
from lancelet.spark.sql.names import Reference, locate
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.predicates import Translator
from lancelet.spark.sql.query import plan_query, syntax_error
from lancelet.spark.sql.reading import OpenTable
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, parse_query
from lancelet.spark.write_schema import target_schema
from lancelet.spark.writing import write_settings
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

TARGET: Final = "lance.`#target`"
"""The changed table in generated queries."""
_COUNTS: Final = (
    "num_affected_rows long, num_updated_rows long, num_deleted_rows long, num_inserted_rows long"
)
_GENERATED: Final = re.compile(r"(, )?(`[^`]*`\.)?`?__lancelet_\w+`?|(, )?(`[^`]*`\.)?`_rowaddr`")
_AFTER_MESSAGE: Final = re.compile(
    r";?\s*(\n== SQL|; line \d+ pos|\n'|\(line \d+, pos \d+\)|\nJVM)"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The table that a statement changes, and its reference in the text."""

    session: Session
    parser: StatementParser
    reference: Reference
    table: TableRef

    @staticmethod
    def of(
        session: Session,
        parser: StatementParser,
        reference: Reference,
        valid_options: AbstractSet[str] = frozenset(),
    ) -> Target:
        """Find the table; only its latest version can change."""
        source = parser.source
        if reference.is_pinned:
            source.fail("only the latest version can be changed; remove AS OF", reference.start)
        table = locate(session.spark, source, reference, valid_options=valid_options)
        return Target(session, parser, reference, table)

    @property
    def settings(self) -> WriteSettings:
        """Settings for writing new rows."""
        return write_settings(self.table, self.reference.select_options(storage=False))

    @property
    def running(self) -> Running:
        """The session, storage options and branch for jobs."""
        return {
            "spark": self.session.spark,
            "storage_options": dict(self.table.options),
            "branch": self.table.branch,
        }

    def open(self) -> Snapshot:
        """Open the latest version."""
        return pinned(ReadOptions(self.table))

    def dataset(self) -> LanceDataset:
        """Open the latest version as a dataset."""
        dataset = LanceDataset(self.table.uri, storage_options=dict(self.table.options))
        branch = self.table.branch
        return dataset if branch is None else dataset.checkout_version((branch, None))

    def query(
        self, snapshot: Snapshot, text: str, required: str | None = None, **frames: DataFrame
    ) -> DataFrame:
        """Run a query generated from the statement, with the table as `TARGET`.

        Only rows that match the filter `required` are needed. Errors contain the expression of the
        statement, not the generated text.
        """
        opened = OpenTable(ReadOptions(self.table.at(snapshot.version)), snapshot, required)
        session = replace(
            self.session,
            open_tables={**self.session.open_tables, "#target": opened},
            frames={**self.session.frames, **frames},
        )
        try:
            return plan_query(session, Source(text, self.parser.source)).run()
        except AnalysisException as error:
            raise self._error_of_statement(error) from None

    def _error_of_statement(self, error: AnalysisException) -> AnalysisException:
        notes = list(getattr(error, "__notes__", ()))
        if isinstance(error, ParseException):
            for start, text in self.parser.fragments:
                wrong = syntax_error(self.session, text)
                if wrong is not None:
                    error, offset = wrong
                    notes = [self.parser.source.pointer(start + (offset or 0))]
                    break
        translated = without_generated_text(error)
        for note in notes:
            translated.add_note(note)
        return translated

    def column(self, schema: StructType, name: str, start: int) -> str:
        """Return the column with this name; an unknown column is an error.

        Case is ignored unless the session is case-sensitive.
        """
        names = schema.fieldNames()
        found = find_name(names, name, is_exact=is_case_sensitive(self.session.spark))
        if found is None:
            self.parser.source.fail(
                f"the table has no column `{name}`{similar_names(name, names)}",
                start,
                expected=names,
            )
        return found

    def fit(
        self, value: Column, found: DataType, field: StructField, start: int, *, by_name: bool
    ) -> Column:
        """Cast a value to the type of a column, as described in `fitting`."""

        def fail(message: str) -> NoReturn:
            self.parser.source.fail(message, start)

        return fit_value(value, found, field, fail, by_name=by_name)

    def fit_frame(
        self,
        frame: DataFrame,
        snapshot: Snapshot,
        start: int,
        extra_columns: Sequence[str] = (),
        *,
        by_name: bool,
    ) -> DataFrame:
        """Cast a data frame to the columns of the table; missing columns are null.

        Nested fields are matched by name, else by position.
        """
        schema = target_schema(snapshot, frame.schema)
        types = {each.name: each.dataType for each in frame.schema}
        columns = [F.col(name) for name in extra_columns]
        for field in schema:
            if field.name in types:
                value = F.col(quoted(field.name))
                value = self.fit(value, types[field.name], field, start, by_name=by_name)
            elif field.nullable:
                value = F.lit(None).cast(field.dataType)
            else:
                self.parser.source.fail(
                    f"`{field.name}` must not be null, but no value is given", start
                )
            columns.append(value.alias(field.name))
        return frame.select(*columns)


def without_generated_text(error: AnalysisException) -> AnalysisException:
    """Return an error of Spark without the plan and the names of a generated query."""
    message = _AFTER_MESSAGE.split(error.getMessage() or str(error), maxsplit=1)[0]
    kind = ParseException if isinstance(error, ParseException) else AnalysisException
    return kind(
        message=_GENERATED.sub("", message.removeprefix(f"[{error.getCondition()}] ")),
        errorClass=error.getCondition(),
        messageParameters=dict(error.getMessageParameters() or {}),
    )


def exact_filter(
    session: Session, snapshot: Snapshot, condition: str, alias: str | None = None
) -> str | None:
    """Return a table filter that selects exactly the rows of a condition, or None."""
    if condition.strip().lower() == "true":
        return "true"
    tree = parse_query(f"SELECT 1 FROM t WHERE {condition}")
    given = set() if tree is None else {key for key, value in tree.args.items() if value}
    if tree is None or given != {"expressions", "from_", "where"}:
        return None
    columns = TableColumns.of(snapshot.schema)

    def find(column: exp.Column) -> object:
        is_own = not column.table or (alias is not None and column.table.lower() == alias.lower())
        return None if column.args.get("db") or not is_own else columns.find(column.name)

    made = Translator(find, session.values).filter_of(tree.args["where"].this)
    return made.text if made is not None and made.is_exact else None


def counted(session: Session, done: MergeResult) -> DataFrame:
    """Return the counts of a merge as the result of its statement."""
    made = done.counts
    return counts(session, inserted=made.inserted, updated=made.updated, deleted=made.deleted)


def counts(session: Session, *, inserted: int = 0, updated: int = 0, deleted: int = 0) -> DataFrame:
    """Return the numbers of changed rows as the result of a statement."""
    row = (inserted + updated + deleted, updated, deleted, inserted)
    return session.spark.createDataFrame([row], _COUNTS)


def empty_result(session: Session) -> DataFrame:
    """Return the result of statements that have none."""
    return session.spark.createDataFrame([], "result string").select()
