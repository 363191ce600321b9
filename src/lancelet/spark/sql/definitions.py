"""Statements about tables and their columns: CREATE, REPLACE, DROP and ALTER TABLE, namespaces.

CREATE TABLE lance.`/data/t` (id BIGINT NOT NULL, v ARRAY<FLOAT>) TBLPROPERTIES ('vector.v' = 4)
CREATE TABLE lake.db.t AS SELECT * FROM orders
ALTER TABLE lake.db.t ADD COLUMN total DOUBLE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lancelet.dataset.columns import AlterColumn
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.maintenance.settings import DatasetBasePath
from lancelet.dataset.named_table import NamedTable, namespace_module
from lancelet.errors import AlreadyExistsError, NotFoundError, similar_names
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.columns import join_columns
from lancelet.spark.files import latest_of
from lancelet.spark.merging import target_schema
from lancelet.spark.options import (
    DIMENSION_SUFFIX,
    ENCODING_PREFIX,
    STORAGE_PREFIX,
    VECTOR_PREFIX,
    WRITE_NAMES,
)
from lancelet.spark.sql.changes import (
    Target,
    counted,
    merge_source,
    update_columns,
    with_row_addresses,
)
from lancelet.spark.sql.names import (
    PATHS,
    Reference,
    attached,
    is_missing,
    locate,
    named_table,
    record_view,
)
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source
from lancelet.spark.types import arrow_field, has_collation, stored_field
from lancelet.spark.writing import write

_NAMESPACES: Final = ("NAMESPACE", "SCHEMA", "DATABASE")


def dataset_of(target: Target) -> LanceDataset:
    """Open the latest version of a table or branch as a dataset."""
    table = target.table
    dataset = LanceDataset(table.uri, storage_options=dict(table.options))
    return dataset if table.branch is None else dataset.checkout_version((table.branch, None))


def empty_result(session: Session) -> DataFrame:
    """Return the result of statements that have none."""
    return session.spark.createDataFrame([], "result string").select()


def create(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE [OR REPLACE] TABLE and REPLACE TABLE."""
    if parser.at("CREATE") and any(
        parser.source.tokens[1:2] and parser.source.tokens[1].word == each for each in _NAMESPACES
    ):
        return _create_namespace(session, parser)
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
        return _clone(session, parser, reference, is_shallow=kind == "SHALLOW")
    schema: StructType | None = None
    if parser.at("L_PAREN"):
        schema = _columns(session, parser)
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
        elif parser.at("PARTITIONED") or parser.at("CLUSTERED"):
            parser.fail("Lance tables have no partitions or buckets; omit this clause")
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


def _columns(session: Session, parser: StatementParser) -> StructType:
    start = parser.position
    parser.need("L_PAREN")
    text = parser.text_until(("R_PAREN",))
    parser.need("R_PAREN")
    try:
        found: StructType = session.spark.createDataFrame([], text).schema
    except PySparkException as error:
        # The positions in Spark's own message refer to a generated text.
        parser.source.fail(f"invalid column definitions: {str(error).splitlines()[0]}", start)
    return found


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
    table, named = _locate_new(session, parser.source, reference)
    latest = None if table is None else latest_of(table)
    if latest is not None and not replaces:
        if must_be_new:
            raise AlreadyExistsError("the table exists already", table=reference.title)
        return empty_result(session)
    declared = table is None and named is not None
    if table is None:
        assert named is not None
        table = _new_table(named, reference)
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
    except BaseException:
        if declared and named is not None:
            named.client.deregister_table(
                namespace_module().DeregisterTableRequest(id=list(named.table_id))
            )
        raise
    return empty_result(session)


def _new_table(named: NamedTable, reference: Reference) -> TableRef:
    """Reserve the name of a new table and return its location."""
    uri = named.uri_to_write(creates=True)
    return TableRef.of(uri, {**named.storage_options(), **reference.select_options(storage=True)})


def _locate_new(
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
    session: Session, parser: StatementParser, reference: Reference, *, is_shallow: bool
) -> DataFrame:
    origin = parser.need_table()
    parser.end()
    table, named = _locate_new(session, parser.source, reference)
    if table is not None and latest_of(table) is not None:
        raise AlreadyExistsError("the table exists already", table=reference.title)
    source_table = locate(session.spark, parser.source, origin)
    dataset = LanceDataset(source_table.uri, storage_options=dict(source_table.options))
    version: Any = origin.version
    if version is not None and version.isdigit():
        version = int(version)
    if source_table.branch is not None:
        version = (source_table.branch, version)
    if table is None:
        assert named is not None
        table = _new_table(named, reference)
    run = dataset.shallow_clone if is_shallow else dataset.deep_clone
    run(table.uri, version, dict(table.options) or None)
    return empty_result(session)


def drop(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DROP TABLE and DROP NAMESPACE."""
    parser.need("DROP")
    if parser.take_any(*_NAMESPACES):
        return _drop_namespace(session, parser)
    if not parser.take("TABLE"):
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


def namespace_parts(session: Session, parser: StatementParser) -> tuple[Any, list[str]] | None:
    """Read `lake` or `lake.db`, and return the namespace and the parts below it."""
    start = parser.number
    if parser.token is None:
        return None
    parts = parser.path("a namespace").split(".")
    client = attached(session.spark).get(parts[0].lower())
    if client is None:
        parser.number = start
        return None
    return client, parts[1:]


def _create_namespace(session: Session, parser: StatementParser) -> DataFrame | None:
    parser.need("CREATE")
    parser.take_any(*_NAMESPACES)
    may_be_there = parser.take("IF", "NOT", "EXISTS")
    found = namespace_parts(session, parser)
    if found is None:
        return None
    parser.end()
    client, parts = found
    names = namespace_module()
    request = names.CreateNamespaceRequest(id=parts, mode="ExistOk" if may_be_there else "Create")
    try:
        client.create_namespace(request)
    except Exception as error:
        if may_be_there and "AlreadyExists" in type(error).__name__:
            return empty_result(session)
        raise
    return empty_result(session)


def _drop_namespace(session: Session, parser: StatementParser) -> DataFrame | None:
    may_be_missing = parser.take("IF", "EXISTS")
    found = namespace_parts(session, parser)
    if found is None:
        return None
    behavior = "Cascade" if parser.take("CASCADE") else "Restrict"
    parser.take("RESTRICT")
    parser.end()
    client, parts = found
    request = namespace_module().DropNamespaceRequest(id=parts, behavior=behavior)
    try:
        client.drop_namespace(request)
    except Exception as error:
        if may_be_missing and is_missing(error):
            return empty_result(session)
        raise
    return empty_result(session)


def alter(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run ALTER TABLE."""
    parser.need("ALTER", "TABLE")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser.source, reference)
    if parser.take("ADD"):
        _add(session, parser, target)
    elif parser.take("UPDATE"):
        if not (parser.take("COLUMNS") or parser.take("COLUMN")):
            parser.fail("expected COLUMNS")
        start = parser.position
        base = target.open()
        schema = target_schema(base)
        names = [target.column(schema, name, start) for name in _list(parser)]
        parser.need("FROM")
        return counted(session, update_columns(session, parser, target, names, base))
    elif parser.take("DROP", "COLUMN") or parser.take("DROP", "COLUMNS"):
        may_be_missing = parser.take("IF", "EXISTS")
        names = parser.names("a column") if parser.at("L_PAREN") else _list(parser)
        dataset = dataset_of(target)
        paths = [_column(parser, dataset, each, fails=not may_be_missing) for each in names]
        parser.end()
        dataset.drop_columns([each for each in paths if each is not None])
    elif parser.take("RENAME", "COLUMN"):
        dataset = dataset_of(target)
        path = _column(parser, dataset, parser.path("a column"))
        assert path is not None
        parser.need("TO")
        new = parser.name("a name")
        parser.end()
        dataset.alter_columns({"path": path, "name": new})
    elif parser.take("RENAME", "TO"):
        _rename(session, parser, reference)
    elif parser.take("ALTER") or parser.take("CHANGE"):
        parser.take("COLUMN")
        _alter_column(session, parser, target)
    elif parser.take("SET", "TBLPROPERTIES"):
        values = parser.properties()
        parser.end()
        dataset_of(target).update_config(values)
    elif parser.take("UNSET", "TBLPROPERTIES"):
        parser.take("IF", "EXISTS")
        names = _texts(parser)
        parser.end()
        dataset_of(target).update_config(dict.fromkeys(names))
    else:
        parser.fail(
            "expected ADD, UPDATE COLUMNS, DROP COLUMN, RENAME, ALTER COLUMN, SET or UNSET "
            "TBLPROPERTIES"
        )
    return empty_result(session)


def _texts(parser: StatementParser) -> list[str]:
    parser.need("L_PAREN")
    found = [parser.string("a property")]
    while parser.take("COMMA"):
        found.append(parser.string("a property"))
    parser.need("R_PAREN")
    return found


def _list(parser: StatementParser) -> list[str]:
    found = [parser.path("a column")]
    while parser.take("COMMA"):
        found.append(parser.path("a column"))
    return found


def _column(
    parser: StatementParser, dataset: LanceDataset, path: str, *, fails: bool = True
) -> str | None:
    """Return the path of a column as the table spells it."""
    paths = _paths(dataset)
    found = [each for each in paths if each.lower() == path.lower()]
    if len(found) == 1:
        return found[0]
    if fails:
        number = parser.number - 1
        start = parser.source.tokens[number].start
        parser.source.fail(f"the table has no column `{path}`{similar_names(path, paths)}", start)
    return None


def _paths(dataset: LanceDataset) -> list[str]:
    schema = dataset.snapshot.schema
    return [schema.path_of(node.id) for node in schema.walk()]


def _add(session: Session, parser: StatementParser, target: Target) -> None:
    dataset = dataset_of(target)
    if parser.take("BASE"):
        name = parser.name("a name")
        parser.need("AT")
        base = DatasetBasePath(parser.string("a path"), name)
        parser.end()
        dataset.add_bases([base])
        return
    parser.take("COLUMNS") or parser.take("COLUMN")
    first = parser.number
    if not parser.at("L_PAREN"):
        names = _list(parser)
        if parser.take("FROM"):
            _add_from(session, parser, target, names)
            return
        parser.number = first
    if parser.at("L_PAREN"):
        schema = _columns(session, parser)
    else:
        start = parser.position
        text = parser.text_until()
        try:
            schema = session.spark.createDataFrame([], text).schema
        except PySparkException as error:
            message = str(error).splitlines()[0]
            parser.source.fail(f"invalid column definitions: {message}", start)
    parser.end()
    required = [each.name for each in schema if not each.nullable]
    if required and dataset.count_rows():
        parser.source.fail(
            "new columns of existing rows are null, so the column cannot be NOT NULL",
            0,
            columns=required,
        )
    dataset.add_columns([stored_field(each) for each in schema])


def _add_from(session: Session, parser: StatementParser, target: Target, names: list[str]) -> None:
    """Run ADD COLUMNS ... FROM a source with a `_rowaddr` column."""
    start = parser.position
    base = target.open()
    taken = {each.lower() for each in base.schema.names}
    there = [name for name in names if name.lower() in taken]
    if there:
        parser.source.fail("the column exists already; use UPDATE COLUMNS", start, columns=there)
    plan, _ = merge_source(session, parser)
    parser.end()
    frame = with_row_addresses(target, plan, names, base, start)
    join_columns(target.table.uri, frame, version=base.version, **target.running)


def _alter_column(session: Session, parser: StatementParser, target: Target) -> None:
    dataset = dataset_of(target)
    path = _column(parser, dataset, parser.path("a column"))
    assert path is not None
    change: AlterColumn = {"path": path}
    if parser.take("TYPE"):
        start = parser.position
        text = parser.text_until()
        try:
            field = session.spark.createDataFrame([], f"a {text}").schema[0]
        except PySparkException as error:
            parser.source.fail(f"invalid type: {str(error).splitlines()[0]}", start)
        before = dataset.snapshot.schema.field_by_path(path).to_arrow()
        if has_collation(stored_field(field)) or has_collation(before):
            parser.source.fail(
                "the collation of a column cannot be changed, and the type of a column with a "
                "collation cannot be changed; add a new column",
                start,
            )
        change["data_type"] = arrow_field(field).type
    elif parser.take("SET", "NOT", "NULL"):
        change["nullable"] = False
    elif parser.take("DROP", "NOT", "NULL"):
        change["nullable"] = True
    else:
        parser.fail("expected TYPE, SET NOT NULL or DROP NOT NULL")
    parser.end()
    dataset.alter_columns(change)


def _rename(session: Session, parser: StatementParser, reference: Reference) -> None:
    if reference.is_path:
        parser.fail("a table at a path cannot be renamed; move its folder")
    named = named_table(session.spark, parser.source, reference)
    parts = parser.path("a name").split(".")
    parser.end()
    if len(parts) > 1 and parts[0].lower() == reference.parts[0].lower():
        parts = parts[1:]
    request = namespace_module().RenameTableRequest(
        id=list(named.table_id),
        new_table_name=parts[-1],
        new_namespace_id=parts[:-1] or list(named.table_id[:-1]),
    )
    named.client.rename_table(request)


def create_view(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE TEMPORARY VIEW over Lance tables, pinned to their current or specified versions.

    A view created with only a path always refers to the latest version.
    """
    parser.need("CREATE")
    replaces = parser.take("OR", "REPLACE")
    if not parser.take_any("TEMPORARY", "TEMP") or not parser.take("VIEW"):
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
