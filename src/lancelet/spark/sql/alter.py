"""ALTER TABLE: columns, properties, base paths and names."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lancelet.dataset.columns import AlterColumn
from lancelet.dataset.dataset import LanceDataset
from lancelet.dataset.maintenance.settings import DatasetBasePath
from lancelet.dataset.named_table import namespace_module
from lancelet.errors import similar_names
from lancelet.spark.columns import join_columns, refresh_columns
from lancelet.spark.sql.column_definitions import column_definitions, parse_columns
from lancelet.spark.sql.merge_rows import merge_source, update_columns, with_row_addresses
from lancelet.spark.sql.names import Reference, named_table
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.target import Target, counted, empty_result
from lancelet.spark.types import arrow_field, has_spark_type, stored_field
from lancelet.spark.write_schema import target_schema
from lancelet.table.computed_columns import definitions_of


def alter(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run ALTER TABLE."""
    parser.need("ALTER", "TABLE")
    reference = parser.table()
    if reference is None:
        return None
    target = Target.of(session, parser, reference)
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
    elif parser.take("REFRESH", "COLUMNS"):
        return _refresh(session, parser, target)
    elif parser.take("DROP", "COLUMN") or parser.take("DROP", "COLUMNS"):
        may_be_missing = parser.take("IF", "EXISTS")
        names = parser.names("a column") if parser.at("L_PAREN") else _list(parser)
        dataset = target.dataset()
        paths = [_column(parser, dataset, each, fails=not may_be_missing) for each in names]
        parser.end()
        dataset.drop_columns([each for each in paths if each is not None])
    elif parser.take("RENAME", "COLUMN"):
        dataset = target.dataset()
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
        target.dataset().update_config(values)
    elif parser.take("UNSET", "TBLPROPERTIES"):
        parser.take("IF", "EXISTS")
        names = _texts(parser)
        parser.end()
        target.dataset().update_config(dict.fromkeys(names))
    else:
        parser.fail(
            "expected ADD, UPDATE COLUMNS, REFRESH COLUMNS, DROP COLUMN, RENAME, ALTER COLUMN, "
            "SET or UNSET TBLPROPERTIES"
        )
    return empty_result(session)


def _refresh(session: Session, parser: StatementParser, target: Target) -> DataFrame:
    """Run REFRESH COLUMNS, for columns that are computed by expressions."""
    start = parser.position
    parser.end()
    for field, definition in definitions_of(target.open().schema):
        if definition.function is not None:
            parser.source.fail(
                f"the column `{field.name}` is computed by a Python function; call "
                f"ls.refresh_columns(path, {{{definition.function!r}: ...}}, spark=spark)",
                start,
            )
    done = refresh_columns(target.table.uri, **target.running)
    row = (done.version, done.num_rows, done.remaining)
    return session.spark.createDataFrame([row], "version long, num_rows long, remaining long")


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
    dataset = target.dataset()
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
    start = parser.position
    schema = column_definitions(session, parser)
    parser.end()
    required = [each.name for each in schema if not each.nullable]
    if required and dataset.count_rows():
        parser.source.fail(
            "new columns of existing rows are null, so the column cannot be NOT NULL",
            start,
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
    dataset = target.dataset()
    path = _column(parser, dataset, parser.path("a column"))
    assert path is not None
    change: AlterColumn = {"path": path}
    if parser.take("TYPE"):
        start = parser.position
        text = f"a {parser.text_until()}"
        at = (start, start - len("a "))
        field = parse_columns(session, parser.source, text, at, "invalid type")[0]
        before = dataset.snapshot.schema.field_by_path(path).to_arrow()
        if has_spark_type(stored_field(field)) or has_spark_type(before):
            parser.source.fail(
                "the collation or length of a column cannot be changed, nor the type of a column "
                "with one; add a new column",
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
