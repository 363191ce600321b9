"""MERGE, and ALTER TABLE ... UPDATE COLUMNS ... FROM, which is a merge by row address.

MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n

SELECT CASE WHEN ... THEN 0 END AS clause, t._rowaddr AS address, s.n AS value
FROM s LEFT OUTER JOIN t ON t.id = s.id
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import DataType, StructField, StructType
from sqlglot import exp

from lancelet.errors import CommitConflictError, similar_names
from lancelet.spark.columns import ROW_ADDRESS
from lancelet.spark.files import add_new_columns
from lancelet.spark.frames import find_name, quoted
from lancelet.spark.merge_keys import Keys, SmallSource
from lancelet.spark.merge_tasks import ACTION, ADDRESS, Action
from lancelet.spark.merging import Matched, MergeResult, change_rows
from lancelet.spark.options import ROW_NAMES
from lancelet.spark.running import begin
from lancelet.spark.sql.analysis import parts
from lancelet.spark.sql.changes import (
    alias_of,
    assignments,
    value_text,
    without_alias,
)
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import Plan, plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, edited, parse_query
from lancelet.spark.sql.target import TARGET, Target, counted
from lancelet.spark.write_schema import refuse_blobs, target_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_SOURCE: Final = "lancelet_source"
_CLAUSE: Final = "__lancelet_clause"
_SOURCE_MARKER: Final = "__lancelet_source"


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
    adds_columns = parser.take("WITH", "SCHEMA", "EVOLUTION")
    parser.take("INTO")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser, reference, ROW_NAMES)
    snapshot = target.open()
    alias = alias_of(parser, reference, ("USING",))
    parser.need("USING")
    plan, own = merge_source(session, parser)
    frame = plan.run()
    parser.need("ON")
    condition = parser.text_until(("WHEN", "MATCHED"), ("WHEN", "NOT"))
    new = _new_columns(parser, frame, snapshot) if adds_columns else []
    schema = StructType([*target_schema(snapshot), *new])
    clauses = []
    while parser.token is not None:
        clauses.append(_clause(parser, target, schema, alias))
    if not clauses:
        parser.fail("expected WHEN")
    if own.lower() == alias.lower():
        parser.source.fail(
            "the source has the same name as the table; use an alias", reference.start
        )
    made = _Merge(target, frame, own, alias, condition, tuple(clauses), adds_columns)
    made.check(schema)
    made = replace(made, clauses=tuple(made.of_side(each, schema) for each in clauses))
    if new:
        add_new_columns(target.table, StructType(new), target.settings)
    made = made.with_small_source(snapshot, made.keys(schema))
    return counted(session, made.run(schema, made.changed))


def _new_columns(
    parser: StatementParser, frame: DataFrame, snapshot: Snapshot
) -> list[StructField]:
    """Return the columns of the source that the clauses add to the table."""
    existing = {each.lower() for each in snapshot.schema.names}
    tokens = parser.source.tokens[parser.number :]
    names = {each.text.lower() for each in tokens}
    has_star = any(each.kind == "STAR" for each in tokens)
    return [
        StructField(each.name, each.dataType, nullable=True, metadata=each.metadata)
        for each in frame.schema
        if each.name.lower() not in existing and (has_star or each.name.lower() in names)
    ]


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
            target.parser.source.fail(
                "addresses must be those of the latest version; remove AS OF", start
            )
    frame = plan.run()
    source_columns = {each.lower(): each for each in frame.columns}
    missing = [each for each in ["_rowaddr", *names] if each.lower() not in source_columns]
    if missing:
        near = similar_names(missing[0], list(source_columns))
        message = f"the source must have `_rowaddr` and the named columns{near}"
        target.parser.source.fail(message, start, missing=missing)
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
            target.column(schema, without_alias(name, alias), position)
            for name in parser.names("a column")
        ]
        parser.need("VALUES")
        parser.need("L_PAREN")
        values = [value_text(parser, ("COMMA",), ("R_PAREN",))]
        while parser.take("COMMA"):
            values.append(value_text(parser, ("COMMA",), ("R_PAREN",)))
        parser.need("R_PAREN")
        if len(values) != len(names) or len(set(names)) < len(names):
            parser.source.fail("INSERT needs one value per column", position, columns=names)
        return _Clause(case, Action.INSERT, condition, dict(zip(names, values, strict=True)), start)
    if not parser.take("UPDATE"):
        parser.fail("expected UPDATE or DELETE")
    parser.need("SET")
    if case == "matched" and parser.take("STAR"):
        return _Clause(case, Action.UPDATE, condition, None, start)
    given = assignments(parser, target, schema, alias, *stops)
    return _Clause(case, Action.UPDATE, condition, given, start)


@dataclass(frozen=True, slots=True)
class _Merge:
    target: Target
    frame: DataFrame
    source_alias: str
    alias: str
    condition: str
    clauses: tuple[_Clause, ...]
    adds_columns: bool = False
    small: SmallSource | None = None

    def with_small_source(self, snapshot: Snapshot, keys: Keys) -> _Merge:
        """Return the merge of rows that the driver has read, if they are few."""
        if any(each.case == "target" for each in self.clauses):
            return self  # rows of the table without a match are needed too
        small = SmallSource.read(self.frame, snapshot, keys)
        return self if small is None else replace(self, frame=small.frame, small=small)

    def check(self, schema: StructType) -> None:
        """Raise for unreachable clauses, and for `*` if the source lacks columns."""
        for number, clause in enumerate(self.clauses):
            if any(
                each.case == clause.case and each.condition is None
                for each in self.clauses[:number]
            ):
                self.target.parser.source.fail(
                    "unreachable clause: an earlier clause applies to all its rows", clause.start
                )
            if clause.values is None and not self.adds_columns:
                source_columns = {each.lower() for each in self.frame.columns}
                missing = [
                    each for each in schema.fieldNames() if each.lower() not in source_columns
                ]
                if missing:
                    self.target.parser.source.fail(
                        "`*` requires all columns of the table in the source; name the columns "
                        "to set, or use MERGE WITH SCHEMA EVOLUTION",
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
                    self.target.parser.source.fail(
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
        names = [*schema.fieldNames(), ROW_ADDRESS]
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
                        (find_name(names, side.name), find_name(self.frame.columns, other.name))
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
            matched=Matched(self.frame, keys, only_deletes, self.small) if matching else None,
        )

    def changed(self, snapshot: Snapshot) -> DataFrame:
        """Return the changed rows: action, row address, and new values."""
        schema = target_schema(snapshot)
        for clause in self.clauses:
            if clause.action is Action.UPDATE:
                refuse_blobs(snapshot, clause.values)
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
            f"{TARGET} AS {alias} ON {self.condition}"
        )
        marked_source = self.frame.withColumn(_SOURCE_MARKER, F.lit(1))
        required = None
        if self.small is not None:
            required = self.small.filter_of(snapshot, self.keys(schema))
        joined = self.target.query(snapshot, text, required, **{_SOURCE: marked_source})
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
        columns = [self._stored(stored_as[name], values[name], types) for name in values]
        chosen = joined.select(actions.alias(ACTION), F.col(ADDRESS), *columns)
        return chosen.sortWithinPartitions(ACTION)

    def _value(self, clause: _Clause, name: str) -> str | None:
        if clause.values is None:
            if name.lower() in {each.lower() for each in self.frame.columns}:
                return f"{quoted(self.source_alias)}.{quoted(name)}"
        elif name in clause.values:
            return clause.values[name]
        if clause.action is Action.UPDATE:
            return f"{quoted(self.alias)}.{quoted(name)}"
        return None

    def _stored(
        self, field: StructField, labels: Sequence[tuple[int, str]], types: Mapping[str, DataType]
    ) -> Column:
        value = F.lit(None).cast(field.dataType)
        for number, label in labels:
            start = self.clauses[number].start
            made = self.target.fit(F.col(quoted(label)), types[label], field, start, by_name=True)
            value = F.when(F.col(_CLAUSE) == number, made).otherwise(value)
        return value.alias(field.name)

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
