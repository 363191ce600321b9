"""Statements for materialised views.

    CREATE MATERIALIZED VIEW lake.towns AS
        SELECT city, count(*) AS people FROM lake.people GROUP BY city
    CREATE MATERIALIZED VIEW lake.labels AS
        SELECT s.id, p.name FROM lake.sales AS s JOIN lake.products AS p ON s.product = p.id
    REFRESH MATERIALIZED VIEW lake.towns

The query has the form and the expressions of `LanceDataset.create_view`. Tasks compute
the rows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from lancelet.dataset.dataset import LanceDataset, open_view
from lancelet.dataset.views import WrittenView, create_view
from lancelet.errors import AlreadyExistsError, ExpressionError
from lancelet.jobs.engine import Job
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.engine import SparkEngine
from lancelet.spark.files import latest_of
from lancelet.spark.frames import quoted
from lancelet.spark.sql.definitions import locate_new, new_table, remove_unwritten
from lancelet.spark.sql.names import Reference, locate
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.target import Target, empty_result
from lancelet.spark.views import TaskRunner

_JOINS: Final = (("LEFT", "OUTER", "JOIN"), ("LEFT", "JOIN"), ("INNER", "JOIN"), ("JOIN",))
_CLAUSES: Final = (
    *_JOINS,
    *((each,) for each in ("ON", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "UNION")),
    *((each,) for each in ("RIGHT", "FULL", "CROSS", "USING")),
)
_REFRESHED: Final = (
    "kind string, begin long, end long, inserted long, updated long, deleted long, reason string"
)


def create(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE MATERIALIZED VIEW: create a table with the result of a query over one table."""
    parser.need("CREATE")
    if not parser.take("MATERIALIZED", "VIEW"):
        return None
    must_be_new = not parser.take("IF", "NOT", "EXISTS")
    reference = parser.table()
    if reference is None:
        parser.fail("expected the name of a Lance table")
    parser.need("AS")
    start = parser.position
    columns = parser.text_until(("FROM",))
    parser.need("FROM")
    origin = parser.need_table()
    if origin.is_pinned:
        parser.source.fail("a view shows the latest version; remove AS OF", origin.start)
    source_table = locate(session.spark, parser.source, origin)
    rest, tables = _joins(session, parser, origin)
    query = f"{columns} FROM source {rest}"
    table, named = locate_new(session, parser.source, reference)
    if table is not None and latest_of(table) is not None:
        if must_be_new:
            raise AlreadyExistsError("the table exists already", table=reference.title)
        return empty_result(session)
    source = _opened(source_table)
    declared = table is None
    if table is None:
        assert named is not None
        table = new_table(named, reference)
    try:
        written = WrittenView(table.uri, query, tables, dict(table.options))
        create_view(LanceDataset, source.handle, written, _runner(session))
    except BaseException as error:
        if declared and named is not None:
            remove_unwritten(named, table, error)
        if isinstance(error, ExpressionError):
            parser.source.fail(error.message.split("\n", maxsplit=1)[0], start)
        raise
    return empty_result(session)


def refresh(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run REFRESH MATERIALIZED VIEW: show the latest version of the source in a view."""
    parser.need("REFRESH")
    if not parser.take("MATERIALIZED", "VIEW"):
        return None
    reference = parser.need_table()
    is_full = parser.take("FULL")
    parser.end()
    target = Target.of(session, parser, reference)
    view = open_view(target.table.uri, storage_options=dict(target.table.options))
    plan = view.refresh_in_tasks(_runner(session), {}, full=bool(is_full))
    row = plan.kind, plan.begin, plan.end, plan.inserted, plan.updated, plan.deleted, plan.reason
    return session.spark.createDataFrame([row], _REFRESHED)


def _runner(session: Session) -> TaskRunner:
    return TaskRunner(Job(SparkEngine(session.spark)))


def _opened(table: TableRef) -> LanceDataset:
    dataset = LanceDataset(table.uri, storage_options=dict(table.options))
    return dataset if table.branch is None else dataset.checkout_version((table.branch, None))


def _joins(
    session: Session, parser: StatementParser, origin: Reference
) -> tuple[str, dict[str, LanceDataset]]:
    """Parse the text after the source; return it with names of joined tables, and the tables."""
    tables = dict[str, LanceDataset]()
    parts = [_alias(parser, origin)]
    while (join := _join_of(parser)) is not None:
        reference = parser.need_table()
        if reference.is_pinned:
            parser.source.fail("a view shows the latest version; remove AS OF", reference.start)
        name = f"t{len(tables) + 1}"
        tables[name] = _opened(locate(session.spark, parser.source, reference))
        parts.append(f"{join} {name} {_alias(parser, reference)}")
        parts.append(_condition(parser))
    parts.append(parser.source.text[parser.position :])
    return " ".join(parts), tables


def _condition(parser: StatementParser) -> str:
    """Parse the condition of a join."""
    parser.need("ON")
    return f"ON {parser.text_until(*_CLAUSES)}"


def _join_of(parser: StatementParser) -> str | None:
    """Parse the keywords of a join."""
    for keywords in _JOINS:
        if parser.take(*keywords):
            return " ".join(keywords)
    return None


def _alias(parser: StatementParser, reference: Reference) -> str:
    """Return the name of a table in expressions, by default the last part of its name."""
    keywords = [word for phrase in _CLAUSES for word in phrase[:1]]
    token = parser.token
    if parser.take("AS") or (token is not None and not any(parser.at(each) for each in keywords)):
        return f"AS {quoted(parser.name('the name of a table'))}"
    return "" if reference.is_path else f"AS {quoted(reference.parts[-1])}"
