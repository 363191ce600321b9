r"""What the page asks of tables, as values that become JSON.

A table is named as `lancelet ls` lists it below the folder that is shown; whatever is not listed
does not exist, so no name leads elsewhere.

What a page gets of a value: short enough to show, with what says how to show it.

7                       {"number": "7"}          too large for a script's numbers as well
[0.1, 0.2]  (vector)    {"vector": [0.1, 0.2]}
b"\x89PNG..."           {"image": "image/png", "bytes": 5120}
{"a": 1}                {"json": "{\"a\": 1}"}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from lancelet.cli.ls import tables_in
from lancelet.cli.output import cell_text, json_value
from lancelet.cli.pages import pages_of_table
from lancelet.cli.table_arguments import open_version
from lancelet.cli.versions import committed_at, operation_of
from lancelet.dataset import LanceDataset
from lancelet.dataset.scan.builder import ColumnOrdering
from lancelet.errors import InvalidInputError, NotFoundError, UnsupportedError
from lancelet.ops.check import Level
from lancelet.query.functions.registry import FUNCTIONS
from lancelet.table.snapshot import open_entries
from lancelet.values import dataclass

ROWS_MAX: Final = 500
PAGES_MAX: Final = 5_000
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
    """The tables below a folder, and whether the page may change them."""

    root: str
    storage_options: Mapping[str, str] | None = None
    can_write: bool = False
    _known: list[str] = field(default_factory=list, repr=False)

    def names(self) -> list[str]:
        """Return the names of the tables, sorted."""
        options = None if self.storage_options is None else dict(self.storage_options)
        self._known[:] = tables_in(self.root, options)
        return self._known

    def open(self, asked: Mapping[str, str]) -> LanceDataset:
        """Return the table that a request names (`table`), at the version that it names (`at`)."""
        name = asked.get("table", "")
        if name not in self._known and name not in self.names():
            raise NotFoundError("no table of that name is shown here", name=name)
        uri = self.root if name == "." else f"{self.root.rstrip('/')}/{name}"
        options = None if self.storage_options is None else dict(self.storage_options)
        return open_version(uri, asked.get("at") or None, options)


def list_tables(shown: Shown, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables, and what the page may do."""
    return {"root": shown.root, "can_write": shown.can_write, "tables": shown.names()}


def describe(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what a version of a table is made of."""
    table = shown.open(asked)
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
        "words": [*_KEYWORDS, *sorted(f"{name}(" for name in FUNCTIONS)],
    }


def rows(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of rows: filtered, sorted, from an offset on."""
    table = shown.open(asked)
    condition = asked.get("filter") or None
    limit = min(_number(asked, "limit", 50), ROWS_MAX)
    ordering = asked.get("order")
    found = table.to_table(
        filter=condition,
        offset=_number(asked, "offset", 0),
        limit=limit,
        order_by=[ColumnOrdering(ordering, asked.get("descending") != "1")] if ordering else None,
        with_row_address=True,
    )
    return {**_cells(found), "total": table.count_rows(condition)}


def search(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the best rows for a text, near a vector or the vector of a row, or for both."""
    table = shown.open(asked)
    k = min(_number(asked, "limit", 20), ROWS_MAX)
    text, column = asked.get("text") or None, asked.get("column", "")
    vector: Any = None
    if asked.get("row"):
        found = table._take_rows([_number(asked, "row", 0)], columns=[column])  # noqa: SLF001  as pylance's
        vector = found.column(0)[0].as_py()
    elif asked.get("vector"):
        vector = _numbers(asked["vector"])
    nearest = None if vector is None else {"column": column, "q": vector, "k": k}
    condition = asked.get("filter") or None
    if text is not None and nearest is not None:
        return _cells(table.hybrid_search(text, nearest, k, filter=condition))
    if text is None and nearest is None:
        raise InvalidInputError("a search needs a text, a vector or a row")
    found = table.to_table(
        filter=condition,
        nearest=nearest,
        full_text_query=text,
        limit=k,
        prefilter=True,
        with_row_address=True,
    )
    return _cells(found)


def image(shown: Shown, asked: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the bytes of an image in a cell, and its media type."""
    table = shown.open(asked)
    column = asked.get("column", "")
    found = table.scanner(
        columns=[column], filter=f"{_ADDRESS} = {_number(asked, 'row', 0)}"
    ).to_table()
    value = found.column(0)[0].as_py() if found.num_rows else None
    kind = image_type(value) if isinstance(value, bytes) else None
    if not isinstance(value, bytes) or kind is None:
        raise NotFoundError("the cell holds no image", column=column)
    return value, kind


def versions(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the versions of a table, the newest first, with branches and tags."""
    table = shown.open(asked)
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


def difference(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return how two versions differ, in words."""
    table = shown.open(asked)
    return {"text": str(table.diff(_number(asked, "begin", 1), _number(asked, "end", 1)))}


def pages(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return where the pages of columns lie, and how they are encoded."""
    snapshot = shown.open(asked).snapshot
    names = ("fragment", "file", "column", "page", "rows", "bytes", "encoding")
    found: list[dict[str, Any]] = []
    for row in pages_of_table(snapshot, prefix=asked.get("column", "")):
        if len(found) == PAGES_MAX:
            return {"pages": found, "cut": True}
        found.append(dict(zip(names, row, strict=True)))
    return {"pages": found, "cut": False}


def indices(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the indices with what they cover."""
    table = shown.open(asked)
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


def recall(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return how much of what is nearest a vector index finds."""
    report = shown.open(asked).recall_report(asked.get("column", ""), store=False)
    return {"text": str(report)}


def plan(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what a query would do, or did if it is to be measured."""
    columns = [name for name in asked.get("columns", "").split(",") if name]
    scanner = shown.open(asked).scanner(columns=columns or None, filter=asked.get("filter") or None)
    measured = asked.get("measure") == "1"
    return {"text": scanner.analyze_plan() if measured else scanner.explain_plan()}


def check(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what is wrong with a version."""
    level = Level.parse(asked.get("level", "footers"))
    found = shown.open(asked).check(level)
    return {"findings": [{**asdict(each), "severity": each.severity.value} for each in found]}


def change(shown: Shown, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return what a change would do; with `apply`, do it, if the page may."""
    apply = asked.get("apply") == "1"
    if apply and not shown.can_write:
        raise UnsupportedError("this page only reads; start it with --write to change tables")
    table = shown.open(asked)
    options: Any = {} if apply else {"dry_run": True}
    match asked.get("action"):
        case "delete":
            done: Any = table.delete(_text(asked, "filter"), **options)
        case "update":
            values = {_text(asked, "column"): _text(asked, "value")}
            done = table.update(values, where=asked.get("filter") or None, **options)
        case "restore":
            done = table.restore(**options)
        case "compact":
            done = table.optimize.compact_files(**options)
        case "tag":
            done = table.tags.create(_text(asked, "name"), **options)
        case other:
            known = ["delete", "update", "restore", "compact", "tag"]
            raise InvalidInputError("unknown change", action=other, known=known)
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


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name) or str(default)
    if not text.isdigit():
        raise InvalidInputError(f"{name} must be an integer", found=text)
    return int(text)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.strip("[] ").split(",")]
    except ValueError as error:
        raise InvalidInputError("a vector is comma-separated numbers", found=text) from error


def _text(asked: Mapping[str, str], name: str) -> str:
    if not asked.get(name):
        raise InvalidInputError(f"{name} is missing")
    return asked[name]


def image_type(value: bytes) -> str | None:
    r"""Return the media type of an image that browsers show, by its first bytes.

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
    """Return a value as a page gets it; None is null."""
    match value:
        case None:
            return None
        case bool():
            return {"text": "true" if value else "false"}
        case int() | float() | Decimal():
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
    # Not every number is one in JSON.
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
