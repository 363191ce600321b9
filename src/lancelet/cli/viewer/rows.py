"""Requests of the viewer that return rows: pages of a table, searches, SQL, exports and values.

The rows of a table are identified by `row`, their row id, which is the row address in tables
without stable row ids. The rows of a SQL result are identified by the name of the `result` and
their number.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from lancelet.cli.convert import parquet_schema
from lancelet.cli.output import Form, Output
from lancelet.cli.viewer.cells import blob_cells, cells_of, media_type, type_text
from lancelet.cli.viewer.sql_process import run_query
from lancelet.cli.viewer.statistics import column_statistics
from lancelet.cli.viewer.tables import Download, Shown, names_of, number_of, text_of
from lancelet.dataset import LanceDataset
from lancelet.dataset.scan.builder import ColumnOrdering
from lancelet.errors import InvalidInputError, NotFoundError
from lancelet.expr.python_values import values_of

ROWS_MAX: Final = 500
EXPORT_ROWS_MAX: Final = 100_000
VALUE_BYTES_MAX: Final = 1 << 28
_ROW: Final = "_rowid"
_ADDRESS: Final = "_rowaddr"
_ROW_MAX: Final = 2**64 - 1
_EXPORTS: Final = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}


def rows(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of rows, filtered and sorted."""
    table = shown.open(request)
    condition = request.get("filter") or None
    found = table.to_table(
        columns=names_of(request),
        filter=condition,
        offset=number_of(request, "offset"),
        limit=min(number_of(request, "limit", 50), ROWS_MAX),
        order_by=_order(request),
        with_row_id=True,
        with_row_address=True,
    )
    return {**_table_cells(table, found), "total": table.count_rows(condition)}


def row(shown: Shown, request: Mapping[str, str]) -> Download:
    """Return a row as a JSON object with complete values."""
    found = _one_row(shown, request, names_of(request))
    values = dict(zip(found.schema.names, map(values_of, found.columns), strict=True))
    text = io.StringIO()
    Output(Form.JSON, text).facts({name: each for name, [each] in values.items()})
    return Download(text.getvalue().encode(), "application/json")


def blob(shown: Shown, request: Mapping[str, str]) -> Download:
    """Return a binary value; types other than images, audio and video are downloaded."""
    column = text_of(request, "column")
    is_blob = False
    if not request.get("result"):
        table = shown.open(request)
        is_blob = any(each.is_blob for each in table.snapshot.schema.fields if each.name == column)
    value: Any = None
    if is_blob:
        number = number_of(request, "row", most=_ROW_MAX)
        found = table.take_blobs(column, ids=[number], buffer_size=0)[0]
        if found is not None:
            if found.size() > VALUE_BYTES_MAX:
                raise InvalidInputError(
                    "the value is too large for the page; read it with take_blobs",
                    bytes=found.size(),
                    bytes_max=VALUE_BYTES_MAX,
                )
            value = found.read()
    else:
        value = _one_row(shown, request, [column])[column][0].as_py()
    if not isinstance(value, bytes):
        raise NotFoundError("the cell contains no binary value", column=column)
    kind = media_type(value)
    if kind is None:
        return Download(value, "application/octet-stream", f"{column}.bin")
    return Download(value, kind)


def search(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the best rows for a text, a vector, the vector of a row, or a hybrid query."""
    table = shown.open(request)
    k = min(number_of(request, "limit", 20), ROWS_MAX)
    text, column = request.get("text") or None, request.get("column", "")
    vector: Any = None
    if request.get("row"):
        vector = _one_row(shown, request, [column])[column][0].as_py()
    elif request.get("vector"):
        vector = _numbers(request["vector"])
    nearest = None if vector is None else {"column": column, "q": vector, "k": k}
    condition = request.get("filter") or None
    if text is None and nearest is None:
        raise InvalidInputError("a search requires a query text, a vector or a row")
    if text is not None and nearest is not None:
        found = table.hybrid_search(text, nearest, k, filter=condition, with_row_id=True)
    else:
        found = table.to_table(
            filter=condition,
            nearest=nearest,
            full_text_query=text,
            limit=k,
            prefilter=True,
            with_row_id=True,
            with_row_address=True,
        )
    return _table_cells(table, found)


def sql(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the first rows of a query over the table, which is called `dataset`."""
    found = _query(shown, request, ROWS_MAX + 1)
    shown_rows = found.slice(0, ROWS_MAX)
    return {
        "columns": shown_rows.schema.names,
        "types": [type_text(each) for each in shown_rows.schema.types],
        "rows": cells_of(shown_rows),
        "result": shown.keep(shown_rows),
        "cut": found.num_rows > ROWS_MAX,
    }


def statistics(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return statistics of the columns of a version, or of its rows that match a filter."""
    return column_statistics(shown.open(request), request.get("filter") or None)


def export(shown: Shown, request: Mapping[str, str]) -> Download:
    """Return filtered rows or the result of a query as a file."""
    kind = request.get("format", "csv")
    if kind not in _EXPORTS:
        raise InvalidInputError("unknown format", format=kind, expected=list(_EXPORTS))
    if request.get("query"):
        found = _query(shown, request, EXPORT_ROWS_MAX)
    else:
        found = shown.open(request).to_table(
            columns=names_of(request),
            filter=request.get("filter") or None,
            limit=min(number_of(request, "limit", EXPORT_ROWS_MAX), EXPORT_ROWS_MAX),
            order_by=_order(request),
        )
    data = io.BytesIO()
    match kind:
        case "parquet":
            parquet.write_table(found.cast(parquet_schema(found.schema)), data)
        case "arrow":
            with pa.ipc.new_file(data, found.schema) as writer:
                writer.write_table(found)
        case _:
            text = io.StringIO()
            Output(Form(kind), text).rows(found, full=True)
            data.write(text.getvalue().encode())
    name = request.get("table", "").rpartition("/")[2].removesuffix(".lance") or "rows"
    return Download(data.getvalue(), _EXPORTS[kind], f"{name}.{kind}")


def _one_row(shown: Shown, request: Mapping[str, str], columns: list[str] | None) -> pa.Table:
    """Return a row of a table or of a SQL result."""
    number = number_of(request, "row", most=_ROW_MAX)
    if request.get("result"):
        found = shown.result(request["result"]).slice(min(number, ROWS_MAX), 1)
        found = found if columns is None else found.select(columns)
    else:
        found = shown.open(request).to_table(columns=columns, filter=f"{_ROW} = {number}")
    if not found.num_rows:
        raise NotFoundError("the version contains no row with this id", row=number)
    return found


def _query(shown: Shown, request: Mapping[str, str], limit: int) -> pa.Table:
    """Return the first rows of a SQL query, with distinct column names."""
    found = run_query(shown.query(request, text_of(request, "query"), limit))
    return found.rename_columns(distinct_names(found.schema.names))


def distinct_names(names: list[str]) -> list[str]:
    """Number names that occur again.

    >>> distinct_names(["id", "id", "id_1", "id"])
    ['id', 'id_1', 'id_1_1', 'id_2']
    """
    found: dict[str, None] = {}
    for name in names:
        number, chosen = 0, name
        while chosen in found:
            number += 1
            chosen = f"{name}_{number}"
        found[chosen] = None
    return list(found)


def _order(request: Mapping[str, str]) -> list[ColumnOrdering] | None:
    column = request.get("order")
    return [ColumnOrdering(column, request.get("descending") != "1")] if column else None


def _table_cells(table: LanceDataset, found: pa.Table) -> dict[str, Any]:
    """Return the cells of rows of a table, with their row ids."""
    ids = found[_ROW].to_pylist()
    blobs = {each.name for each in table.snapshot.schema.fields if each.is_blob}
    addresses = found[_ADDRESS].to_pylist() if _ADDRESS in found.schema.names else None
    values = found.drop_columns([name for name in (_ROW, _ADDRESS) if name in found.schema.names])
    cells = cells_of(values)
    for column, name in enumerate(values.schema.names):
        if name in blobs and addresses is not None:
            shown_blobs = blob_cells(table.snapshot, name, values[name].to_pylist(), addresses)
            for row_cells, each in zip(cells, shown_blobs, strict=True):
                row_cells[column] = each
    types = {each.name: each.type for each in (*values.schema, *table.schema)}
    return {
        "columns": values.schema.names,
        "types": [
            "blob" if each in blobs else type_text(types[each]) for each in values.schema.names
        ],
        "ids": [str(each) for each in ids],
        "rows": cells,
    }


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.strip("[] ").split(",")]
    except ValueError as error:
        raise InvalidInputError("a vector is comma-separated numbers", found=text) from error
