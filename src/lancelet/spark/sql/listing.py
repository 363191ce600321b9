"""DESCRIBE, SHOW and EXPLAIN statements."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import DataFrame

from lancelet.spark.frames import literal, quoted
from lancelet.spark.functions import describe_files, describe_versions
from lancelet.spark.options import VECTOR_PREFIX
from lancelet.spark.reader import pinned, plan_tasks
from lancelet.spark.sql.analysis import Use
from lancelet.spark.sql.names import Reference, read_options
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import Plan, plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source
from lancelet.spark.sql.target import Target
from lancelet.spark.types import DIMENSION_KEY, LENGTH_KEY, spark_schema

_MODES: Final = ("EXTENDED", "FORMATTED", "CODEGEN", "COST")


def describe(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DESCRIBE [TABLE] [EXTENDED | FORMATTED | HISTORY | DETAIL]."""
    if not parser.take_any("DESCRIBE", "DESC"):
        return None
    parser.take("TABLE")
    kind = parser.take_any("EXTENDED", "FORMATTED", "HISTORY", "DETAIL")
    reference = parser.table()
    if reference is None:
        return None
    parser.end()
    if kind == "HISTORY":
        return _versions(session, parser, reference)
    options = read_options(session.spark, parser.source, reference)
    snapshot = pinned(options)
    schema = spark_schema(snapshot.schema.to_arrow())
    rows = [
        (
            field.name,
            field.metadata.get(LENGTH_KEY) or field.dataType.simpleString(),
            None if field.nullable else "NOT NULL",
        )
        for field in schema
    ]
    if kind is not None:
        manifest = snapshot.manifest
        facts = {
            "Name": reference.title,
            "Location": options.table.uri,
            "Version": snapshot.version,
            "Rows": snapshot.num_rows,
            "Fragments": len(snapshot.fragments),
            "File version": manifest.data_version.value if manifest.data_version else "",
            "Last commit": manifest.timestamp.isoformat(),
        }
        if kind == "DETAIL":
            rows = []
        else:
            rows += [("", "", None), ("# Detailed Table Information", "", None)]
        rows += [(name, str(value), None) for name, value in facts.items()]
        rows += [(f"Property {name}", value, None) for name, value in manifest.config.items()]
    return session.spark.createDataFrame(rows, "col_name string, data_type string, comment string")


def show(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run SHOW VERSIONS, BRANCHES, TAGS, INDEXES, FILES, BASES, COLUMNS and TBLPROPERTIES."""
    parser.need("SHOW")
    if parser.token is None:
        return None
    kind = parser.name("what to show").upper()
    if kind == "CREATE" and parser.take("TABLE"):
        return _show_create(session, parser)
    parser.take_any("IN", "FROM", "ON", "OF")
    parser.take("TABLE")
    reference = parser.table()
    if reference is None:
        return None
    parser.end()
    if kind in {"VERSIONS", "HISTORY"}:
        return _versions(session, parser, reference)
    if kind == "COLUMNS":
        snapshot = pinned(read_options(session.spark, parser.source, reference))
        rows: list[Any] = [(name,) for name in snapshot.schema.names]
        return session.spark.createDataFrame(rows, "col_name string")
    if kind == "FILES":
        snapshot = pinned(read_options(session.spark, parser.source, reference))
        return _frame(session, *describe_files(snapshot))
    dataset = Target.of(session, parser, reference).dataset()
    if kind == "TBLPROPERTIES":
        rows = sorted(dataset.config().items())
        return session.spark.createDataFrame(rows, "key string, value string")
    if kind == "BASES":
        rows = [(base.name, base.path) for base in dataset.base_paths().values()]
        return session.spark.createDataFrame(rows, "name string, path string")
    if kind == "TAGS":
        rows = [
            (name, tag["version"], tag.get("branch")) for name, tag in dataset.tags.list().items()
        ]
        return session.spark.createDataFrame(rows, "tag string, version long, branch string")
    if kind == "BRANCHES":
        rows = [
            (name, branch["parent_branch"], branch["parent_version"])
            for name, branch in dataset.branches.list().items()
        ]
        return session.spark.createDataFrame(
            rows, "branch string, parent_branch string, parent_version long"
        )
    if kind in {"INDEXES", "INDICES", "INDEX"}:
        rows = [
            (
                each.name,
                each.index_type,
                each.field_names,
                each.num_rows_indexed,
                dataset.count_rows() - each.num_rows_indexed,
                len(each.segments),
            )
            for each in dataset.describe_indices()
        ]
        return session.spark.createDataFrame(
            rows,
            "name string, kind string, columns array<string>, rows_indexed long, "
            "rows_unindexed long, segments long",
        )
    parser.number = 1
    return parser.fail(
        "expected VERSIONS, TAGS, BRANCHES, INDEXES, FILES, BASES, COLUMNS or TBLPROPERTIES"
    )


def _show_create(session: Session, parser: StatementParser) -> DataFrame | None:
    """Return a statement that creates a table with the same columns and properties."""
    reference = parser.table()
    if reference is None:
        return None
    parser.end()
    snapshot = pinned(read_options(session.spark, parser.source, reference))
    columns, properties = [], dict(snapshot.manifest.config)
    for field in spark_schema(snapshot.schema.to_arrow()):
        shown = field.metadata.get(LENGTH_KEY) or field.dataType.simpleString()
        columns.append(
            f"  {quoted(field.name)} {shown.upper()}{'' if field.nullable else ' NOT NULL'}"
        )
        size = field.metadata.get(DIMENSION_KEY)
        if size is not None:
            properties[f"{VECTOR_PREFIX}{field.name}"] = str(size)
    if snapshot.manifest.uses_stable_row_ids:
        properties["enable_stable_row_ids"] = "true"
    name = ".".join([reference.parts[0], *map(quoted, reference.parts[1:])])
    text = f"CREATE TABLE {name} (\n" + ",\n".join(columns) + "\n)\nUSING lance"
    if properties:
        given = [f"  {literal(key)} = {literal(value)}" for key, value in properties.items()]
        text += "\nTBLPROPERTIES (\n" + ",\n".join(given) + "\n)"
    return session.spark.createDataFrame([(text,)], "createtab_stmt string")


def _versions(session: Session, parser: StatementParser, reference: Reference) -> DataFrame:
    snapshot = pinned(read_options(session.spark, parser.source, reference))
    return _frame(session, *describe_versions(snapshot.location))


def _frame(session: Session, schema: Any, rows: list[Any]) -> DataFrame:
    return session.spark.createDataFrame(rows, spark_schema(schema))


def explain(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run EXPLAIN for a query over Lance tables: the reads of each table, and Spark's plan."""
    parser.need("EXPLAIN")
    mode = parser.take_any(*_MODES)
    text = parser.source.text[parser.position :] if parser.token is not None else ""
    plan = plan_query(session, Source(text, parser.source))
    if not plan.reads:
        return None
    shown = plan.run(f"EXPLAIN {mode or ''} ").collect()[0][0]
    lines = [*explain_reads(plan), "", shown]
    return session.spark.createDataFrame([("\n".join(lines),)], "plan string")


def _keys(plan: Plan, use: Use) -> list[str]:
    titles = {
        name: read.reference.title if read.reference else ""
        for name, read in zip(plan.query.names, plan.reads, strict=True)
    }
    return [f"{each.column} of {titles[each.table]}" for each in use.same]


def explain_reads(plan: Plan) -> list[str]:
    """Return a paragraph for each table in a query."""
    lines = ["== Lance tables =="]
    for read in plan.reads:
        opened, use, aggregation = read.opened, read.use, read.aggregation
        columns = use.columns if aggregation is None else aggregation.columns
        tasks = plan_tasks(opened.snapshot, opened.options(use), columns)
        lines += [
            f"{read.reference.title if read.reference else ''}, version {opened.snapshot.version}",
            f"  columns: {', '.join(columns) or 'none'}",
            f"  filter: {use.filter or 'none'}",
            f"  keys of others: {', '.join(_keys(plan, use)) or 'none'}",
            f"  limit: {use.limit if use.limit is not None else 'none'}",
            f"  rows: {opened.num_rows}, of {len(tasks)} tasks at most",
            f"  bytes: {opened.bytes_read(columns)} at most",
            f"  aggregates: {'in Spark' if aggregation is None else 'where the rows are read'}",
        ]
    return lines
