"""Statements that change rows: INSERT, UPDATE, DELETE, TRUNCATE and MERGE.

    UPDATE lance.`/data/t` SET n = n + 1 WHERE id IN (SELECT id FROM late)

    SELECT 0 AS action, _rowaddr AS address, id, n + 1 AS n FROM t WHERE id IN (...)

Spark computes conditions and values: the statement becomes a query for the changed rows, and tasks
write its result as one version. Values are cast by Spark's store assignment rules; a value that
does not fit the column type is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType
from sqlglot import exp

from lancelet.errors import CommitConflictError, UnsupportedError, similar_names
from lancelet.jobs.table_ref import TableRef
from lancelet.spark import change
from lancelet.spark.columns import ROW_ADDRESS
from lancelet.spark.fitting import cast_or_raise, has_same_names, pair_fields
from lancelet.spark.frames import literal, quoted
from lancelet.spark.merge_tasks import ACTION, ADDRESS, Action
from lancelet.spark.merging import Matched, MergeResult, change_rows, target_schema
from lancelet.spark.options import ROW_NAMES, ReadOptions, WriteSettings
from lancelet.spark.reader import pinned
from lancelet.spark.running import Running, begin
from lancelet.spark.sql.analysis import TableColumns, parts
from lancelet.spark.sql.names import Reference, locate
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.predicates import Translator
from lancelet.spark.sql.query import Plan, plan_query
from lancelet.spark.sql.reading import OpenTable
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, edited, parse_query
from lancelet.spark.writing import write, write_settings
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_QUERY: Final = (("SELECT",), ("WITH",), ("VALUES",), ("FROM",), ("TABLE",), ("MAP",), ("REDUCE",))
_TARGET: Final = "lance.`#target`"
_SOURCE: Final = "lancelet_source"
_CLAUSE: Final = "__lancelet_clause"
_SOURCE_MARKER: Final = "__lancelet_source"
_COUNTS: Final = (
    "num_affected_rows long, num_updated_rows long, num_deleted_rows long, num_inserted_rows long"
)


@dataclass(frozen=True, slots=True)
class Target:
    """The table that a statement changes, and its reference in the text."""

    session: Session
    source: Source
    reference: Reference
    table: TableRef

    @staticmethod
    def of(
        session: Session,
        source: Source,
        reference: Reference,
        valid_options: AbstractSet[str] = frozenset(),
    ) -> Target:
        """Find the table; only its latest version can change. `known` are its valid options."""
        if reference.is_pinned:
            source.fail("only the latest version can be changed; remove AS OF", reference.start)
        table = locate(session.spark, source, reference, valid_options=valid_options)
        return Target(session, source, reference, table)

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

    def query(self, snapshot: Snapshot, text: str, **frames: DataFrame) -> DataFrame:
        """Run a query generated from the statement, with the table as `lance.`#target``."""
        opened = OpenTable(ReadOptions(self.table.at(snapshot.version)), snapshot)
        session = replace(
            self.session,
            open_tables={**self.session.open_tables, "#target": opened},
            frames={**self.session.frames, **frames},
        )
        return plan_query(session, Source(text, self.source)).run()

    def column(self, schema: StructType, name: str, start: int) -> str:
        """Return the column with this case-insensitive name; an unknown column is an error."""
        names = schema.fieldNames()
        found = [each for each in names if each == name] or [
            each for each in names if each.lower() == name.lower()
        ]
        if len(found) != 1:
            self.source.fail(
                f"the table has no column `{name}`{similar_names(name, names)}",
                start,
                expected=names,
            )
        return found[0]


def insert(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run INSERT INTO or INSERT OVERWRITE."""
    parser.need("INSERT")
    overwrites = parser.take_any("INTO", "OVERWRITE") == "OVERWRITE"
    parser.take("TABLE")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser.source, reference, {*ROW_NAMES, "commit_message"})
    snapshot = target.open()
    schema = target_schema(snapshot)
    where = "true" if overwrites else None
    column_names: list[str] | None = None
    if parser.at("PARTITION"):
        parser.fail("Lance tables have no partitions")
    if parser.at("L_PAREN") and not any(parser.at("L_PAREN", *each) for each in _QUERY):
        start = parser.position
        column_names = [target.column(schema, name, start) for name in parser.names("a column")]
    by_name = parser.take("BY", "NAME")
    if parser.take("REPLACE", "WHERE"):
        start = parser.position
        condition = parser.text_until(*_QUERY)
        where = exact_filter(session, snapshot, condition)
        if where is None:
            parser.source.fail(
                "REPLACE WHERE supports comparisons of columns with constants",
                start,
                found=condition,
            )
    start = parser.position
    text = _with_nulls(parser.source.text[start:])
    frame = plan_query(session, Source(text, parser.source)).run()
    columns = frame.columns
    names = columns if by_name else (column_names or schema.fieldNames())
    if by_name:
        names = [target.column(schema, name, start) for name in columns]
    if len(set(names)) < len(names) or len(names) != len(columns):
        parser.source.fail(
            "the columns of the query differ from those of the table",
            start,
            expected=names,
            found=columns,
        )
    rows = cast_to_table(target, frame.toDF(*names), snapshot, start, by_name=by_name)
    done = write(
        rows,
        target.table.uri,
        mode="append" if where is None else "replace",
        where=where,
        options=reference.select_options(storage=False),
        **target.running,
    )
    return _counts(session, inserted=done.num_rows)


def _with_nulls(text: str) -> str:
    """Replace DEFAULT by NULL in VALUES, as columns have no other default."""
    tokens = Source(text).tokens
    if not tokens or tokens[0].word != "VALUES":
        return text
    edits, depth = [], 0
    for before, token, after in zip(tokens, tokens[1:], (*tokens[2:], None), strict=False):
        depth += (token.kind == "L_PAREN") - (token.kind == "R_PAREN")
        is_value = before.kind in {"L_PAREN", "COMMA", "VALUES"} and (
            after is None or after.kind in {"R_PAREN", "COMMA"}
        )
        if token.word == "DEFAULT" and depth <= 1 and is_value:
            edits.append((token.start, token.stop, "NULL"))
    return edited(text, edits)


def delete(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DELETE FROM."""
    parser.need("DELETE")
    parser.take("FROM")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser.source, reference)
    snapshot = target.open()
    alias = _alias(parser, reference, ("WHERE",))
    condition = parser.text_until() if parser.take("WHERE") else "true"
    parser.end()
    where = exact_filter(session, snapshot, condition, alias)
    if where is not None:
        done = change.delete(target.table.uri, where, **target.running)
        return _counts(session, deleted=done.num_rows)
    job, _ = begin(target.table.uri, target.running)
    text = (
        f"SELECT {int(Action.DELETE)} AS {ACTION}, {quoted(alias)}._rowaddr AS {ADDRESS} "
        f"FROM {_TARGET} AS {quoted(alias)} WHERE {condition}"
    )
    found = change_rows(job, target.table, lambda snapshot: target.query(snapshot, text))
    return _counts(session, deleted=found.counts.deleted)


def truncate(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run TRUNCATE TABLE."""
    parser.need("TRUNCATE", "TABLE")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser.source, reference)
    parser.end()
    done = change.delete(target.table.uri, "true", **target.running)
    return _counts(session, deleted=done.num_rows)


def update(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run UPDATE."""
    parser.need("UPDATE")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser.source, reference, ROW_NAMES)
    schema = target_schema(target.open())
    alias = _alias(parser, reference, ("SET",))
    parser.need("SET")
    start = parser.position
    values = _assignments(parser, target, schema, alias, ("WHERE",))
    condition = parser.text_until() if parser.take("WHERE") else "true"
    parser.end()

    def changed(snapshot: Snapshot) -> DataFrame:
        columns = target_schema(snapshot)
        _refuse_blobs(snapshot, columns, values)
        shown = [
            f"({values[name]}) AS {quoted(name)}"
            if name in values
            else f"{quoted(alias)}.{quoted(name)} AS {quoted(name)}"
            for name in columns.fieldNames()
        ]
        text = (
            f"SELECT {int(Action.UPDATE)} AS {ACTION}, {quoted(alias)}._rowaddr AS {ADDRESS}, "
            f"{', '.join(shown)} FROM {_TARGET} AS {quoted(alias)} WHERE {condition}"
        )
        found = target.query(snapshot, text)
        return cast_to_table(
            target, found, snapshot, start, extra_columns=(ACTION, ADDRESS), by_name=True
        )

    job, _ = begin(target.table.uri, target.running)
    found = change_rows(job, target.table, changed, settings=target.settings)
    return _counts(session, updated=found.counts.updated)


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause of MERGE: its case, action, condition, and values (None for all columns)."""

    case: str
    action: Action
    condition: str | None
    values: Mapping[str, str] | None
    start: int


def merge(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run MERGE INTO."""
    parser.need("MERGE")
    if parser.at("WITH", "SCHEMA", "EVOLUTION"):
        parser.fail("a merge does not add columns; add them with ALTER TABLE first")
    parser.take("INTO")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser.source, reference, ROW_NAMES)
    schema = target_schema(target.open())
    alias = _alias(parser, reference, ("USING",))
    parser.need("USING")
    plan, own = merge_source(session, parser)
    frame = plan.run()
    parser.need("ON")
    condition = parser.text_until(("WHEN", "MATCHED"), ("WHEN", "NOT"))
    clauses = []
    while parser.token is not None:
        clauses.append(_clause(parser, target, schema, alias))
    if not clauses:
        parser.fail("expected WHEN")
    if own.lower() == alias.lower():
        parser.source.fail(
            "the source has the same name as the table; use an alias", reference.start
        )
    made = _Merge(target, frame, own, alias, condition, tuple(clauses))
    made.check(schema)
    made = replace(made, clauses=tuple(made.of_side(each, schema) for each in clauses))
    return counted(session, made.run(schema, made.changed))


def update_columns(
    session: Session, parser: StatementParser, target: Target, names: Sequence[str], base: Snapshot
) -> MergeResult:
    """Run ALTER TABLE ... UPDATE COLUMNS ... FROM a source with a `_rowaddr` column."""
    start = parser.position
    plan, _ = merge_source(session, parser)
    parser.end()
    frame = with_row_addresses(target, plan, names, base, start)
    own, alias = f"{_SOURCE}_rows", f"{_SOURCE}_table"
    values = {name: f"{quoted(own)}.{quoted(name)}" for name in names}
    clause = _Clause("matched", Action.UPDATE, None, values, start)
    condition = f"{quoted(own)}._rowaddr = {quoted(alias)}._rowaddr"
    made = _Merge(target, frame, own, alias, condition, (clause,))

    def changed(snapshot: Snapshot) -> DataFrame:
        if snapshot.version != base.version:
            raise CommitConflictError(
                "the table has changed since, so row addresses may be stale; retry",
                read=base.version,
                version=snapshot.version,
            )
        return made.changed(snapshot)

    return made.run(target_schema(base), changed)


def with_row_addresses(
    target: Target, plan: Plan, names: Sequence[str], base: Snapshot, start: int
) -> DataFrame:
    """Return `_rowaddr` and columns of a source, which refer to a version of the table."""
    for read in plan.reads:
        snapshot = read.opened.snapshot
        if snapshot.location.uri == base.location.uri and snapshot.version != base.version:
            target.source.fail("addresses must be those of the latest version; remove AS OF", start)
    frame = plan.run()
    source_columns = {each.lower(): each for each in frame.columns}
    missing = [each for each in ["_rowaddr", *names] if each.lower() not in source_columns]
    if missing:
        near = similar_names(missing[0], list(source_columns))
        message = f"the source must have `_rowaddr` and the named columns{near}"
        target.source.fail(message, start, missing=missing)
    chosen = [F.col(quoted(source_columns[each.lower()])).alias(each) for each in names]
    return frame.select(F.col(quoted(source_columns["_rowaddr"])).alias("_rowaddr"), *chosen)


def merge_source(session: Session, parser: StatementParser) -> tuple[Plan, str]:
    """Read the source of a merge, and return the query of its rows, and its name."""
    start = parser.number
    if parser.at("L_PAREN"):
        parser.number += 1
        text = parser.text_until()
        parser.need("R_PAREN")
        default = "source"
    else:
        reference = parser.table(by_view=True)
        if parser.take("L_BRACE"):
            default = parser.name("a data frame")
            parser.need("R_BRACE")
        elif reference is None:
            default = parser.path("a table or a query in parentheses").rpartition(".")[2]
            if parser.at("L_PAREN"):
                parser.number += 1
                parser.text_until()
                parser.need("R_PAREN")
        else:
            default = reference.own
        tokens = parser.source.tokens
        text = parser.source.text[tokens[start].start : tokens[parser.number - 1].stop]
        text = f"SELECT * FROM {text}"
    has_as = parser.take("AS")
    is_bare = not has_as and (parser.token is None or parser.at("ON"))
    own = default if is_bare else parser.name("a name")
    if parser.at("L_PAREN"):
        names = ", ".join(map(quoted, parser.names("a column")))
        text = f"SELECT * FROM ({text}) AS {quoted(own)} ({names})"
    return plan_query(session, Source(text, parser.source)), own


def _clause(parser: StatementParser, target: Target, schema: StructType, alias: str) -> _Clause:
    start = parser.position
    parser.need("WHEN")
    case = "matched"
    if parser.take("NOT", "MATCHED"):
        case = "source"
        if parser.take("BY", "SOURCE"):
            case = "target"
        else:
            parser.take("BY", "TARGET")
    else:
        parser.need("MATCHED")
    condition = parser.text_until(("THEN",)) if parser.take("AND") else None
    parser.need("THEN")
    stops = (("WHEN", "MATCHED"), ("WHEN", "NOT"))
    if case != "source" and parser.take("DELETE"):
        return _Clause(case, Action.DELETE, condition, {}, start)
    if case == "source":
        parser.need("INSERT")
        if parser.take("STAR"):
            return _Clause(case, Action.INSERT, condition, None, start)
        position = parser.position
        names = [
            target.column(schema, _last(name, alias), position) for name in parser.names("a column")
        ]
        parser.need("VALUES")
        parser.need("L_PAREN")
        values = [_value_text(parser, ("COMMA",), ("R_PAREN",))]
        while parser.take("COMMA"):
            values.append(_value_text(parser, ("COMMA",), ("R_PAREN",)))
        parser.need("R_PAREN")
        if len(values) != len(names) or len(set(names)) < len(names):
            parser.source.fail("INSERT needs one value per column", position, columns=names)
        return _Clause(case, Action.INSERT, condition, dict(zip(names, values, strict=True)), start)
    if not parser.take("UPDATE"):
        parser.fail("expected UPDATE or DELETE")
    parser.need("SET")
    if case == "matched" and parser.take("STAR"):
        return _Clause(case, Action.UPDATE, condition, None, start)
    given = _assignments(parser, target, schema, alias, *stops)
    return _Clause(case, Action.UPDATE, condition, given, start)


@dataclass(frozen=True, slots=True)
class _Merge:
    target: Target
    frame: DataFrame
    source_alias: str
    alias: str
    condition: str
    clauses: tuple[_Clause, ...]

    def check(self, schema: StructType) -> None:
        """Raise for unreachable clauses, and for `*` if the source lacks columns."""
        for number, clause in enumerate(self.clauses):
            if any(
                each.case == clause.case and each.condition is None
                for each in self.clauses[:number]
            ):
                self.target.source.fail(
                    "unreachable clause: an earlier clause applies to all its rows", clause.start
                )
            if clause.values is None:
                source_columns = {each.lower() for each in self.frame.columns}
                missing = [
                    each for each in schema.fieldNames() if each.lower() not in source_columns
                ]
                if missing:
                    self.target.source.fail(
                        "`*` requires all columns of the table in the source",
                        clause.start,
                        missing=missing,
                    )

    def of_side(self, clause: _Clause, schema: StructType) -> _Clause:
        """Qualify the names of a clause with the side that has rows.

        In `INSERT (id) VALUES (id)`, `id` is the column of the source even if the table has one.
        """
        source = (self.source_alias, {each.lower() for each in self.frame.columns})
        table = (self.alias, {each.lower() for each in [*schema.fieldNames(), ROW_ADDRESS]})
        if clause.case == "matched":
            return clause
        is_insert = clause.case == "source"
        (name, own), (other, others) = (source, table) if is_insert else (table, source)
        wrong = (others | {other.lower()}) - own - {name.lower()}

        def qualified(text: str) -> str:
            tree = parse_query(f"SELECT {text}")
            if tree is None or tree.find(exp.Subquery, exp.Exists, exp.Lambda):
                return text  # may contain names of other tables
            found = [each.parts[0].name.lower() for each in tree.find_all(exp.Column)]
            for each in found:
                if each in wrong:
                    self.target.source.fail(
                        f"`{each}` has no value here, as no row of "
                        f"{'the table' if is_insert else 'the source'} matches",
                        clause.start,
                    )
            bare = own - {name.lower()}
            names = [(word, start) for word, start in _unqualified_names(text) if word in bare]
            if sorted(word for word, _ in names) != sorted(each for each in found if each in bare):
                return text  # such a token is not always a name
            return edited(text, [(start, start, f"{quoted(name)}.") for _, start in names])

        condition = None if clause.condition is None else qualified(clause.condition)
        values = clause.values and {each: qualified(text) for each, text in clause.values.items()}
        return replace(clause, condition=condition, values=values)

    def keys(self, schema: StructType) -> tuple[tuple[str, str], ...]:
        """Return the pairs of table and source columns that the condition compares for equality."""
        tree = parse_query(f"SELECT 1 FROM t WHERE {self.condition}")
        if tree is None:
            return ()
        table_columns = {each.lower(): each for each in [*schema.fieldNames(), ROW_ADDRESS]}
        source_columns = {each.lower(): each for each in self.frame.columns}
        pairs = []
        for node in parts(tree.args["where"].this):
            if not isinstance(node, exp.EQ):
                continue
            for side, other in ((node.left, node.right), (node.right, node.left)):
                is_pair = isinstance(side, exp.Column) and isinstance(other, exp.Column)
                if (
                    is_pair
                    and side.table.lower() == self.alias.lower()
                    and (other.table.lower() == self.source_alias.lower())
                ):
                    pairs.append(
                        (
                            table_columns.get(side.name.lower()),
                            source_columns.get(other.name.lower()),
                        )
                    )
        return tuple((one, two) for one, two in dict.fromkeys(pairs) if one and two)

    def run(self, schema: StructType, changed: Callable[[Snapshot], DataFrame]) -> MergeResult:
        """Run the merge."""
        job, _ = begin(self.target.table.uri, self.target.running)
        keys = self.keys(schema)
        matching = [each for each in self.clauses if each.case == "matched"]
        only_deletes = all(
            each.action is Action.DELETE and each.condition is None for each in matching
        )
        return change_rows(
            job,
            self.target.table,
            changed,
            tuple(one for one, _ in keys if one != ROW_ADDRESS),
            settings=self.target.settings,
            matched=Matched(self.frame, keys, only_deletes) if matching else None,
        )

    def changed(self, snapshot: Snapshot) -> DataFrame:
        """Return the changed rows: action, row address, and new values."""
        schema = target_schema(snapshot)
        for clause in self.clauses:
            if clause.action is Action.UPDATE:
                _refuse_blobs(snapshot, schema, clause.values)
        source, alias = quoted(self.source_alias), quoted(self.alias)
        is_source = f"{source}.{_SOURCE_MARKER} IS NOT NULL"
        is_target = f"{alias}._rowaddr IS NOT NULL"
        cases = {
            "matched": f"{is_source} AND {is_target}",
            "source": f"{alias}._rowaddr IS NULL",
            "target": f"{source}.{_SOURCE_MARKER} IS NULL",
        }
        whens = [
            f"WHEN ({cases[each.case]}) AND ({each.condition or 'true'}) THEN {number}"
            for number, each in enumerate(self.clauses)
        ]
        shown = [f"CASE {' '.join(whens)} END AS {_CLAUSE}", f"{alias}._rowaddr AS {ADDRESS}"]
        values: dict[str, list[tuple[int, str]]] = {name: [] for name in schema.fieldNames()}
        for number, clause in enumerate(self.clauses):
            if clause.action is Action.DELETE:
                continue
            for name, labels in values.items():
                made = self._value(clause, name)
                if made is not None:
                    label = f"__lancelet_{number}_{name}"
                    case = f"CASE WHEN {_CLAUSE} = {number} THEN ({made}) END"
                    shown.append(f"{case} AS {quoted(label)}")
                    labels.append((number, label))
        text = (
            f"SELECT {', '.join(shown)} FROM {{{_SOURCE}}} AS {source} {self._join_type()} JOIN "
            f"{_TARGET} AS {alias} ON {self.condition}"
        )
        marked_source = self.frame.withColumn(_SOURCE_MARKER, F.lit(1))
        joined = self.target.query(snapshot, text, **{_SOURCE: marked_source})
        joined = joined.where(F.col(_CLAUSE).isNotNull())
        actions = F.lit(None).cast("int")
        for number, clause in enumerate(self.clauses):
            is_it = F.col(_CLAUSE) == number
            actions = F.when(is_it, F.lit(int(clause.action))).otherwise(actions)
        types = {each.name: each.dataType for each in joined.schema}
        # A blob may be given as its URI in a text column if no clause provides bytes.
        source_schema = StructType(
            [
                StructField(name, types[labels[0][1]])
                for name, labels in values.items()
                if len({types[label] for _, label in labels}) == 1
            ]
        )
        stored_as = target_schema(snapshot, source_schema)
        columns = [
            self._stored(stored_as[name].dataType, name, labels, types)
            for name, labels in values.items()
        ]
        chosen = joined.select(actions.alias(ACTION), F.col(ADDRESS), *columns)
        return chosen.sortWithinPartitions(ACTION)

    def _value(self, clause: _Clause, name: str) -> str | None:
        if clause.values is None:
            return f"{quoted(self.source_alias)}.{quoted(name)}"
        if name in clause.values:
            return clause.values[name]
        if clause.action is Action.UPDATE:
            return f"{quoted(self.alias)}.{quoted(name)}"
        return None

    def _stored(
        self,
        target_type: DataType,
        name: str,
        labels: Sequence[tuple[int, str]],
        types: Mapping[str, DataType],
    ) -> Column:
        value = F.lit(None).cast(target_type)
        for number, label in labels:
            position = self.clauses[number].start
            made = _cast(
                self.target,
                F.col(quoted(label)),
                types[label],
                target_type,
                name,
                position,
                by_name=True,
            )
            value = F.when(F.col(_CLAUSE) == number, made).otherwise(value)
        return value.alias(name)

    def _join_type(self) -> str:
        cases = {clause.case for clause in self.clauses}
        if "target" in cases:
            return "FULL OUTER" if "source" in cases else "RIGHT OUTER"
        return "LEFT OUTER" if "source" in cases else "INNER"


def _unqualified_names(text: str) -> Iterator[tuple[str, int]]:
    """Yield the tokens of an expression that do not follow a dot and are not function names."""
    tokens = Source(text).tokens
    for before, token, after in zip((None, *tokens), tokens, (*tokens[1:], None), strict=False):
        is_inner = before is not None and before.kind in {"DOT", "COLON"}
        is_call = after is not None and after.kind == "L_PAREN"
        if token.kind != "STRING" and not is_inner and not is_call:
            yield token.text.lower(), token.start


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


def cast_to_table(
    target: Target,
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
            value = _cast(
                target,
                F.col(quoted(field.name)),
                types[field.name],
                field.dataType,
                field.name,
                start,
                by_name=by_name,
            )
        elif field.nullable:
            value = F.lit(None).cast(field.dataType)
        else:
            target.source.fail(f"`{field.name}` must not be null, but no value is given", start)
        columns.append(value.alias(field.name))
    return frame.select(*columns)


def _cast(
    target: Target,
    value: Column,
    found: DataType,
    expected: DataType,
    name: str,
    start: int,
    *,
    by_name: bool,
) -> Column:
    if by_name and not has_same_names(found, expected):
        target.source.fail(
            f"`{name}` has type {expected.simpleString()}; its fields differ from those of "
            f"{found.simpleString()}",
            start,
        )
    if not is_storable(found, expected, by_name=by_name):
        target.source.fail(
            f"`{name}` has type {expected.simpleString()}, which cannot store values of type "
            f"{found.simpleString()}; add a cast",
            start,
        )
    message = F.lit(f"a value does not fit `{name}`, which has type {expected.simpleString()}")
    return cast_or_raise(value, found, expected, message, by_name=by_name)


def is_storable(found: DataType, target: DataType, *, by_name: bool = False) -> bool:
    """Return whether Spark stores values of a type in a column of another without a cast."""
    storable = partial(is_storable, by_name=by_name)
    number, text = spark_types.NumericType, spark_types.StringType
    times = (spark_types.DateType, spark_types.TimestampType, spark_types.TimestampNTZType)
    match found, target:
        case spark_types.NullType(), _:
            return True
        case ArrayType(), ArrayType():
            return storable(found.elementType, target.elementType)
        case MapType(), MapType():
            is_key = storable(found.keyType, target.keyType)
            return is_key and storable(found.valueType, target.valueType)
        case StructType(), StructType():
            return len(found) == len(target) and all(
                storable(one.dataType, two.dataType)
                for one, two in pair_fields(found, target, by_name=by_name)
            )
    if isinstance(found, number) and isinstance(target, number):
        return True
    if isinstance(found, times) and isinstance(target, times):
        return True
    is_plain = not isinstance(found, ArrayType | MapType | StructType | spark_types.BinaryType)
    return found == target or (isinstance(target, text) and is_plain)


def _assignments(
    parser: StatementParser, target: Target, schema: StructType, alias: str, *stops: tuple[str, ...]
) -> dict[str, str]:
    """Read `a = x, b = y`."""
    found: dict[str, str] = {}
    inner: dict[str, dict[str, str]] = {}
    while True:
        start = parser.position
        path = _last(parser.path("a column"), alias)
        whole, _, rest = path.partition(".")
        is_field = rest and path.lower() not in {each.lower() for each in schema.fieldNames()}
        name = target.column(schema, whole if is_field else path, start)
        if not parser.take("EQ"):
            parser.fail("expected =")
        fields = inner.setdefault(name, {}) if is_field else None
        if name in found or (name in inner and (fields is None or rest.lower() in fields)):
            parser.source.fail(f"`{path}` is set twice", start)
        value = _value_text(parser, ("COMMA",), *stops)
        if fields is None:
            found[name] = value
        else:
            fields[rest.lower()] = value
            column = f"{quoted(alias)}.{quoted(name)}"
            text = _with_fields(schema[name].dataType, column, fields)
            if text is None:
                parser.source.fail(
                    f"`{name}` has no field `{rest}`, or one in it is set too", start
                )
        if not parser.take("COMMA"):
            for each, fields in inner.items():
                column = f"{quoted(alias)}.{quoted(each)}"
                text = _with_fields(schema[each].dataType, column, fields)
                found[each] = str(text)
            return found


def _value_text(parser: StatementParser, *stops: Sequence[str]) -> str:
    """Read a value; DEFAULT is null, as columns have no other."""
    text = parser.text_until(*stops)
    return "NULL" if text.upper() == "DEFAULT" else text


def _with_fields(data_type: DataType, text: str, fields: Mapping[str, str]) -> str | None:
    """Return a struct with other values in fields, by their paths; None if one is not there."""
    if not isinstance(data_type, StructType):
        return None
    values, used = [], 0
    for each in data_type:
        name, value = each.name.lower(), f"{text}.{quoted(each.name)}"
        within = {
            key[len(name) + 1 :]: of for key, of in fields.items() if key.startswith(f"{name}.")
        }
        used += len(within) + (name in fields)
        if within:
            made = None if name in fields else _with_fields(each.dataType, value, within)
            if made is None:
                return None
            value = made
        values += [literal(each.name), f"({fields.get(name, value)})"]
    return None if used < len(fields) else f"named_struct({', '.join(values)})"


def _last(path: str, alias: str) -> str:
    return path[len(alias) + 1 :] if path.lower().startswith(f"{alias.lower()}.") else path


def _alias(parser: StatementParser, reference: Reference, stop: tuple[str, ...]) -> str:
    has_as = parser.take("AS")
    if has_as or (parser.token is not None and not parser.at(*stop)):
        return parser.name("a name")
    return reference.own


def _refuse_blobs(snapshot: Snapshot, schema: StructType, values: Mapping[str, str] | None) -> None:
    unchanged = (
        [] if values is None else [each for each in schema.fieldNames() if each not in values]
    )
    blobs = [
        each.name for each in snapshot.schema.fields if each.is_blob and each.name in unchanged
    ]
    if blobs:
        raise UnsupportedError(
            "rows with blobs can only be updated if the statement sets them too", columns=blobs
        )


def counted(session: Session, done: MergeResult) -> DataFrame:
    """Return the counts of a merge as the result of its statement."""
    counts = done.counts
    return _counts(
        session, inserted=counts.inserted, updated=counts.updated, deleted=counts.deleted
    )


def _counts(
    session: Session, *, inserted: int = 0, updated: int = 0, deleted: int = 0
) -> DataFrame:
    row = (inserted + updated + deleted, updated, deleted, inserted)
    return session.spark.createDataFrame([row], _COUNTS)
