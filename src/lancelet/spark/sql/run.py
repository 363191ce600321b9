"""SQL over Lance tables: `sql(spark, text)`, which extends the SQL of Spark.

sql(spark, "SELECT count(*) FROM lance.`/data/orders` WHERE price > :least", least=10)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pyspark import errors
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lancelet.errors import LanceletError
from lancelet.spark.sql import (
    alter,
    changes,
    definitions,
    listing,
    materialized,
    merge_rows,
    namespaces,
    upkeep,
)
from lancelet.spark.sql.names import attached, find_references, views_in
from lancelet.spark.sql.parser import StatementParser
from lancelet.spark.sql.query import plan_query
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source

_WORD: Final = re.compile(r"\w+")
_NO_NAMES: Final = frozenset(
    {
        "a",
        "an",
        "as",
        "at",
        "be",
        "branch",
        "by",
        "column",
        "create",
        "drop",
        "for",
        "from",
        "in",
        "index",
        "is",
        "it",
        "not",
        "of",
        "on",
        "or",
        "rows",
        "set",
        "table",
        "tag",
        "the",
        "to",
        "type",
        "update",
        "use",
        "using",
        "value",
        "values",
        "version",
        "where",
        "with",
    }
)
"""Words of messages that are no names in a statement."""
_POINTER: Final = re.compile(r"line \d+, column \d+:\n")
_QUERY_IN_ERROR: Final = re.compile(r"\n== SQL \(.*\) ==\n(.*)\n( *\^+)")
_QUOTED: Final = re.compile(r"[`'\"]([^`'\"]+)[`'\"]")

Handler = Callable[[Session, StatementParser], DataFrame | None]

_HANDLERS: Final[Mapping[str, tuple[Handler, ...]]] = {
    "INSERT": (changes.insert,),
    "UPDATE": (changes.update,),
    "DELETE": (changes.delete,),
    "MERGE": (merge_rows.merge,),
    "TRUNCATE": (changes.truncate,),
    "CREATE": (
        upkeep.create_index,
        upkeep.create_ref,
        namespaces.create_namespace,
        definitions.create_view,
        materialized.create,
        definitions.create,
    ),
    "REPLACE": (definitions.create,),
    "DROP": (upkeep.drop_ref, namespaces.drop_namespace, definitions.drop),
    "ALTER": (alter.alter,),
    "DESCRIBE": (namespaces.describe_namespace, listing.describe),
    "DESC": (namespaces.describe_namespace, listing.describe),
    "SHOW": (namespaces.show_names, listing.show),
    "CACHE": (definitions.cache,),
    "USE": (namespaces.use,),
    "ANALYZE": (upkeep.analyze,),
    "EXPLAIN": (listing.explain,),
    "OPTIMIZE": (upkeep.optimize,),
    "VACUUM": (upkeep.vacuum,),
    "RESTORE": (upkeep.restore,),
    "REFRESH": (upkeep.refresh, materialized.refresh),
}
"""Functions that run a statement, by its first word; they return None if no table is Lance."""


def sql(spark: SparkSession, text: str, **parameters: Any) -> DataFrame:
    """Run an SQL statement on Lance tables and return its result.

    A table is named by its path, as ``lance.`/data/t` ``, by its name in an attached namespace, as
    `lake.db.t`, or, without Connect, by a view created here with `USING lance`. The suffixes
    `@branch`, `VERSION AS OF` and `TIMESTAMP AS OF` select a version. Other statements are passed
    to Spark unchanged.

    Args:
        spark: The Spark session.
        text: One statement; the guide has the grammar.
        parameters: Values of `:name`, and data frames for `{name}`.
    """
    frames = {name: each for name, each in parameters.items() if isinstance(each, DataFrame)}
    values = {name: each for name, each in parameters.items() if name not in frames}
    source = Source(text)
    session = Session(spark, values, frames)
    try:
        return _run(session, namespaces.with_current_namespace(session, source))
    except Exception as error:
        found = _without_query(source, error)
        _add_position(spark, source, found)
        if found is error:
            raise
        raise found from None


def _run(session: Session, source: Source) -> DataFrame:
    statement, given = _without_with(session, source)
    if statement.tokens:
        for handler in _HANDLERS.get(statement.tokens[0].word, ()):
            views = views_in(session.spark, statement)
            done = handler(given, StatementParser(statement, attached(session.spark), views))
            if done is not None:
                return done
    return plan_query(session, source).run()


def _without_with(session: Session, source: Source) -> tuple[Source, Session]:
    """Return a statement that changes rows without the WITH clause before it."""
    tokens = source.tokens
    if not tokens or tokens[0].word != "WITH":
        return source, session
    depth = 0
    for token in tokens:
        depth += (token.kind == "L_PAREN") - (token.kind == "R_PAREN")
        if not depth and token.word in {"INSERT", "UPDATE", "DELETE", "MERGE"}:
            rest = Source(source.text[token.start :], source)
            return rest, replace(session, with_clause=source.text[: token.start].rstrip())
        if not depth and token.clause in {"SELECT", "FROM", "VALUES", "TABLE"}:
            break
    return source, session


def _without_query(source: Source, error: Exception) -> Exception:
    """Return an error of a task without the generated query that Spark shows in it.

    Spark marks the expression that failed; the position is that of its text in the statement.
    """
    java_error = getattr(error, "java_exception", None)
    message = str(error if java_error is None else java_error.getMessage())
    match = _QUERY_IN_ERROR.search(message)
    if match is None:
        return error
    text, marks = match[1], match[2]
    marked = text[marks.index("^") : len(marks.rstrip())].partition("_pyspark_")[0].strip()
    message = message[: match.start()].rstrip()
    condition = re.match(r"\[([\w.]+)\] ", message)
    kind = getattr(errors, type(error).__name__, errors.SparkRuntimeException)
    found: Exception = kind(
        message=message if condition is None else message[condition.end() :],
        errorClass=None if condition is None else condition[1],
        messageParameters={},
    )
    start = source.text.find(marked)
    if start < 0:  # values are in parentheses in generated queries
        marked = marked.removeprefix("(").removesuffix(")").strip()
        start = source.text.find(marked)
    if marked and start >= 0:
        found.add_note(source.pointer(start))
    return found


def _add_position(spark: SparkSession, source: Source, error: Exception) -> None:
    """Add a note with the position of the word that an error is about, unless it has one."""
    shown = [str(error), *getattr(error, "__notes__", ())]
    if any(_POINTER.search(each) for each in shown):
        return
    references = find_references(source, attached(spark))
    if not references and isinstance(error, PySparkException):
        return  # a statement without Lance tables, with Spark's own message
    facts = error.facts.values() if isinstance(error, LanceletError) else ()
    exact = {str(each).lower() for each in facts}
    exact |= {each.lower() for each in _QUOTED.findall(shown[0])}
    loose = {each.lower() for each in _WORD.findall(shown[0])} - _NO_NAMES
    tables = {part.lower() for each in references for part in each.parts}
    tokens = [each for each in source.tokens[1:] if each.text.lower() not in tables]
    starts = [each.start for each in tokens if each.text.lower() in exact]
    starts += [each.start for each in tokens if each.text.lower() in loose]
    starts += [each.start for each in references] or [each.start for each in source.tokens[1:]]
    error.add_note(source.pointer(starts[0] if starts else source.start))
