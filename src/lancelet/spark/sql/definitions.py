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
from lancelet.ops.jobs.table_ref import TableRef
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
from lancelet.spark.sql.query import Session, plan_query
from lancelet.spark.sql.source import Source
from lancelet.spark.sql.words import Words
from lancelet.spark.types import arrow_field, has_collation, stored_field
from lancelet.spark.writing import write

_NAMESPACES: Final = ("NAMESPACE", "SCHEMA", "DATABASE")


def dataset_of(target: Target) -> LanceDataset:
    """Open the latest version of a table or branch as a dataset."""
    table = target.table
    dataset = LanceDataset(table.uri, storage_options=dict(table.options))
    return dataset if table.branch is None else dataset.checkout_version((table.branch, None))


def nothing(session: Session) -> DataFrame:
    """Return the result of statements that have none."""
    return session.spark.createDataFrame([], "result string").select()


def create(session: Session, words: Words) -> DataFrame | None:
    """Run CREATE [OR REPLACE] TABLE and REPLACE TABLE."""
    if words.at("CREATE") and any(
        words.source.tokens[1:2] and words.source.tokens[1].word == each for each in _NAMESPACES
    ):
        return _create_namespace(session, words)
    replaces = words.take("REPLACE", "TABLE")
    if not replaces:
        words.need("CREATE")
        replaces = words.take("OR", "REPLACE")
        if not words.take("TABLE"):
            return None
    must_be_new = not words.take("IF", "NOT", "EXISTS")
    reference = words.table()
    if reference is None:
        return None
    if reference.is_pinned or reference.branch is not None:
        words.source.fail("a table is made without a version or branch", reference.start)
    kind = words.take_any("SHALLOW", "DEEP")
    if kind is not None:
        words.need("CLONE")
        return _clone(session, words, reference, is_shallow=kind == "SHALLOW")
    schema: StructType | None = None
    if words.at("L_PAREN"):
        schema = _columns(session, words)
    properties: dict[str, str] = {}
    message = None
    while not words.at("AS") and words.token is not None:
        if words.take("USING"):
            start = words.position
            if words.name("a format").lower() != "lance":
                words.source.fail("a table at such a place has the format lance", start)
        elif words.take_any("TBLPROPERTIES", "OPTIONS"):
            properties |= words.properties()
        elif words.take("COMMENT"):
            message = words.string("a comment")
        elif words.at("PARTITIONED") or words.at("CLUSTERED"):
            words.fail("Lance tables have no partitions or buckets; leave it out")
        else:
            words.fail("expected AS, USING, TBLPROPERTIES or COMMENT")
    if words.take("AS"):
        if schema is not None:
            words.fail("the columns come from the query; leave the list out")
        text = words.source.text[words.position :]
        frame = plan_query(session, Source(text, words.source)).run()
    elif schema is None:
        words.fail("expected columns or AS and a query")
    else:
        frame = session.spark.createDataFrame([], schema)
    properties |= dict(reference.options)
    options = {name: value for name, value in properties.items() if _is_option(name)}
    config = {name: value for name, value in properties.items() if name not in options}
    storage = {name.lower(): value for name, value in options.items() if _is_storage(name)}
    options = {name: value for name, value in options.items() if not _is_storage(name)}
    reference = replace(reference, options=tuple(storage.items()))
    return _make(
        session, words, reference, frame, (replaces, must_be_new), options, config, message
    )


def _is_option(name: str) -> bool:
    low = name.lower()
    prefixes = (VECTOR_PREFIX, ENCODING_PREFIX, STORAGE_PREFIX)
    return low in WRITE_NAMES or low.startswith(prefixes) or low.endswith(DIMENSION_SUFFIX)


def _is_storage(name: str) -> bool:
    return name.lower().startswith(STORAGE_PREFIX)


def _columns(session: Session, words: Words) -> StructType:
    start = words.position
    words.need("L_PAREN")
    text = words.text_until(("R_PAREN",))
    words.need("R_PAREN")
    try:
        found: StructType = session.spark.createDataFrame([], text).schema
    except PySparkException as error:
        # Spark's own message has positions in a text that nobody wrote.
        words.source.fail(f"the columns cannot be understood: {str(error).splitlines()[0]}", start)
    return found


def _make(
    session: Session,
    words: Words,
    reference: Reference,
    frame: DataFrame,
    how: tuple[bool, bool],
    options: Mapping[str, str],
    config: Mapping[str, str],
    message: str | None,
) -> DataFrame:
    replaces, must_be_new = how
    table, named = _place(session, words.source, reference)
    latest = None if table is None else latest_of(table)
    if latest is not None and not replaces:
        if must_be_new:
            raise AlreadyExistsError("there is a table already", table=reference.title)
        return nothing(session)
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
    return nothing(session)


def _new_table(named: NamedTable, reference: Reference) -> TableRef:
    """Take the name of a table that is not there, and return where it goes."""
    uri = named.uri_to_write(creates=True)  # only then there is something to ask about
    return TableRef.of(uri, {**named.storage_options(), **reference.select_options(storage=True)})


def _place(
    session: Session, source: Source, reference: Reference
) -> tuple[TableRef | None, NamedTable | None]:
    """Return where a table is or goes; for a name that is free, there is no place yet."""
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


def _clone(session: Session, words: Words, reference: Reference, *, is_shallow: bool) -> DataFrame:
    origin = words.need_table()
    words.end()
    table, named = _place(session, words.source, reference)
    if table is not None and latest_of(table) is not None:
        raise AlreadyExistsError("there is a table already", table=reference.title)
    source_table = locate(session.spark, words.source, origin)
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
    return nothing(session)


def drop(session: Session, words: Words) -> DataFrame | None:
    """Run DROP TABLE and DROP NAMESPACE."""
    words.need("DROP")
    if words.take_any(*_NAMESPACES):
        return _drop_namespace(session, words)
    if not words.take("TABLE"):
        return None
    may_be_missing = words.take("IF", "EXISTS")
    reference = words.table()
    if reference is None:
        return None
    if reference.is_pinned or reference.branch is not None:
        words.source.fail("a table is dropped with all its versions and branches", reference.start)
    words.take("PURGE")
    words.end()
    if reference.is_path:
        table = locate(session.spark, words.source, reference)
        LanceDataset.drop(table.uri, dict(table.options), ignore_not_found=may_be_missing)
        return nothing(session)
    named = named_table(session.spark, words.source, reference)
    try:
        named.client.drop_table(namespace_module().DropTableRequest(id=list(named.table_id)))
    except Exception as error:
        if not is_missing(error):
            raise
        if may_be_missing:
            return nothing(session)
        raise NotFoundError("there is no table to drop", table=reference.title) from error
    return nothing(session)


def namespace_parts(session: Session, words: Words) -> tuple[Any, list[str]] | None:
    """Read `lake` or `lake.db`, and return the namespace and the parts below it."""
    start = words.number
    if words.token is None:
        return None
    parts = words.path("a namespace").split(".")
    client = attached(session.spark).get(parts[0].lower())
    if client is None:
        words.number = start
        return None
    return client, parts[1:]


def _create_namespace(session: Session, words: Words) -> DataFrame | None:
    words.need("CREATE")
    words.take_any(*_NAMESPACES)
    may_be_there = words.take("IF", "NOT", "EXISTS")
    found = namespace_parts(session, words)
    if found is None:
        return None
    words.end()
    client, parts = found
    names = namespace_module()
    request = names.CreateNamespaceRequest(id=parts, mode="ExistOk" if may_be_there else "Create")
    try:
        client.create_namespace(request)
    except Exception as error:
        if may_be_there and "AlreadyExists" in type(error).__name__:
            return nothing(session)
        raise
    return nothing(session)


def _drop_namespace(session: Session, words: Words) -> DataFrame | None:
    may_be_missing = words.take("IF", "EXISTS")
    found = namespace_parts(session, words)
    if found is None:
        return None
    behavior = "Cascade" if words.take("CASCADE") else "Restrict"
    words.take("RESTRICT")
    words.end()
    client, parts = found
    request = namespace_module().DropNamespaceRequest(id=parts, behavior=behavior)
    try:
        client.drop_namespace(request)
    except Exception as error:
        if may_be_missing and is_missing(error):
            return nothing(session)
        raise
    return nothing(session)


def alter(session: Session, words: Words) -> DataFrame | None:
    """Run ALTER TABLE."""
    words.need("ALTER", "TABLE")
    reference = words.table()
    if reference is None:
        return None
    target = Target.of(session, words.source, reference)
    if words.take("ADD"):
        _add(session, words, target)
    elif words.take("UPDATE"):
        if not (words.take("COLUMNS") or words.take("COLUMN")):
            words.fail("expected COLUMNS")
        start = words.position
        base = target.open()
        schema = target_schema(base)
        names = [target.column(schema, name, start) for name in _list(words)]
        words.need("FROM")
        return counted(session, update_columns(session, words, target, names, base))
    elif words.take("DROP", "COLUMN") or words.take("DROP", "COLUMNS"):
        may_be_missing = words.take("IF", "EXISTS")
        names = words.names("a column") if words.at("L_PAREN") else _list(words)
        dataset = dataset_of(target)
        known = [_column(words, dataset, each, fails=not may_be_missing) for each in names]
        words.end()
        dataset.drop_columns([each for each in known if each is not None])
    elif words.take("RENAME", "COLUMN"):
        dataset = dataset_of(target)
        path = _column(words, dataset, words.path("a column"))
        assert path is not None
        words.need("TO")
        new = words.name("a name")
        words.end()
        dataset.alter_columns({"path": path, "name": new})
    elif words.take("RENAME", "TO"):
        _rename(session, words, reference)
    elif words.take("ALTER") or words.take("CHANGE"):
        words.take("COLUMN")
        _alter_column(session, words, target)
    elif words.take("SET", "TBLPROPERTIES"):
        values = words.properties()
        words.end()
        dataset_of(target).update_config(values)
    elif words.take("UNSET", "TBLPROPERTIES"):
        words.take("IF", "EXISTS")
        names = _texts(words)
        words.end()
        dataset_of(target).update_config(dict.fromkeys(names))
    else:
        words.fail(
            "expected ADD, UPDATE COLUMNS, DROP COLUMN, RENAME, ALTER COLUMN, SET or UNSET "
            "TBLPROPERTIES"
        )
    return nothing(session)


def _texts(words: Words) -> list[str]:
    words.need("L_PAREN")
    found = [words.string("a property")]
    while words.take("COMMA"):
        found.append(words.string("a property"))
    words.need("R_PAREN")
    return found


def _list(words: Words) -> list[str]:
    found = [words.path("a column")]
    while words.take("COMMA"):
        found.append(words.path("a column"))
    return found


def _column(words: Words, dataset: LanceDataset, path: str, *, fails: bool = True) -> str | None:
    """Return the path of a column as the table spells it."""
    paths = _paths(dataset)
    found = [each for each in paths if each.lower() == path.lower()]
    if len(found) == 1:
        return found[0]
    if fails:
        number = words.number - 1
        start = words.source.tokens[number].start
        words.source.fail(f"the table has no column `{path}`{similar_names(path, paths)}", start)
    return None


def _paths(dataset: LanceDataset) -> list[str]:
    schema = dataset.snapshot.schema
    return [schema.path_of(node.id) for node in schema.walk()]


def _add(session: Session, words: Words, target: Target) -> None:
    dataset = dataset_of(target)
    if words.take("BASE"):
        name = words.name("a name")
        words.need("AT")
        base = DatasetBasePath(words.string("a path"), name)
        words.end()
        dataset.add_bases([base])
        return
    words.take("COLUMNS") or words.take("COLUMN")
    first = words.number
    if not words.at("L_PAREN"):
        names = _list(words)
        if words.take("FROM"):
            _add_from(session, words, target, names)
            return
        words.number = first
    if words.at("L_PAREN"):
        schema = _columns(session, words)
    else:
        start = words.position
        text = words.text_until()
        try:
            schema = session.spark.createDataFrame([], text).schema
        except PySparkException as error:
            message = str(error).splitlines()[0]
            words.source.fail(f"the columns cannot be understood: {message}", start)
    words.end()
    required = [each.name for each in schema if not each.nullable]
    if required and dataset.count_rows():
        words.source.fail(
            "a column of a table with rows begins as null, so it cannot be NOT NULL",
            0,
            columns=required,
        )
    dataset.add_columns([stored_field(each) for each in schema])


def _add_from(session: Session, words: Words, target: Target, names: list[str]) -> None:
    """Run ADD COLUMNS ... FROM a source that has them beside the addresses of rows."""
    start = words.position
    base = target.open()
    taken = {each.lower() for each in base.schema.names}
    there = [name for name in names if name.lower() in taken]
    if there:
        words.source.fail(
            "the table has a column of that name; use UPDATE COLUMNS", start, columns=there
        )
    plan, _ = merge_source(session, words)
    words.end()
    frame = with_row_addresses(target, plan, names, base, start)
    join_columns(target.table.uri, frame, version=base.version, **target.running)


def _alter_column(session: Session, words: Words, target: Target) -> None:
    dataset = dataset_of(target)
    path = _column(words, dataset, words.path("a column"))
    assert path is not None
    change: AlterColumn = {"path": path}
    if words.take("TYPE"):
        start = words.position
        text = words.text_until()
        try:
            field = session.spark.createDataFrame([], f"a {text}").schema[0]
        except PySparkException as error:
            words.source.fail(f"no type: {str(error).splitlines()[0]}", start)
        before = dataset.snapshot.schema.field_by_path(path).to_arrow()
        if has_collation(stored_field(field)) or has_collation(before):
            words.source.fail(
                "the type of a column with a collation cannot be changed, and no column takes on "
                "a collation; add another column",
                start,
            )
        change["data_type"] = arrow_field(field).type
    elif words.take("SET", "NOT", "NULL"):
        change["nullable"] = False
    elif words.take("DROP", "NOT", "NULL"):
        change["nullable"] = True
    else:
        words.fail("expected TYPE, SET NOT NULL or DROP NOT NULL")
    words.end()
    dataset.alter_columns(change)


def _rename(session: Session, words: Words, reference: Reference) -> None:
    if reference.is_path:
        words.fail("a table that is named by its path is renamed by moving its folder")
    named = named_table(session.spark, words.source, reference)
    parts = words.path("a name").split(".")
    words.end()
    if len(parts) > 1 and parts[0].lower() == reference.parts[0].lower():
        parts = parts[1:]
    request = namespace_module().RenameTableRequest(
        id=list(named.table_id),
        new_table_name=parts[-1],
        new_namespace_id=parts[:-1] or list(named.table_id[:-1]),
    )
    named.client.rename_table(request)


def create_view(session: Session, words: Words) -> DataFrame | None:
    """Run CREATE TEMPORARY VIEW: over Lance tables, whose versions are those of now, or of one.

    What is made of a path alone is a name for the table from then on.
    """
    words.need("CREATE")
    replaces = words.take("OR", "REPLACE")
    if not words.take_any("TEMPORARY", "TEMP") or not words.take("VIEW"):
        return None
    start = words.position
    name = words.name("a name")
    if words.take("USING", "LANCE") and words.take("OPTIONS"):
        given = {key.lower(): value for key, value in words.properties().items()}
        words.end()
        done = plan_query(session, words.source).run()
        path = given.pop("path", "")
        if path and all(map(_is_storage, given)):
            made = Reference((PATHS, path), start, start, options=tuple(given.items()))
            record_view(session.spark, name, made)
        return done
    if not words.take("AS"):
        return None
    text = words.source.text[words.position :]
    plan = plan_query(session, Source(text, words.source))
    if not plan.reads:
        return None
    frame = plan.run()
    if replaces:
        frame.createOrReplaceTempView(name)
    else:
        frame.createTempView(name)
    return nothing(session)
