"""Statements for materialised views.

    CREATE MATERIALIZED VIEW lake.towns AS
        SELECT city, count(*) AS people FROM lake.people GROUP BY city
    REFRESH MATERIALIZED VIEW lake.towns

The query has the form and the expressions of `LanceDataset.create_view`.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Final

from pyspark.sql import DataFrame

from lancelet.dataset.dataset import LanceDataset, open_view
from lancelet.errors import AlreadyExistsError, ExpressionError
from lancelet.spark.files import latest_of
from lancelet.spark.sql.definitions import locate_new, new_table, remove_name
from lancelet.spark.sql.names import locate
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.target import Target, empty_result

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
    query = f"{columns} FROM source {parser.source.text[parser.position :]}"
    source_table = locate(session.spark, parser.source, origin)
    table, named = locate_new(session, parser.source, reference)
    if table is not None and latest_of(table) is not None:
        if must_be_new:
            raise AlreadyExistsError("the table exists already", table=reference.title)
        return empty_result(session)
    source = LanceDataset(source_table.uri, storage_options=dict(source_table.options))
    if source_table.branch is not None:
        source = source.checkout_version((source_table.branch, None))
    declared = table is None
    if table is None:
        assert named is not None
        table = new_table(named, reference)
    try:
        source.create_view(table.uri, query, storage_options=dict(table.options))
    except BaseException as error:
        if declared and named is not None:
            remove_name(named)
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
    plan = view.refresh(full=bool(is_full))
    return session.spark.createDataFrame([astuple(plan)], _REFRESHED)
