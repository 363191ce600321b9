"""Statements about whole tables: CREATE, REPLACE, CLONE and DROP TABLE, and temporary views.

CREATE TABLE lance.`/data/t` (id BIGINT NOT NULL, v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v' = 4)
CREATE TABLE lake.db.t AS SELECT * FROM orders
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from lancelet.dataset.dataset import LanceDataset, open_view
from lancelet.dataset.named_table import NamedTable, namespace_module
from lancelet.errors import (
    AlreadyExistsError,
    CommitOutcomeUnknownError,
    NotFoundError,
    StorageError,
)
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.files import latest_of
from lancelet.spark.frames import quoted
from lancelet.spark.options import (
    DIMENSION_SUFFIX,
    ENCODING_PREFIX,
    STORAGE_PREFIX,
    VECTOR_PREFIX,
    WRITE_NAMES,
)
from lancelet.spark.reader import pinned
from lancelet.spark.sql.column_definitions import column_definitions
from lancelet.spark.sql.names import (
    PATHS,
    Reference,
    is_missing,
    locate,
    named_table,
    read_options,
    record_view,
)
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source
from lancelet.spark.sql.target import empty_result
from lancelet.spark.writing import write

_NO_PARTITIONS: Final = (
    "Lance tables have no partitions or buckets: zone statistics prune rows, and CREATE INDEX "
    "finds them; omit this clause"
)


def create(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE [OR REPLACE] TABLE and REPLACE TABLE."""
    replaces = parser.take("REPLACE", "TABLE")
    if not replaces:
        parser.need("CREATE")
        replaces = parser.take("OR", "REPLACE")
        if not parser.take("TABLE"):
            return None
    must_be_new = not parser.take("IF", "NOT", "EXISTS")
    reference = parser.table()
    if reference is None:
        return None
    if reference.is_pinned or reference.branch is not None:
        parser.source.fail("a table is made without a version or branch", reference.start)
    kind = parser.take_any("SHALLOW", "DEEP")
    if kind is not None:
        parser.need("CLONE")
        return _clone(session, parser, reference, kind == "SHALLOW", (replaces, must_be_new))
    schema: StructType | None = None
    if parser.at("L_PAREN"):
        schema = column_definitions(session, parser)
    properties: dict[str, str] = {}
    message = None
    while not parser.at("AS") and parser.token is not None:
        if parser.take("USING"):
            start = parser.position
            if parser.name("a format").lower() != "lance":
                parser.source.fail("the format of a table in this catalog must be lance", start)
        elif parser.take_any("TBLPROPERTIES", "OPTIONS"):
            properties |= parser.properties()
        elif parser.take("COMMENT"):
            message = parser.string("a comment")
        elif parser.at("LOCATION"):
            parser.fail("the name of the table is its path: CREATE TABLE lance.`/path` ...")
        elif parser.token.clause in {"PARTITIONED", "CLUSTERED", "CLUSTER"}:
            parser.fail(_NO_PARTITIONS)
        else:
            parser.fail("expected AS, USING, TBLPROPERTIES or COMMENT")
    if parser.take("AS"):
        if schema is not None:
            parser.fail("the query determines the columns; omit the column list")
        text = parser.source.text[parser.position :]
        frame = plan_query(session, Source(text, parser.source)).run()
    elif schema is None:
        parser.fail("expected columns or AS and a query")
    else:
        frame = session.spark.createDataFrame([], schema)
    properties |= dict(reference.options)
    options = {name: value for name, value in properties.items() if _is_option(name)}
    config = {name: value for name, value in properties.items() if name not in options}
    storage = {name.lower(): value for name, value in options.items() if _is_storage(name)}
    options = {name: value for name, value in options.items() if not _is_storage(name)}
    reference = replace(reference, options=tuple(storage.items()))
    return _make(
        session, parser, reference, frame, (replaces, must_be_new), options, config, message
    )


def _is_option(name: str) -> bool:
    low = name.lower()
    prefixes = (VECTOR_PREFIX, ENCODING_PREFIX, STORAGE_PREFIX)
    return low in WRITE_NAMES or low.startswith(prefixes) or low.endswith(DIMENSION_SUFFIX)


def _is_storage(name: str) -> bool:
    return name.lower().startswith(STORAGE_PREFIX)


def _make(
    session: Session,
    parser: StatementParser,
    reference: Reference,
    frame: DataFrame,
    how: tuple[bool, bool],
    options: Mapping[str, str],
    config: Mapping[str, str],
    message: str | None,
) -> DataFrame:
    replaces, must_be_new = how
    table, named = locate_new(session, parser.source, reference)
    latest = None if table is None else latest_of(table)
    if latest is not None and not replaces:
        if must_be_new:
            raise AlreadyExistsError("the table exists already", table=reference.title)
        return empty_result(session)
    declared = table is None and named is not None
    if table is None:
        assert named is not None
        table = new_table(named, reference)
    try:
        write(
            frame,
            table.uri,
            mode="create" if latest is None else "overwrite",
            message=message,
            options=dict(options),
            config=config,
            spark=session.spark,
            storage_options=dict(table.options),
        )
    except BaseException as error:
        if declared and named is not None:
            remove_unwritten(named, table, error)
        raise
    return empty_result(session)


def new_table(named: NamedTable, reference: Reference) -> TableRef:
    """Reserve the name of a new table and return its location."""
    uri = named.uri_to_write(creates=True)
    return TableRef.of(uri, {**named.storage_options(), **reference.select_options(storage=True)})


def remove_unwritten(named: NamedTable, table: TableRef, error: BaseException) -> None:
    """Remove the name of a table that could not be written.

    The name remains if the table may have been written, by this statement or another program.
    """
    if isinstance(error, CommitOutcomeUnknownError):
        return
    try:
        if latest_of(table) is not None:
            return
    except StorageError:
        return
    named.client.deregister_table(
        namespace_module().DeregisterTableRequest(id=list(named.table_id))
    )


def locate_new(
    session: Session, source: Source, reference: Reference
) -> tuple[TableRef | None, NamedTable | None]:
    """Return the location of a table, or the namespace entry of a name without a table."""
    if reference.is_path:
        return locate(session.spark, source, reference), None
    named = named_table(session.spark, source, reference)
    try:
        uri, options, _ = named.opened(None)
    except Exception as error:
        if is_missing(error):
            return None, named
        raise
    return TableRef.of(uri, {**options, **reference.select_options(storage=True)}), named


def _clone(
    session: Session,
    parser: StatementParser,
    reference: Reference,
    is_shallow: bool,
    how: tuple[bool, bool],
) -> DataFrame:
    replaces, must_be_new = how
    origin = parser.need_table()
    parser.end()
    table, named = locate_new(session, parser.source, reference)
    source_table = locate(session.spark, parser.source, origin)
    if table is not None and latest_of(table) is not None:
        if replaces and is_shallow:
            parser.source.fail(
                "a shallow clone cannot replace a table; use a deep clone, or drop the table first",
                reference.start,
            )
        if replaces:
            return _replace_by_copy(session, parser, origin, table)
        if not must_be_new:
            return empty_result(session)
        raise AlreadyExistsError("the table exists already", table=reference.title)
    dataset = LanceDataset(source_table.uri, storage_options=dict(source_table.options))
    version: Any = origin.version
    if version is not None and version.isdigit():
        version = int(version)
    if source_table.branch is not None:
        version = (source_table.branch, version)
    if table is None:
        assert named is not None
        table = new_table(named, reference)
    run = dataset.shallow_clone if is_shallow else dataset.deep_clone
    run(table.uri, version, dict(table.options) or None)
    return empty_result(session)


def _replace_by_copy(
    session: Session, parser: StatementParser, origin: Reference, table: TableRef
) -> DataFrame:
    """Replace the rows, columns and properties of a table by those of another, as one version."""
    snapshot = pinned(read_options(session.spark, parser.source, origin))
    text = parser.source.text[origin.start : origin.stop]
    write(
        plan_query(session, Source(f"SELECT * FROM {text}")).run(),
        table.uri,
        mode="overwrite",
        config=dict(snapshot.manifest.config),
        spark=session.spark,
        storage_options=dict(table.options),
    )
    return empty_result(session)


def drop(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DROP TABLE and DROP MATERIALIZED VIEW."""
    parser.need("DROP")
    is_view = parser.take("MATERIALIZED", "VIEW")
    if not is_view and not parser.take("TABLE"):
        return None
    may_be_missing = parser.take("IF", "EXISTS")
    reference = parser.table()
    if reference is None:
        return None
    if reference.is_pinned or reference.branch is not None:
        parser.source.fail(
            "DROP TABLE drops all versions and branches; omit the suffix", reference.start
        )
    parser.take("PURGE")
    parser.end()
    if is_view and not _is_view(session, parser, reference, may_be_missing=bool(may_be_missing)):
        return empty_result(session)
    if reference.is_path:
        table = locate(session.spark, parser.source, reference)
        LanceDataset.drop(table.uri, dict(table.options), ignore_not_found=may_be_missing)
        return empty_result(session)
    named = named_table(session.spark, parser.source, reference)
    try:
        named.client.drop_table(namespace_module().DropTableRequest(id=list(named.table_id)))
    except Exception as error:
        if not is_missing(error):
            raise
        if may_be_missing:
            return empty_result(session)
        raise NotFoundError("the table does not exist", table=reference.title) from error
    return empty_result(session)


def _is_view(
    session: Session, parser: StatementParser, reference: Reference, *, may_be_missing: bool
) -> bool:
    """Return whether a materialised view exists; raise if the table is none."""
    table, _ = locate_new(session, parser.source, reference)
    if table is None or latest_of(table) is None:
        if may_be_missing:
            return False
        raise NotFoundError("the view does not exist", view=reference.title)
    open_view(table.uri, storage_options=dict(table.options))
    return True


def create_view(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE TEMPORARY VIEW over Lance tables, pinned to their current or specified versions.

    A view created with only a path always refers to the latest version.
    """
    parser.need("CREATE")
    replaces = parser.take("OR", "REPLACE")
    if not parser.take_any("TEMPORARY", "TEMP"):
        if parser.take("VIEW"):
            parser.take("IF", "NOT", "EXISTS")
            start = parser.position
            if parser.table() is not None:
                parser.source.fail(
                    "catalogs of Lance tables store no views; use CREATE TEMPORARY VIEW or CREATE "
                    "MATERIALIZED VIEW",
                    start,
                )
        return None
    if not parser.take("VIEW"):
        return None
    start = parser.position
    name = parser.name("a name")
    if parser.take("USING", "LANCE") and parser.take("OPTIONS"):
        given = {key.lower(): value for key, value in parser.properties().items()}
        parser.end()
        done = plan_query(session, parser.source).run()
        path = given.pop("path", "")
        if path and all(map(_is_storage, given)):
            made = Reference((PATHS, path), start, start, options=tuple(given.items()))
            record_view(session.spark, name, made)
        return done
    if not parser.take("AS"):
        return None
    text = parser.source.text[parser.position :]
    plan = plan_query(session, Source(text, parser.source))
    if not plan.reads:
        return None
    frame = plan.run()
    if replaces:
        frame.createOrReplaceTempView(name)
    else:
        frame.createTempView(name)
    return empty_result(session)


def cache(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CACHE TABLE name AS query: a temporary view with its rows in Spark's cache."""
    parser.need("CACHE")
    is_lazy = parser.take("LAZY")
    parser.need("TABLE")
    if parser.table() is not None:
        parser.fail("only a query can be cached: CACHE TABLE name AS SELECT * FROM ...")
    name = parser.path("a name")
    level: Any = StorageLevel.MEMORY_AND_DISK
    if parser.take("OPTIONS"):
        start = parser.position
        given = {key.lower(): value.upper() for key, value in parser.properties().items()}
        name_of_level = given.get("storagelevel", "MEMORY_AND_DISK")
        level = getattr(StorageLevel, name_of_level, None)
        if not isinstance(level, StorageLevel):
            parser.source.fail("unknown storage level", start, found=name_of_level)
    parser.take("AS")
    if parser.token is None:
        return None
    text = parser.source.text[parser.position :]
    plan = plan_query(session, Source(text, parser.source))
    if not plan.reads:
        return None
    frame = plan.run()
    frame.createTempView(name)
    session.spark.catalog.cacheTable(name, level)
    if not is_lazy:
        session.spark.table(quoted(name)).count()
    return empty_result(session)
