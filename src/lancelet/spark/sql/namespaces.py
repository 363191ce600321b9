"""Namespaces: CREATE, DROP, DESCRIBE and SHOW NAMESPACES, SHOW TABLES, and USE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lancelet.dataset.named_table import namespace_module
from lancelet.spark.frames import quoted
from lancelet.spark.sql.names import (
    attached,
    is_missing,
    names_of_queries,
    table_names,
    table_positions,
)
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, Token, edited, follows_dot
from lancelet.spark.sql.target import empty_result

NAMESPACES: Final = ("NAMESPACE", "SCHEMA", "DATABASE")
_CURRENT: Final[WeakKeyDictionary[SparkSession, tuple[str, ...]]] = WeakKeyDictionary()
"""The namespace of USE in each session."""
_BEFORE_NAMES: Final = frozenset(
    {
        "CLONE",
        "DELETE",
        "DESC",
        "DESCRIBE",
        "DETAIL",
        "EXTENDED",
        "FORMATTED",
        "FROM",
        "HISTORY",
        "IN",
        "INTO",
        "OPTIMIZE",
        "OVERWRITE",
        "RESTORE",
        "TABLE",
        "UPDATE",
        "USING",
        "VACUUM",
        "EXISTS",
    }
)
"""Keywords that the name of a table may follow."""


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


def create_namespace(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run CREATE NAMESPACE."""
    parser.need("CREATE")
    if not parser.take_any(*NAMESPACES):
        return None
    may_be_there = parser.take("IF", "NOT", "EXISTS")
    found = namespace_parts(session, parser)
    if found is None:
        return None
    client, parts = found
    properties: dict[str, str] = {}
    while parser.token is not None:
        if kind := parser.take_any("COMMENT", "LOCATION"):
            properties[kind.lower()] = parser.string(f"a {kind.lower()}")
        elif parser.take("WITH") and parser.take_any("PROPERTIES", "DBPROPERTIES"):
            properties |= parser.properties()
        else:
            parser.fail("expected COMMENT, LOCATION or WITH PROPERTIES")
    names = namespace_module()
    request = names.CreateNamespaceRequest(
        id=parts, mode="ExistOk" if may_be_there else "Create", properties=properties or None
    )
    try:
        client.create_namespace(request)
    except Exception as error:
        if may_be_there and "AlreadyExists" in type(error).__name__:
            return empty_result(session)
        raise
    return empty_result(session)


def drop_namespace(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DROP NAMESPACE."""
    parser.need("DROP")
    if not parser.take_any(*NAMESPACES):
        return None
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


def describe_namespace(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run DESCRIBE NAMESPACE."""
    if not parser.take_any("DESCRIBE", "DESC") or not parser.take_any(*NAMESPACES):
        return None
    parser.take("EXTENDED")
    start = parser.number
    found = namespace_parts(session, parser)
    if found is None:
        return None
    parser.end()
    client, parts = found
    request = namespace_module().DescribeNamespaceRequest(id=parts)
    properties = client.describe_namespace(request).properties or {}
    rows = [
        ("Catalog Name", parser.source.tokens[start].text),
        ("Namespace Name", ".".join(parts)),
        *((f"Property {name}", value) for name, value in sorted(properties.items())),
    ]
    return session.spark.createDataFrame(rows, "info_name string, info_value string")


def show_names(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run SHOW TABLES and SHOW NAMESPACES."""
    parser.need("SHOW")
    kind = parser.take_any("TABLES", *(f"{each}S" for each in NAMESPACES))
    if kind is None or not parser.take_any("IN", "FROM"):
        return None
    found = namespace_parts(session, parser)
    if found is None:
        return None
    parser.take("LIKE")
    pattern = "*" if parser.token is None else parser.string("a pattern")
    parser.end()
    client, parts = found
    if kind == "TABLES":
        rows = [
            (".".join(parts), name, False)
            for name in table_names(client, tuple(parts))
            if _is_like(name, pattern)
        ]
        ddl = "namespace string, tableName string, isTemporary boolean"
        return session.spark.createDataFrame(rows, ddl)
    names = [
        (".".join([*parts, name]),) for name in _children(client, parts) if _is_like(name, pattern)
    ]
    return session.spark.createDataFrame(names, "namespace string")


def _is_like(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern of Spark: `*` is any text, and `|` separates."""
    parts = (re.escape(each.strip()).replace(r"\*", ".*") for each in pattern.split("|"))
    return any(re.fullmatch(each, name, re.IGNORECASE) for each in parts)


def _children(client: Any, parts: list[str]) -> Iterator[str]:
    """Yield the child namespaces."""
    names, page = namespace_module(), None
    while True:
        answer = client.list_namespaces(names.ListNamespacesRequest(id=parts, page_token=page))
        yield from answer.namespaces
        page = answer.page_token
        if not page:
            return


def use(session: Session, parser: StatementParser) -> DataFrame | None:
    """Run USE: names without a namespace then also refer to tables of an attached one."""
    parser.need("USE")
    parser.take_any(*NAMESPACES, "CATALOG")
    _CURRENT.pop(session.spark, None)
    start = parser.number
    found = namespace_parts(session, parser)
    if found is None:
        return None
    parser.end()
    tokens = parser.source.tokens[start:]
    _CURRENT[session.spark] = tuple(each.text for each in tokens if each.kind != "DOT")
    return empty_result(session)


def with_current_namespace(session: Session, source: Source) -> Source:
    """Return a statement with the namespace of USE before the names of its tables.

    Names of temporary views and of common table expressions come first.
    """
    current = _CURRENT.get(session.spark)
    tokens = source.tokens
    client = attached(session.spark).get(current[0].lower()) if current else None
    if current is None or client is None or not tokens:
        return source
    hidden = names_of_queries(tokens)
    positions = table_positions(tokens)
    first = tokens[0].word
    keywords = _BEFORE_NAMES | ({"ON"} if first in {"CREATE", "DROP", "REFRESH"} else set())
    edits = []
    for number, token in enumerate(tokens):
        before, after = tokens[number - 1] if number else None, tokens[number + 1 : number + 2]
        is_name = token.kind == "IDENTIFIER" or token.text.replace("_", "a").isalnum()
        is_single = not follows_dot(before) and not (after and after[0].kind == "DOT")
        can_be_table = number in positions or (before is not None and before.word in keywords)
        if not (is_name and is_single and can_be_table) or token.text.lower() in hidden:
            continue
        is_new = first in {"CREATE", "REPLACE"} and number in _new_table(tokens)
        if is_new or (
            not _is_view(session, token.text) and _has_table(client, (*current[1:], token.text))
        ):
            prefix = ".".join(map(quoted, current))
            edits.append((token.start, token.start, f"{prefix}."))
    if first == "SHOW" and tokens[-1].word in {"TABLES", *(f"{each}S" for each in NAMESPACES)}:
        edits.append((len(source.text), len(source.text), f" IN {'.'.join(map(quoted, current))}"))
    return Source(edited(source.text, edits), source) if edits else source


def _new_table(tokens: Sequence[Token]) -> set[int]:
    """Return the index of the name of the table that a statement creates."""
    keywords = [each.word for each in tokens[:7]]
    if "TABLE" not in keywords[:4]:
        return set()
    index = keywords.index("TABLE") + 1
    return {index + 3 if keywords[index : index + 3] == ["IF", "NOT", "EXISTS"] else index}


def _has_table(client: Any, path: tuple[str, ...]) -> bool:
    names = namespace_module()
    try:
        client.describe_table(names.DescribeTableRequest(id=list(path)))
    except Exception as error:  # exceptions of custom namespaces have no common class
        if is_missing(error) or isinstance(error, names.InvalidInputError):
            return False  # there is no such name, or another kind of table has it
        raise
    return True


def _is_view(session: Session, name: str) -> bool:
    try:
        return bool(session.spark.catalog.getTable(name).isTemporary)
    except AnalysisException:
        return False
