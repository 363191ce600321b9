"""Resolve table names in statements: a path, a name in an attached namespace, or a view.

    lance.`/data/t`            a path
    lake.sales.orders          catalog(spark, "lake", "dir", root="/data/lake")
    orders                     CREATE TEMPORARY VIEW orders USING lance OPTIONS (path '/data/t')

A suffix selects the version: `@branch`, `VERSION AS OF 3`, `VERSION AS OF 'tag'`, `TIMESTAMP AS OF
'2024-02-29 12:00:00'`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from lancelet.dataset.named_table import NamedTable, namespace_module
from lancelet.errors import InvalidInputError, NotFoundError, UnsupportedError, similar_names
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.frames import quoted
from lancelet.spark.options import STORAGE_PREFIX, ReadOptions
from lancelet.spark.sql.source import Source, Token, call_stop
from lancelet.values import dataclass

PATHS: Final = "lance"
_ATTACHED: Final[WeakKeyDictionary[SparkSession, dict[str, Any]]] = WeakKeyDictionary()
_VIEWS: Final[WeakKeyDictionary[SparkSession, dict[str, tuple[Reference, DataFrame]]]] = (
    WeakKeyDictionary()
)
_SYMBOLS: Final = frozenset(
    {"DOT", "COMMA", "L_PAREN", "R_PAREN", "STRING", "NUMBER", "SEMICOLON", "EQ", "STAR", "COLON"}
)
_INTERVALS: Final = (["DASH", "INTERVAL"], ["PLUS", "INTERVAL"])
_UNITS: Final = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "YEAR")
_CLAUSES: Final = frozenset(
    {"SELECT", "WHERE", "GROUP", "ORDER", "HAVING", "WINDOW", "SET", "SORT"}
)
_ENDS_OF_VALUES: Final = frozenset({"COMMA", "L_PAREN", "R_PAREN", "EQ"})
_BEFORE_TABLES: Final = frozenset(
    {"JOIN", "INTO", "TABLE", "UPDATE", "USING", "OVERWRITE", "EXISTS"}
)


def catalog(spark: SparkSession, name: str, kind: object, **properties: str) -> None:
    """Make a namespace a catalog of the session, so that `sql` finds its tables as `name.a.b`.

    Args:
        spark: The session.
        name: The first part of the table names.
        kind: `dir`, `rest`, `glue`, `hive`, `iceberg`, `polaris` or `unity`, the path of a
            namespace class, or a namespace object with the interface of
            `lance_namespace.LanceNamespace`.
        properties: Properties of the namespace, such as `root` or `uri`.
    """
    if name.lower() == PATHS or not name:
        raise InvalidInputError(f"`{PATHS}` is the prefix of paths; choose another name", name=name)
    client = _connect(kind, properties) if isinstance(kind, str) else kind
    _ATTACHED.setdefault(spark, {})[name.lower()] = client


def attach(spark: SparkSession, name: str, kind: object, **properties: str) -> None:
    """Make a namespace a catalog of the session. Deprecated: use `catalog`."""
    warnings.warn("use lancelet.spark.catalog", DeprecationWarning, stacklevel=2)
    catalog(spark, name, kind, **properties)


def detach(spark: SparkSession, name: str) -> None:
    """Remove a catalog from the session."""
    if _ATTACHED.get(spark, {}).pop(name.lower(), None) is None:
        raise NotFoundError("the session has no catalog of this name", name=name)


def attached(spark: SparkSession) -> Mapping[str, Any]:
    """Return the attached namespaces of a session by lower-case name."""
    return _ATTACHED.get(spark, {})


def record_view(spark: SparkSession, name: str, reference: Reference) -> None:
    """Record that an existing view selects a whole Lance table.

    Does nothing with Spark Connect, where a changed view cannot be detected: there a frame is
    resolved by the name of the view when it is used.
    """
    if not is_remote():
        made = replace(reference, view=name)
        _VIEWS.setdefault(spark, {})[name.lower()] = made, spark.table(quoted(name))


def views_in(spark: SparkSession, source: Source) -> Mapping[str, Reference]:
    """Return the tables of the recorded views that a statement names.

    Views that have been replaced since are ignored.
    """
    recorded = _VIEWS.get(spark, {})
    references = {}
    for name in {token.text.lower() for token in source.tokens} & recorded.keys():
        reference, frame = recorded[name]
        try:
            is_unchanged = spark.table(quoted(name)).sameSemantics(frame)
        except AnalysisException:
            is_unchanged = False
        if is_unchanged:
            references[name] = reference
        else:
            del recorded[name]
    return references


def _connect(kind: str, properties: Mapping[str, str]) -> Any:
    namespace_module()  # raises with the name of the extra
    from lancelet.namespace import connect  # noqa: PLC0415 - an extra

    return connect(kind, properties)


@dataclass(frozen=True, slots=True)
class Reference:
    """A table name in a statement: its parts, version, and position."""

    parts: tuple[str, ...]
    start: int
    stop: int
    branch: str | None = None
    version: str | None = None
    asof: str | None = None
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    view: str | None = None

    @property
    def own(self) -> str:
        """The name of the table in the statement unless it has an alias."""
        return self.view or self.parts[-1]

    @property
    def is_path(self) -> bool:
        """Whether the table is named by a path."""
        return len(self.parts) == 2 and self.parts[0].lower() == PATHS

    @property
    def is_pinned(self) -> bool:
        """Whether a version is selected."""
        return self.version is not None or self.asof is not None

    def select_options(self, *, storage: bool) -> dict[str, str]:
        """Return the storage options without their prefix, or all options except those."""
        if not storage:
            return {key: value for key, value in self.options if not key.startswith(STORAGE_PREFIX)}
        start = len(STORAGE_PREFIX)
        return {key[start:]: value for key, value in self.options if key.startswith(STORAGE_PREFIX)}

    @property
    def title(self) -> str:
        """The name as written in the statement."""
        return self.view or (self.parts[1] if self.is_path else ".".join(self.parts))


def find_references(
    source: Source, catalogs: Mapping[str, Any], views: Mapping[str, Reference] | None = None
) -> list[Reference]:
    """Return the Lance tables of a statement in text order."""
    tokens = source.tokens
    hidden = names_of_queries(tokens)
    views = {name: each for name, each in (views or {}).items() if name not in hidden}
    references = []
    number = 0
    in_tables = table_positions(tokens)
    while number < len(tokens):
        made = reference_at(source, number, catalogs, views)
        # `lance` may also be the alias of a table in the query.
        is_sure = (
            made is not None
            and made[0].view is None
            and made[0].is_path
            and "/" in made[0].parts[1]
        )
        if made is None or (not is_sure and number not in in_tables):
            number += 1
            continue
        reference, number = made
        is_call = number < len(tokens) and tokens[number].kind == "L_PAREN"
        can_be_called = reference.view is not None or not reference.is_path
        if not (can_be_called and is_call and reference.stop == tokens[number].start):
            references.append(reference)
    return references


def names_of_queries(tokens: tuple[Token, ...]) -> set[str]:
    """Return possible names of common table expressions.

    Includes `t` of `WITH t (a, b) AS (SELECT ...)`.
    """
    names = set()
    for number, token in enumerate(tokens):
        if token.word != "AS" or tokens[number + 1 : number + 2] == ():
            continue
        position = number - 1
        if position > 0 and tokens[position].kind == "R_PAREN":
            while position > 0 and tokens[position].kind != "L_PAREN":
                position -= 1
            position -= 1
        if position > 0 and tokens[number + 1].kind == "L_PAREN":
            names.add(tokens[position].text.lower())
    return names


def reference_at(
    source: Source,
    number: int,
    catalogs: Mapping[str, Any],
    views: Mapping[str, Reference] | None = None,
) -> tuple[Reference, int] | None:
    """Parse the table reference at a token; return it and the index of the next token.

    `views` are the views it may name.
    """
    tokens = source.tokens
    start = number
    if number >= len(tokens) or not _is_name(tokens[number]):
        return None
    if number and tokens[number - 1].kind == "DOT":
        return None
    parts = [tokens[number].text]
    first = parts[0].lower()
    number += 1
    while (
        number + 1 < len(tokens)
        and tokens[number].kind == "DOT"
        and _is_name(tokens[number + 1], after_dot=True)
    ):
        parts.append(tokens[number + 1].text)
        number += 2
    is_path = first == PATHS and len(parts) == 2 and tokens[number - 1].kind == "IDENTIFIER"
    view = (views or {}).get(first) if len(parts) == 1 else None
    if view is None and not is_path and not (first in catalogs and len(parts) > 1):
        return None
    branch = version = asof = None
    if number + 1 < len(tokens) and tokens[number].kind == "PARAMETER":
        branch = tokens[number + 1].text
        number += 2
    ahead = [each.word for each in tokens[number : number + 4]]
    skip = 1 if ahead[:1] == ["FOR"] else 0
    if ahead[skip + 1 : skip + 3] == ["AS", "OF"]:
        word = ahead[skip]
        value = number + skip + 3
        if word in {"VERSION", "SYSTEM_VERSION"}:
            version, number = _literal(source, value, ("NUMBER", "STRING"))
        elif word in {"TIMESTAMP", "SYSTEM_TIME"}:
            asof, number = time_text(source, value)
    options = {} if view is None else dict(view.options)
    if [each.kind for each in tokens[number : number + 2]] == ["WITH", "L_PAREN"]:
        properties, number = properties_at(source, number + 1)
        options |= {name.lower(): value for name, value in properties.items()}
    stop = tokens[number - 1].stop
    made = Reference(
        tuple(parts) if view is None else view.parts,
        tokens[start].start,
        stop,
        branch,
        version,
        asof,
        tuple(options.items()),
        None if view is None else view.view,
    )
    return made, number


def properties_at(source: Source, number: int) -> tuple[dict[str, str], int]:
    """Parse properties such as ('a.b' = 'c', d = 3); return them and the next token's index."""
    tokens = source.tokens

    def token(kind: str | None, description: str) -> Token:
        nonlocal number
        properties = tokens[number] if number < len(tokens) else None
        if properties is None or (
            properties.kind != kind if kind else properties.kind in _ENDS_OF_VALUES
        ):
            source.fail(
                f"expected {description}",
                len(source.text) if properties is None else properties.start,
            )
        number += 1
        return properties

    def is_next(kind: str) -> bool:
        return number < len(tokens) and tokens[number].kind == kind

    properties: dict[str, str] = {}
    token("L_PAREN", "( and properties")
    while not is_next("R_PAREN"):
        parts = [token(None, "a property")]
        while parts[0].kind != "STRING" and is_next("DOT"):
            number += 1
            parts.append(token(None, "a property"))
        number += is_next("EQ")
        sign = "-" if is_next("DASH") else ""
        number += bool(sign)
        value = token(None, "the value of a property")
        properties[".".join(each.text for each in parts)] = sign + value.text
        if not is_next("R_PAREN"):
            token("COMMA", "COMMA or )")
    return properties, number + 1


def time_text(source: Source, number: int) -> tuple[str, int]:
    """Return the time of TIMESTAMP AS OF as SQL, and the index of the next token.

    A time is a string, a call such as `now()`, or an expression in parentheses, plus or minus
    intervals.
    """
    tokens = source.tokens
    start = number
    if number < len(tokens) and tokens[number].word in {"TIMESTAMP", "DATE"}:
        number += 1
    is_call = [each.kind for each in tokens[number + 1 : number + 2]] == ["L_PAREN"]
    if number < len(tokens) and (tokens[number].kind == "L_PAREN" or is_call):
        stop = call_stop(tokens, number if is_call else number - 1)
        number = next(n for n, each in enumerate(tokens) if each.stop == stop) + 1
    elif number < len(tokens) and tokens[number].clause.startswith("CURRENT_"):
        number += 1
    else:
        _, number = _literal(source, number, ("STRING",))
    while [each.kind for each in tokens[number : number + 2]] in _INTERVALS:
        number = min(number + 3, len(tokens))
        if number < len(tokens) and tokens[number].word.removesuffix("S") in _UNITS:
            number += 1
    return source.text[tokens[start].start : tokens[number - 1].stop], number


def _literal(source: Source, number: int, kinds: tuple[str, ...]) -> tuple[str, int]:
    tokens = source.tokens
    if number >= len(tokens) or tokens[number].kind not in kinds:
        position = tokens[number].start if number < len(tokens) else len(source.text)
        source.fail("a version must be a constant: a number, a tag or a quoted timestamp", position)
    return tokens[number].text, number + 1


def _is_name(token: Token, *, after_dot: bool = False) -> bool:
    if token.kind == "IDENTIFIER":
        return True
    if token.kind in _SYMBOLS:
        return False
    is_word = token.text[:1].isalpha() or token.text[:1] == "_"
    return is_word and (after_dot or token.kind == "VAR" or token.text.isidentifier())


def table_positions(tokens: tuple[Token, ...]) -> set[int]:
    """Return the indices of tokens at which the grammar expects a table."""
    positions: set[int] = set()
    # Per open parenthesis: whether it contains a query, and whether the FROM clause is open.
    levels = [(True, False)]
    for number, token in enumerate(tokens):
        has_query, in_from = levels[-1]
        before = tokens[number - 1] if number else None
        if token.kind == "L_PAREN":
            opens = number in positions or (before is not None and number - 1 in positions)
            levels.append((opens, opens))
            if opens:
                positions.add(number + 1)
        elif token.kind == "R_PAREN":
            if len(levels) > 1:
                levels.pop()
        elif token.word == "FROM" and before is not None and _is_comparison(tokens, number):
            continue
        elif token.word == "FROM" and (has_query or before is None or before.kind == "L_PAREN"):
            levels[-1] = (True, True)
            positions.add(number + 1)
        elif token.clause in _CLAUSES:
            levels[-1] = (has_query or token.word == "SELECT", False)
        elif token.kind == "COMMA" and in_from:
            positions.add(number + 1)
        elif token.word in _BEFORE_TABLES:
            if token.word == "JOIN":
                levels[-1] = (has_query, True)
            positions.add(number + 1)
    return positions


def _is_comparison(tokens: tuple[Token, ...], number: int) -> bool:
    """Return whether a FROM is that of IS [NOT] DISTINCT FROM."""
    keywords = [each.word for each in tokens[max(number - 2, 0) : number]]
    return keywords[-1:] == ["DISTINCT"] and keywords[0] in {"IS", "NOT"}


def locate(
    spark: SparkSession,
    source: Source,
    reference: Reference,
    *,
    valid_options: AbstractSet[str] = frozenset(),
) -> TableRef:
    """Return the location of the table that a statement names; unknown names are an error."""
    for name in reference.select_options(storage=False):
        if name not in valid_options:
            source.fail(
                f"unknown option `{name}`{similar_names(name, sorted(valid_options))}",
                reference.start,
                expected=[*sorted(valid_options), f"{STORAGE_PREFIX}<name>"],
            )
    storage = reference.select_options(storage=True)
    if reference.is_path:
        table = TableRef.of(reference.parts[1], storage)
        if not reference.parts[1]:
            source.fail("the path of the table is empty", reference.start)
    else:
        named = named_table(spark, source, reference)
        try:
            uri, options, opened = named.opened(None)
        except Exception as error:  # exceptions of custom namespaces have no common class
            if is_missing(error):
                source.fail(_unknown_table_message(named), reference.start, table=reference.title)
            raise
        if opened.is_managed:
            raise UnsupportedError(
                "the namespace manages the versions of this table; use lancelet.dataset",
                table=reference.title,
            )
        table = TableRef.of(uri, {**options, **storage})
    branch = reference.branch
    return table if branch in {None, "main"} else table.on_branch(str(branch))


def named_table(spark: SparkSession, source: Source, reference: Reference) -> NamedTable:
    """Return a table of an attached namespace, which may not exist."""
    client = attached(spark).get(reference.parts[0].lower())
    if client is None:
        source.fail("unknown catalog; call lancelet.spark.catalog", reference.start)
    return NamedTable(client, reference.parts[1:])


def is_missing(error: Exception) -> bool:
    """Return whether a namespace error means that the name does not exist."""
    return isinstance(error, (LookupError, FileNotFoundError)) or "NotFound" in type(error).__name__


def _unknown_table_message(named: NamedTable) -> str:
    existing = list(table_names(named.client, named.table_id[:-1]))
    near = similar_names(named.table_id[-1], existing)
    return f"unknown table{near}"


def table_names(client: Any, parent: tuple[str, ...]) -> Iterator[str]:
    """Yield the tables directly in a namespace; none if the namespace does not exist."""
    names = namespace_module()
    page: str | None = None
    while True:
        try:
            answer = client.list_tables(names.ListTablesRequest(id=list(parent), page_token=page))
        except Exception as error:  # exceptions of custom namespaces have no common class
            if is_missing(error):
                return
            raise
        yield from answer.tables
        page = answer.page_token
        if not page:
            return


def read_options(spark: SparkSession, source: Source, reference: Reference) -> ReadOptions:
    """Return the read options for the table and version that a statement names."""
    table = locate(spark, source, reference)
    version, tag, asof = None, None, None
    if reference.version is not None:
        is_number = reference.version.isdigit()
        version = int(reference.version) if is_number else None
        tag = None if is_number else reference.version
    if reference.asof is not None:
        asof = _instant(spark, source, reference)
    return ReadOptions(table, version=version, tag=tag, asof=asof)


def _instant(spark: SparkSession, source: Source, reference: Reference) -> datetime:
    """Return the selected time; without a zone it is in the time zone of the session."""
    text = reference.asof or ""
    position = max(source.text.find(text, reference.start), reference.start)
    try:
        micros = spark.sql(f"SELECT unix_micros(CAST(({text}) AS TIMESTAMP))").collect()[0][0]
    except PySparkException:
        micros = None
    if micros is None:
        source.fail("invalid timestamp; write it as '2024-02-29 12:00:00'", position, found=text)
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
