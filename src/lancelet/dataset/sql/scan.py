"""Queries that are nothing but a scan of one dataset, which needs no other engine.

    SELECT * FROM dataset WHERE json_get_int(doc, 'age') > 28      columns and a filter
    SELECT count(*) FROM dataset                                   DuckDB

Rows keep the types of the dataset then, and its functions on JSON can be used. A query is only
taken for a scan if it means the same to both: what they may read differently, such as `/`, is left
to DuckDB.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from lancelet.errors import InvalidInputError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from lancelet.dataset.scan.scanner import LanceScanner

_QUERY: Final = re.compile(
    r"\s*SELECT\s+(?P<columns>\*|\w+(?:\s*,\s*\w+)*)\s+FROM\s+(?P<table>\w+)"
    r"(?:\s+WHERE\s+(?P<filter>.+?))?\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_TEXTS: Final = re.compile(r"'(?:[^']|'')*'")
_READ_ALIKE: Final = re.compile(r"[\w\s.,()<>=!+*-]*", re.ASCII)
_CALL: Final = re.compile(r"(\w+)\s*\(")
_NO_FUNCTIONS: Final = frozenset({"and", "or", "not", "in", "where", "between"})


def scan_of_query(text: str, name: str, dataset: Any, batch_size: int) -> LanceScanner | None:
    """Return the scan that a query over one dataset is, or None if it is more than that."""
    query = _QUERY.fullmatch(text)
    if query is None or query["table"].lower() != name.lower():
        return None
    condition = query["filter"]
    if condition is not None and not _is_read_alike(condition):
        return None
    options: dict[str, Any] = {"filter": condition, "batch_size": batch_size}
    if query["columns"] != "*":
        names = re.findall(r"\w+", query["columns"])
        if not set(names).issubset(dataset.schema.names):
            return None
        options |= {"columns": names, "with_row_id": False, "with_row_address": False}
    try:
        found: LanceScanner = dataset.scanner(**options)
    except (InvalidInputError, NotFoundError, UnsupportedError):
        return None  # DuckDB may understand it, or says what is wrong
    return found


def _is_read_alike(condition: str) -> bool:
    """Return whether a condition means the same to everybody."""
    bare = _TEXTS.sub("", condition)
    called = {found.lower() for found in _CALL.findall(bare)} - _NO_FUNCTIONS
    return _READ_ALIKE.fullmatch(bare) is not None and all(
        each.startswith("json_") for each in called
    )
