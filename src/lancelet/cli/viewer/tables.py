"""The tables of the viewer, arguments of its requests, and requests about whole tables.

Tables have the names that `lancelet ls` lists for the folder, or dotted names in a catalog. Other
names are rejected, so a request cannot read outside of the folder or namespace.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import pyarrow as pa

from lancelet import surroundings
from lancelet.cli.catalogs import Catalog, name_of, path_of
from lancelet.cli.ls import tables_in
from lancelet.cli.table_arguments import open_version, parse_version
from lancelet.cli.versions import committed_at
from lancelet.cli.viewer.cells import is_vector
from lancelet.cli.viewer.sql_process import Query
from lancelet.dataset import LanceDataset
from lancelet.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LanceletError,
    NotFoundError,
    UnsupportedError,
)
from lancelet.expr.expression import quote_name
from lancelet.expr.functions.registry import FUNCTIONS
from lancelet.values import dataclass

TABLES_MAX: Final = 200
RESULTS_MAX: Final = 4
RESULT_BYTES_MAX: Final = 1 << 26
_FILTER_TEXT: Final = (
    "AND OR NOT IN IS NULL LIKE BETWEEN TRUE FALSE CAST DATE TIMESTAMP CASE WHEN THEN ELSE END"
)
_FILTER_WORDS: Final = tuple(_FILTER_TEXT.split())
_SQL_TEXT: Final = (
    "SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT OFFSET AS DISTINCT JOIN LEFT ON USING UNION ALL "
    "WITH OVER PARTITION ASC DESC NULLS FIRST LAST EXISTS INTERVAL count( sum( avg( min( max( "
    "median( stddev( array_agg( approx_distinct( coalesce( date_trunc( date_part( substr( "
)
_SQL_WORDS: Final = (*_SQL_TEXT.split(), *_FILTER_WORDS)
_SQL_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
_INTEGER_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Shown:
    """The tables in a folder or catalog, and whether the page may change them."""

    root: str
    storage_options: Mapping[str, str] | None = None
    can_write: bool = False
    catalog: Catalog | None = None
    _table_names: list[str] = field(default_factory=list, repr=False)
    _groups: dict[str, list[str]] = field(default_factory=dict, repr=False)
    _paths: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _results: deque[tuple[str, pa.Table]] = field(
        default_factory=lambda: deque(maxlen=RESULTS_MAX), repr=False
    )

    def names(self) -> list[str]:
        """Return the names of the tables, sorted."""
        if self.catalog is None:
            self._table_names[:] = tables_in(self.root, self._options())
            return self._table_names
        found = self.catalog.tables(path_of(self.root))
        paths = [(*namespace, name) for namespace, names in found.items() for name in names]
        self._paths.clear()
        self._paths.update((name_of(path), path) for path in paths)
        self._groups.clear()
        for namespace, names in found.items():
            self._groups[name_of(namespace)] = [name_of((*namespace, name)) for name in names]
        self._table_names[:] = self._paths
        return self._table_names

    def groups(self) -> list[dict[str, Any]] | None:
        """Return the namespaces of the catalog with the tables that `names` found, if any."""
        if self.catalog is None:
            return None
        return [{"name": name, "tables": tables} for name, tables in self._groups.items()]

    @property
    def label(self) -> str:
        """The folder, or the catalog."""
        if self.catalog is None:
            return self.root
        return f"{self.catalog.kind} {self.root}".rstrip()

    def open(self, request: Mapping[str, str]) -> LanceDataset:
        """Return the requested table (`table`) at the requested version (`at`)."""
        at = request.get("at") or None
        if self.catalog is not None:
            return self.catalog.open(self._path(request), parse_version(at), self._options())
        return open_version(self._uri(request), at, self._options())

    def query(self, request: Mapping[str, str], text: str, limit: int) -> Query:
        """Return a SQL query over the requested table."""
        at, options = request.get("at") or None, self._options()
        if self.catalog is None:
            return Query(self._uri(request), at, options, text, limit)
        location, own = self.catalog.location(self._path(request))
        return Query(location, at, {**(options or {}), **own} or None, text, limit)

    def _uri(self, request: Mapping[str, str]) -> str:
        name = self._name(request)
        return self.root if name == "." else f"{self.root.rstrip('/')}/{name}"

    def _path(self, request: Mapping[str, str]) -> tuple[str, ...]:
        return self._paths[self._name(request)]

    def _name(self, request: Mapping[str, str]) -> str:
        name = request.get("table", "")
        if name not in self._table_names and name not in self.names():
            owner = "folder" if self.catalog is None else "catalog"
            raise NotFoundError(f"the {owner} contains no table with this name", name=name)
        return name

    def _options(self) -> dict[str, str] | None:
        return None if self.storage_options is None else dict(self.storage_options)

    def keep(self, result: pa.Table) -> str | None:
        """Keep the result of a query, whose rows have no ids, and return its name.

        Large results are not kept.
        """
        if result.nbytes > RESULT_BYTES_MAX:
            return None
        name = surroundings.new_uuid().hex
        self._results.append((name, result))
        return name

    def result(self, name: str) -> pa.Table:
        """Return a kept result."""
        found = dict(self._results).get(name)
        if found is None:
            raise NotFoundError("the result is no longer available; run the query again")
        return found


@dataclass(frozen=True, slots=True)
class Download:
    """A response other than JSON; one with a file name is saved by the browser."""

    data: bytes
    media_type: str
    file_name: str | None = None


def list_tables(shown: Shown, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables and the permissions of the page."""
    names = shown.names()
    permissions = {"root": shown.label, "can_write": shown.can_write}
    return {**permissions, "tables": names, "groups": shown.groups()}


def overview(shown: Shown, _: Mapping[str, str]) -> dict[str, Any]:
    """Return the number of rows, the size and the version of each table."""
    facts = [_facts(shown, name) for name in shown.names()[:TABLES_MAX]]
    return {"tables": facts, "groups": shown.groups()}


def _facts(shown: Shown, name: str) -> dict[str, Any]:
    try:
        snapshot = shown.open({"table": name}).snapshot
        return {
            "name": name,
            "rows": snapshot.num_rows,
            "columns": len(snapshot.schema.fields),
            "bytes": snapshot.data_bytes,
            "version": snapshot.version,
            "committed": committed_at(snapshot),
        }
    except DatasetNotFoundError:
        return {"name": name, "error": "declared, but not written"}
    except LanceletError as error:  # a damaged table must not hide the others
        return {"name": name, "error": str(error)}


def describe(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Return the contents of a version of a table."""
    table = shown.open(request)
    snapshot = table.snapshot
    blobs = {each.name for each in snapshot.schema.fields if each.is_blob}
    names = table.schema.names
    return {
        "version": snapshot.version,
        "branch": snapshot.manifest.branch,
        "committed": committed_at(snapshot),
        "rows": snapshot.num_rows,
        "deleted": int(snapshot.deleted_by_fragment.sum()),
        "fragments": len(snapshot.fragments),
        "bytes": snapshot.data_bytes,
        "file_version": snapshot.manifest.data_version.value,
        "has_stable_row_ids": snapshot.manifest.uses_stable_row_ids,
        "columns": [_column(each, is_blob=each.name in blobs) for each in table.schema],
        "metadata": dict(snapshot.manifest.table_metadata),
        "filter_words": [
            *(path for each in table.schema for path in _paths(each, "")),
            *_FILTER_WORDS,
            *sorted(f"{name}(" for name in FUNCTIONS if name.isidentifier()),
        ],
        "sql_words": ["dataset", *map(sql_name, names), *_SQL_WORDS],
    }


def change(shown: Shown, request: Mapping[str, str]) -> dict[str, Any]:
    """Preview a change; with `apply`, apply it if the page may change tables."""
    apply = request.get("apply") == "1"
    if apply and not shown.can_write:
        raise UnsupportedError("the viewer is read-only; start it with --write to change tables")
    table = shown.open(request)
    options: Any = {} if apply else {"dry_run": True}
    match request.get("action"):
        case "delete":
            done: Any = table.delete(text_of(request, "filter"), **options)
        case "update":
            values = {text_of(request, "column"): text_of(request, "value")}
            done = table.update(values, where=request.get("filter") or None, **options)
        case "restore":
            done = table.restore(**options)
        case "compact":
            done = table.optimize.compact_files(**options)
        case "tag":
            done = table.tags.create(text_of(request, "name"), **options)
        case other:
            actions = ["delete", "update", "restore", "compact", "tag"]
            raise InvalidInputError("unknown change", action=other, expected=actions)
    return {"text": str(done or "done"), "applied": apply, "version": table.version}


def text_of(request: Mapping[str, str], name: str) -> str:
    """Return a required argument."""
    if not request.get(name):
        raise InvalidInputError(f"{name} is missing")
    return request[name]


def number_of(
    request: Mapping[str, str], name: str, default: int = 0, *, most: int = _INTEGER_MAX
) -> int:
    """Return an integer argument.

    >>> number_of({"limit": "7"}, "limit"), number_of({}, "limit", 50)
    (7, 50)
    """
    text = request.get(name) or str(default)
    if not _DIGITS.fullmatch(text) or int(text) > most:
        message = f"{name} must be an integer between 0 and {most}"
        raise InvalidInputError(message, found=text[:40])
    return int(text)


def names_of(request: Mapping[str, str]) -> list[str] | None:
    """Return the requested columns, a JSON array of names; None for all."""
    text = request.get("columns")
    if not text:
        return None
    try:
        names = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInputError("columns must be a JSON array of names", found=text)
    return names or None


def sql_name(name: str) -> str:
    """Quote a column name for SQL, where unquoted names are in lower case.

    >>> sql_name("price"), sql_name("Price"), sql_name("order")
    ('price', '"Price"', '"order"')
    """
    if _SQL_NAME.fullmatch(name) and name.upper() not in _SQL_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _paths(column: pa.Field, parent: str) -> Iterator[str]:
    """Yield the paths of a column and of its nested fields, as filters spell them."""
    path = parent + quote_name(column.name)
    yield path
    if pa.types.is_struct(column.type):
        for child in column.type:
            yield from _paths(child, f"{path}.")


def _column(column: pa.Field, *, is_blob: bool) -> dict[str, Any]:
    kind = "nested" if column.type.num_fields or is_blob else "plain"
    if is_vector(column.type):
        kind = "vector"
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        kind = "text"
    return {
        "name": column.name,
        "type": str(column.type),
        "nullable": column.nullable,
        "kind": kind,
        "number": pa.types.is_integer(column.type) or pa.types.is_floating(column.type),
    }
