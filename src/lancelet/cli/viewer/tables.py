r"""Requests of the viewer page: each function returns a JSON value.

Tables have the names that `lancelet ls` lists for the folder. Other names are rejected, so a
request cannot read outside of the folder.

Values are truncated for display and tagged with their representation:

    7                       {"number": "7"}          JavaScript numbers lose large integers
    [0.1, 0.2]  (vector)    {"vector": [0.1, 0.2]}
    b"\x89PNG..."           {"image": "image/png", "bytes": 5120}
    {"a": 1}                {"json": "{\"a\": 1}"}
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from lancelet.cli.ls import tables_in
from lancelet.cli.output import Form, Output, cell_text, json_value
from lancelet.cli.pages import pages_of_table
from lancelet.cli.table_arguments import open_version
from lancelet.cli.versions import committed_at, operation_of
from lancelet.cli.viewer.statistics import column_statistics
from lancelet.dataset import LanceDataset
from lancelet.dataset.scan.builder import ColumnOrdering
from lancelet.errors import InvalidInputError, NotFoundError, UnsupportedError
from lancelet.expr.functions.registry import FUNCTIONS
from lancelet.file.describe import short_encoding
from lancelet.table.snapshot import open_entries
from lancelet.upkeep.check import Level
from lancelet.values import dataclass

ROWS_MAX: Final = 500
PAGES_MAX: Final = 5_000
TABLES_MAX: Final = 200
EXPORT_ROWS_MAX: Final = 100_000
_EXPORTS: Final = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}
_KEYWORDS: Final = (
    "AND",
    "OR",
    "NOT",
    "IN",
    "IS",
    "NULL",
    "LIKE",
    "BETWEEN",
    "TRUE",
    "FALSE",
    "CAST",
    "DATE",
    "TIMESTAMP",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
)
_ADDRESS: Final = "_rowaddr"

TEXT_MAX: Final = 2_000
VECTOR_MAX: Final = 256
PREVIEW_BYTES: Final = 32

_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"BM", "image/bmp"),
)


@dataclass(frozen=True, slots=True)
class Shown:
    """The tables in a folder, and whether the page may change them."""

    root: str
    storage_options: Mapping[str, str] | None = None
    can_write: bool = False
    _table_names: list[str] = field(default_factory=list, repr=False)

    def names(self) -> list[str]:
        """Return the names of the tables, sorted."""
        options = None if self.storage_options is None else dict(self.storage_options)
        self._table_names[:] = tables_in(self.root, options)
        return self._table_names

    def open(self, request: Mapping[str, str]) -> LanceDataset:
        """Return the requested table (`table`) at the requested version (`at`)."""
        name = request.get("table", "")
        if name not in self._table_names and name not in self.names():
            raise NotFoundError("the folder contains no table with this name", name=name)
        uri = self.root if name == "." else f"{self.root.rstrip('/')}/{name}"
        options = None if self.storage_options is None else dict(self.storage_options)
        return open_version(uri, request.get("at") or None, options)


def list_tables(shown: Shown, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables and the permissions of the page."""
    return {"root": shown.root, "can_write": shown.can_write, "tables": shown.names()}


def overview(shown: Shown, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the number of rows, the size and the version of each table."""
    found = []
    for name in shown.names()[:TABLES_MAX]:
        snapshot = shown.open({"table": name}).snapshot
        found.append(
            {
                "name": name,
                "rows": snapshot.num_rows,
                "columns": len(snapshot.schema.fields),
                "bytes": snapshot.data_bytes,
                "version": snapshot.version,
                "committed": committed_at(snapshot),
            }
        )
    return {"tables": found}


def statistics(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return statistics of the columns of a version."""
    return column_statistics(shown.open(request))


def sql(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the first rows of a query over the table, which is called `dataset`."""
    query = shown.open(request).sql(_text(request, "query")).build()
    batches: list[pa.RecordBatch] = []
    num_rows = 0
    reader = query.to_stream_reader()
    for batch in reader:
        batches.append(batch)
        num_rows += batch.num_rows
        if num_rows > ROWS_MAX:
            break
    found = pa.Table.from_batches(batches, reader.schema)
    return {**_cells(found.slice(0, ROWS_MAX)), "cut": num_rows > ROWS_MAX}


def export(shown: Shown, request: Mapping[str, str]) -> tuple[bytes, str, str]:
    """Return filtered rows as a file: its bytes, media type and name."""
    kind = request.get("format", "csv")
    if kind not in _EXPORTS:
        raise InvalidInputError("unknown format", format=kind, expected=list(_EXPORTS))
    table = shown.open(request)
    columns = _names(request)
    ordering = request.get("order")
    found = table.to_table(
        columns=columns or None,
        filter=request.get("filter") or None,
        limit=min(_number(request, "limit", EXPORT_ROWS_MAX), EXPORT_ROWS_MAX),
        order_by=[ColumnOrdering(ordering, request.get("descending") != "1")] if ordering else None,
    )
    data = io.BytesIO()
    match kind:
        case "parquet":
            parquet.write_table(found, data)
        case "arrow":
            with pa.ipc.new_file(data, found.schema) as writer:
                writer.write_table(found)
        case _:
            text = io.StringIO()
            Output(Form(kind), text).rows(found)
            data.write(text.getvalue().encode())
    name = request.get("table", "").rpartition("/")[2].removesuffix(".lance") or "rows"
    return data.getvalue(), _EXPORTS[kind], f"{name}.{kind}"


def describe(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the contents of a version of a table."""
    table = shown.open(request)
    snapshot = table.snapshot
    fragments = snapshot.fragments
    return {
        "version": snapshot.version,
        "branch": snapshot.manifest.branch,
        "committed": committed_at(snapshot),
        "rows": snapshot.num_rows,
        "deleted": int(snapshot.deleted_by_fragment.sum()),
        "fragments": len(fragments),
        "bytes": snapshot.data_bytes,
        "file_version": snapshot.manifest.data_version.value,
        "columns": [_column(field) for field in table.schema],
        "metadata": dict(snapshot.manifest.table_metadata),
        "completions": [*_KEYWORDS, *sorted(f"{name}(" for name in FUNCTIONS)],
    }


def rows(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return one page of rows, filtered and sorted."""
    table = shown.open(request)
    condition = request.get("filter") or None
    limit = min(_number(request, "limit", 50), ROWS_MAX)
    ordering = request.get("order")
    columns = _names(request)
    found = table.to_table(
        columns=columns or None,
        filter=condition,
        offset=_number(request, "offset", 0),
        limit=limit,
        order_by=[ColumnOrdering(ordering, request.get("descending") != "1")] if ordering else None,
        with_row_address=True,
    )
    return {**_cells(found), "total": table.count_rows(condition)}


def search(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the best rows for a text, a vector, the vector of a row, or a hybrid query."""
    table = shown.open(request)
    k = min(_number(request, "limit", 20), ROWS_MAX)
    text, column = request.get("text") or None, request.get("column", "")
    vector: Any = None
    if request.get("row"):
        found = table._take_rows([_number(request, "row", 0)], columns=[column])  # noqa: SLF001  as pylance's
        vector = found.column(0)[0].as_py()
    elif request.get("vector"):
        vector = _numbers(request["vector"])
    nearest = None if vector is None else {"column": column, "q": vector, "k": k}
    condition = request.get("filter") or None
    if text is not None and nearest is not None:
        return _cells(table.hybrid_search(text, nearest, k, filter=condition))
    if text is None and nearest is None:
        raise InvalidInputError("a search requires a query text, a vector or a row")
    found = table.to_table(
        filter=condition,
        nearest=nearest,
        full_text_query=text,
        limit=k,
        prefilter=True,
        with_row_address=True,
    )
    return _cells(found)


def image(shown: Shown, request: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the bytes and the media type of an image in a cell."""
    table = shown.open(request)
    column = request.get("column", "")
    found = table.scanner(
        columns=[column], filter=f"{_ADDRESS} = {_number(request, 'row', 0)}"
    ).to_table()
    value = found.column(0)[0].as_py() if found.num_rows else None
    kind = image_type(value) if isinstance(value, bytes) else None
    if not isinstance(value, bytes) or kind is None:
        raise NotFoundError("the cell contains no image", column=column)
    return value, kind


def versions(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the versions of a table, newest first, with branches and tags."""
    table = shown.open(request)
    location = table.snapshot.location
    tags: dict[tuple[str | None, int], list[str]] = {}
    for name, tag in table.tags.list().items():
        tags.setdefault((tag["branch"], tag["version"]), []).append(name)
    branch = table.snapshot.manifest.branch
    newest = reversed(location.handler.list_versions(location.store)[-ROWS_MAX:])
    found = [
        {
            "version": snapshot.version,
            "committed": committed_at(snapshot),
            "operation": operation_of(snapshot),
            "rows": snapshot.num_rows,
            "fragments": len(snapshot.fragments),
            "bytes": snapshot.data_bytes,
            "tags": sorted(tags.get((branch, snapshot.version), [])),
        }
        for snapshot in open_entries(location, newest)
    ]
    branches = [
        {"name": name, "parent": each["parent_branch"], "version": each["parent_version"]}
        for name, each in sorted(table.branches.list().items())
    ]
    return {"branch": branch, "versions": found, "branches": branches}


def difference(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the differences between two versions as text."""
    table = shown.open(request)
    return {"text": str(table.diff(_number(request, "begin", 1), _number(request, "end", 1)))}


def pages(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the extents and encodings of the pages of columns."""
    snapshot = shown.open(request).snapshot
    names = ("fragment", "file", "column", "page", "rows", "bytes", "encoding")
    found: list[dict[str, Any]] = []
    for row in pages_of_table(snapshot, prefix=request.get("column", "")):
        if len(found) == PAGES_MAX:
            return {"pages": found, "cut": True}
        found.append({**dict(zip(names, row, strict=True)), "encoding": short_encoding(row[-1])})
    return {"pages": found, "cut": False}


def indices(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the indices with their coverage."""
    table = shown.open(request)
    found = []
    for index in table.describe_indices():
        statistics = table.stats.index_stats(index.name)
        found.append(
            {
                "name": index.name,
                "type": index.index_type,
                "columns": index.field_names,
                "segments": len(index.segments),
                "bytes": index.total_size_bytes,
                "indexed_rows": statistics["num_indexed_rows"],
                "other_rows": statistics["num_unindexed_rows"],
                "is_vector": statistics["index_type"].startswith("IVF"),
                "statistics": statistics,
            }
        )
    return {"indices": found}


def recall(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the recall of a vector index."""
    report = shown.open(request).recall_report(request.get("column", ""), store=False)
    return {"text": str(report)}


def plan(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the plan of a query, with measurements if requested."""
    columns = _names(request)
    scanner = shown.open(request).scanner(
        columns=columns or None, filter=request.get("filter") or None
    )
    measured = request.get("measure") == "1"
    return {"text": scanner.analyze_plan() if measured else scanner.explain_plan()}


def check(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the findings of a check of a version."""
    level = Level.parse(request.get("level", "footers"))
    found = shown.open(request).check(level)
    return {"findings": [{**asdict(each), "severity": each.severity.value} for each in found]}


def change(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Preview a change; with `apply`, apply it if the page may change tables."""
    apply = request.get("apply") == "1"
    if apply and not shown.can_write:
        raise UnsupportedError("the viewer is read-only; start it with --write to change tables")
    table = shown.open(request)
    options: Any = {} if apply else {"dry_run": True}
    match request.get("action"):
        case "delete":
            done: Any = table.delete(_text(request, "filter"), **options)
        case "update":
            values = {_text(request, "column"): _text(request, "value")}
            done = table.update(values, where=request.get("filter") or None, **options)
        case "restore":
            done = table.restore(**options)
        case "compact":
            done = table.optimize.compact_files(**options)
        case "tag":
            done = table.tags.create(_text(request, "name"), **options)
        case other:
            actions = ["delete", "update", "restore", "compact", "tag"]
            raise InvalidInputError("unknown change", action=other, expected=actions)
    return {"text": str(done or "done"), "applied": apply, "version": table.version}


def _column(field: pa.Field) -> dict[str, Any]:
    kind = "vector" if is_vector(field.type) else "nested" if field.type.num_fields else "plain"
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        kind = "text"
    return {
        "name": field.name,
        "type": str(field.type),
        "nullable": field.nullable,
        "kind": kind,
        "number": pa.types.is_integer(field.type) or pa.types.is_floating(field.type),
    }


def _cells(found: pa.Table) -> dict[str, Any]:
    names = [name for name in found.schema.names if name != _ADDRESS]
    types = [found.schema.field(name).type for name in names]
    addresses = found[_ADDRESS].to_pylist() if _ADDRESS in found.schema.names else []
    columns = [found[name].to_pylist() for name in names]
    return {
        "columns": names,
        "addresses": [str(each) for each in addresses],
        "rows": [
            [cell(value, kind) for value, kind in zip(values, types, strict=True)]
            for values in zip(*columns, strict=True)
        ],
    }


def _number(request: Mapping[str, str], name: str, default: int) -> int:
    text = request.get(name) or str(default)
    if not text.isdigit():
        raise InvalidInputError(f"{name} must be an integer", found=text)
    return int(text)


def _names(request: Mapping[str, str]) -> list[str]:
    """Return the requested columns: comma-separated names, or a JSON array of any names."""
    text = request.get("columns", "")
    if not text.startswith("["):
        return [name for name in text.split(",") if name]
    try:
        names = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError("columns must be names or a JSON array", found=text) from error
    return [str(name) for name in names]


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.strip("[] ").split(",")]
    except ValueError as error:
        raise InvalidInputError("a vector is comma-separated numbers", found=text) from error


def _text(request: Mapping[str, str], name: str) -> str:
    if not request.get(name):
        raise InvalidInputError(f"{name} is missing")
    return request[name]


def image_type(value: bytes) -> str | None:
    r"""Return the media type of an image by its magic bytes; None for other data.

    >>> image_type(b"\xff\xd8\xff\xe0"), image_type(b"text")
    ('image/jpeg', None)
    """
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        return "image/webp"
    return next((name for magic, name in _IMAGES if value.startswith(magic)), None)


def is_vector(data_type: pa.DataType) -> bool:
    """Return whether values are vectors of numbers."""
    if isinstance(data_type, pa.BaseExtensionType):
        return is_vector(data_type.storage_type)
    if not pa.types.is_fixed_size_list(data_type):
        return False
    value = data_type.value_type
    return (
        pa.types.is_floating(value) or pa.types.is_integer(value) or not pa.types.is_nested(value)
    )


def cell(value: Any, data_type: pa.DataType) -> dict[str, Any] | None:
    """Return the JSON representation of a value; None for null."""
    match value:
        case None:
            return None
        case bool():
            return {"text": "true" if value else "false"}
        case float():
            return {"number": f"{value:.6g}", "exact": str(value)}
        case int() | Decimal():
            return {"number": str(value)}
        case str():
            return _cut(value)
        case bytes():
            return _binary(value)
        case datetime() | date() | time() | timedelta():
            return {"text": cell_text(value)}
        case list() if is_vector(data_type):
            return _vector(value)
    text = json.dumps(value, default=_shown, ensure_ascii=False)
    return {"json": text} if len(text) <= TEXT_MAX else {"json": None, **_cut(text)}


def _binary(value: bytes) -> dict[str, Any]:
    kind = image_type(value)
    if kind is not None:
        return {"image": kind, "bytes": len(value)}
    return {"binary": value[:PREVIEW_BYTES].hex(" "), "bytes": len(value)}


def _vector(value: list[Any]) -> dict[str, Any]:
    # JSON has no NaN and infinity.
    numbers = [float(each) if _is_finite(each) else None for each in value[:VECTOR_MAX]]
    return {"vector": numbers, "size": len(value)}


def _is_finite(value: Any) -> bool:
    return value is not None and abs(float(value)) < float("inf")


def _cut(text: str) -> dict[str, Any]:
    if len(text) <= TEXT_MAX:
        return {"text": text}
    return {"text": text[:TEXT_MAX], "length": len(text)}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes) and len(value) > PREVIEW_BYTES:
        return f"{len(value)} bytes"
    return dict(value) if isinstance(value, Mapping) else json_value(value)
