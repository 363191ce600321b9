"""Statements that change rows: INSERT, UPDATE, DELETE and TRUNCATE; `merge_rows` has MERGE.

    UPDATE lance.`/data/t` SET n = n + 1 WHERE id IN (SELECT id FROM late)

    SELECT 0 AS action, _rowaddr AS address, id, n + 1 AS n FROM t WHERE id IN (...)

Spark computes conditions and values: the statement becomes a query for the changed rows, and tasks
write its result as one version. Values are cast by Spark's store assignment rules; a value that
does not fit the column type is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from lancelet.spark import change
from lancelet.spark.frames import literal, quoted
from lancelet.spark.merge_tasks import ACTION, ADDRESS, Action
from lancelet.spark.merging import change_rows
from lancelet.spark.options import ROW_NAMES
from lancelet.spark.running import begin
from lancelet.spark.sql.names import Reference
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, edited
from lancelet.spark.sql.target import TARGET, Target, counts, exact_filter
from lancelet.spark.write_schema import refuse_blobs, target_schema
from lancelet.spark.writing import write
from lancelet.table.snapshot import Snapshot

_QUERY: Final = (("SELECT",), ("WITH",), ("VALUES",), ("FROM",), ("TABLE",), ("MAP",), ("REDUCE",))


def insert(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run INSERT INTO or INSERT OVERWRITE."""
    parser.need("INSERT")
    overwrites = parser.take_any("INTO", "OVERWRITE") == "OVERWRITE"
    parser.take("TABLE")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser, reference, ROW_NAMES)
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
    rows = target.fit_frame(frame.toDF(*names), snapshot, start, by_name=by_name)
    done = write(
        rows,
        target.table.uri,
        mode="append" if where is None else "replace",
        where=where,
        options=reference.select_options(storage=False),
        **target.running,
    )
    return counts(session, inserted=done.num_rows)


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
    target = Target.of(session, parser, reference)
    snapshot = target.open()
    alias = alias_of(parser, reference, ("WHERE",))
    condition = parser.text_until() if parser.take("WHERE") else "true"
    parser.end()
    where = exact_filter(session, snapshot, condition, alias)
    if where is not None:
        done = change.delete(target.table.uri, where, **target.running)
        return counts(session, deleted=done.num_rows)
    job, _ = begin(target.table.uri, target.running)
    text = (
        f"SELECT {int(Action.DELETE)} AS {ACTION}, {quoted(alias)}._rowaddr AS {ADDRESS} "
        f"FROM {TARGET} AS {quoted(alias)} WHERE {condition}"
    )
    found = change_rows(job, target.table, lambda snapshot: target.query(snapshot, text))
    return counts(session, deleted=found.counts.deleted)


def truncate(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run TRUNCATE TABLE."""
    parser.need("TRUNCATE", "TABLE")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser, reference)
    parser.end()
    done = change.delete(target.table.uri, "true", **target.running)
    return counts(session, deleted=done.num_rows)


def update(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run UPDATE."""
    parser.need("UPDATE")
    reference = parser.table(by_view=True)
    if reference is None:
        return None
    target = Target.of(session, parser, reference, ROW_NAMES)
    schema = target_schema(target.open())
    alias = alias_of(parser, reference, ("SET",))
    parser.need("SET")
    start = parser.position
    values = assignments(parser, target, schema, alias, ("WHERE",))
    condition = parser.text_until() if parser.take("WHERE") else "true"
    parser.end()

    def changed(snapshot: Snapshot) -> DataFrame:
        columns = target_schema(snapshot)
        refuse_blobs(snapshot, values)
        shown = [
            f"({values[name]}) AS {quoted(name)}"
            if name in values
            else f"{quoted(alias)}.{quoted(name)} AS {quoted(name)}"
            for name in columns.fieldNames()
        ]
        text = (
            f"SELECT {int(Action.UPDATE)} AS {ACTION}, {quoted(alias)}._rowaddr AS {ADDRESS}, "
            f"{', '.join(shown)} FROM {TARGET} AS {quoted(alias)} WHERE {condition}"
        )
        found = target.query(snapshot, text)
        return target.fit_frame(found, snapshot, start, (ACTION, ADDRESS), by_name=True)

    job, _ = begin(target.table.uri, target.running)
    found = change_rows(job, target.table, changed, settings=target.settings)
    return counts(session, updated=found.counts.updated)


def assignments(
    parser: StatementParser, target: Target, schema: StructType, alias: str, *stops: tuple[str, ...]
) -> dict[str, str]:
    """Parse `a = x, b = y`; return the values by column."""
    found: dict[str, str] = {}
    inner: dict[str, dict[str, str]] = {}
    while True:
        start = parser.position
        path = without_alias(parser.path("a column"), alias)
        whole, _, rest = path.partition(".")
        is_field = rest and path.lower() not in {each.lower() for each in schema.fieldNames()}
        name = target.column(schema, whole if is_field else path, start)
        if not parser.take("EQ"):
            parser.fail("expected =")
        fields = inner.setdefault(name, {}) if is_field else None
        if name in found or (name in inner and (fields is None or rest.lower() in fields)):
            parser.source.fail(f"`{path}` is set twice", start)
        value = value_text(parser, ("COMMA",), *stops)
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


def value_text(parser: StatementParser, *stops: Sequence[str]) -> str:
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


def without_alias(path: str, alias: str) -> str:
    """Return a column path without the alias of its table."""
    return path[len(alias) + 1 :] if path.lower().startswith(f"{alias.lower()}.") else path


def alias_of(parser: StatementParser, reference: Reference, stop: tuple[str, ...]) -> str:
    """Parse the alias of the changed table, by default its name."""
    has_as = parser.take("AS")
    if has_as or (parser.token is not None and not parser.at(*stop)):
        return parser.name("a name")
    return reference.own
