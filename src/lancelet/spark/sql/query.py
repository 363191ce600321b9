"""Replace the Lance tables of a query by data frames and run it.

    SELECT id FROM lance.`/data/t` VERSION AS OF 3 WHERE price > 10
    SELECT id FROM {lancelet_0} AS `t` WHERE price > 10         lancelet_0: a scan of `id`, `price`

Only table names are replaced, so Spark parses, validates and runs the original query text. The data
frame of a table has the columns that the query uses and the rows that pass its predicates. Spark
evaluates the predicates again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, QueryContextType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote
from sqlglot import exp

from lancelet.spark.frames import quoted
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, schema_of_snapshot
from lancelet.spark.sql.aggregates import Aggregation, final_text, find_aggregation
from lancelet.spark.sql.analysis import Use, analyse, row_columns
from lancelet.spark.sql.names import (
    Reference,
    attached,
    find_references,
    read_options,
    views_in,
)
from lancelet.spark.sql.reading import OpenTable, frame_of, partial_frame, with_keys
from lancelet.spark.sql.search_calls import with_searches
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, Token, call_stop, edited, parse_query
from lancelet.values import dataclass

_FRAME: Final = "lancelet_"
_AFTER_WHERE: Final = frozenset(
    {
        "GROUP",
        "HAVING",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "UNION",
        "EXCEPT",
        "INTERSECT",
        "MINUS",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
    }
)
_AFTER_TABLE: Final = _AFTER_WHERE | {
    "WHERE",
    "JOIN",
    "INNER",
    "LEFT",
    "RIGHT",
    "FULL",
    "CROSS",
    "SEMI",
    "ANTI",
    "NATURAL",
    "LATERAL",
    "ON",
    "USING",
    "PIVOT",
    "UNPIVOT",
    "SELECT",
}
"""Keywords that can follow a table name and are not its alias."""
_ENDS: Final = frozenset({"R_PAREN", "COMMA", "PIPE", "PIPE_GT"})
_BRACES: Final = re.compile(r"[{}]")
_POSITION: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_FORMATTED: Final = re.compile(r"(\{\{|\}\})|\{\w+\}")


@dataclass(frozen=True, slots=True)
class Read:
    """A table scan of a query, with the partial aggregation that its tasks compute."""

    reference: Reference | None
    opened: OpenTable
    use: Use
    aggregation: Aggregation | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the scan reads all columns and rows without aggregation."""
        stored = {each.name for each in self.opened.columns.stored}
        is_all = stored <= set(self.use.columns)
        return is_all and self.use.filter is None and self.aggregation is None

    @property
    def bytes_read(self) -> int:
        """Estimated bytes of data files to read."""
        return self.opened.bytes_read(self.use.columns)

    @property
    def schema(self) -> StructType:
        """The schema of the scan."""
        return schema_of_snapshot(self.opened.snapshot, self.opened.options(self.use))

    def frame(self, spark: SparkSession) -> tuple[DataFrame, pa.Table | None, bool]:
        """Return the data frame, its table if the driver read it, and if it is final."""
        if self.aggregation is None:
            return *frame_of(spark, self.opened, self.use), True
        made, is_final = partial_frame(spark, self.opened, self.use, self.aggregation)
        return made, None, is_final


@dataclass(frozen=True, slots=True)
class Plan:
    """A query with resolved tables: the text for Spark and one scan per table.

    `plain` is the text without partial aggregation, if the result takes its column names from it.
    `final` is the text that uses complete aggregates, if partial results can be complete.
    """

    session: Session
    query: Query
    reads: tuple[Read, ...]
    text: str
    plain: str | None = None
    final: str | None = None

    def run(self, before: str = "") -> DataFrame:
        """Return the result as a data frame; `before` is a prefix of the query such as EXPLAIN."""
        try:
            return self._run(before)
        except AnalysisException:
            if all(each.is_whole for each in self.reads):
                raise
        # Run without pushdown: removed columns must not cause errors or be missing from messages.
        return self.query.plan(self.session, None).run(before)

    def _run(self, before: str) -> DataFrame:
        spark = self.session.spark
        made: dict[Read, tuple[DataFrame, pa.Table | None, bool]] = {}
        frames: dict[str, DataFrame] = {}
        few: dict[str, tuple[int, pa.Table]] = {}
        named = zip(self.query.names, self.reads, strict=True)
        # Read the smallest table first: its join keys reduce the reads of the other tables.
        for name, read in sorted(named, key=lambda each: each[1].bytes_read):
            use = with_keys(read.opened, read.use, few)
            key = replace(read, reference=None, use=replace(use, same=()))
            if key not in made:
                made[key] = key.frame(spark)
            frames[name], table, _ = made[key]
            if table is not None:
                few[name] = (read.opened.num_rows, table)
        is_final = self.final is not None and all(final for _, _, final in made.values())
        text = self.final if is_final else self.text
        done = run_text(self.session, self.query.source, f"{before}{text}", frames)
        if self.plain is None or before:
            return done
        # Column names of aggregates come from the original text.
        empty = {
            name: spark.createDataFrame([], read.schema)
            for name, read in zip(self.query.names, self.reads, strict=True)
        }
        return done.toDF(*self.session.run(self.plain, empty).columns)


def run_text(
    session: Session, source: Source, text: str, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Run a text generated from a source; errors point to the position in the source."""
    try:
        done = session.run(text, frames)
        if is_remote():
            _ = done.schema  # the server analyzes the query when its schema is requested
    except AnalysisException as error:
        if isinstance(error, ParseException) and source.is_written:
            _parse_as_written(session, source)
        start = _error_position(error, source, text)
        if start is not None and source.in_origin(start) is not None:
            error.add_note(source.pointer(start))
        raise
    return done


def _parse_as_written(session: Session, source: Source) -> None:
    """Raise the parser error for the original text, if Spark rejects that as well."""
    found = syntax_error(session, source.text, "")
    if found is not None:
        error, start = found
        if start is not None:
            error.add_note(source.pointer(start))
        raise error


def syntax_error(
    session: Session, text: str, before: str = "SELECT "
) -> tuple[ParseException, int | None] | None:
    """Return Spark's syntax error for a text of a statement, and its position in the text.

    `@branch` and the braces of data frame names are removed, as Spark's grammar lacks them.
    """
    source = Source(before + text)
    tokens = source.tokens
    edits = [
        (start, stop, f" {name} ")
        for start, stop, name in _frame_references(source, session.frames)
    ]
    for each in find_references(source, attached(session.spark)):
        for sign, branch in itertools.pairwise(tokens):
            if sign.kind == "PARAMETER" and each.start < sign.start < each.stop:
                edits.append((sign.start, branch.stop, " " * (branch.stop - sign.start)))
    try:
        # Without parameters, because errors of parameterized texts have no position.
        session.spark.sql(edited(source.text, edits))
    except ParseException as error:
        match = _POSITION.search(str(error))
        if match is None:
            return error, None
        lines = source.text.splitlines(keepends=True)[: int(match[1]) - 1]
        return error, max(sum(map(len, lines)) + int(match[2]) - len(before), 0)
    except AnalysisException:
        pass
    return None


def _error_position(error: AnalysisException, source: Source, text: str) -> int | None:
    """Return the position in the source of an error in a generated text.

    Both texts contain the tokens of the source in the same order: the third `id` of one is the
    third of the larger side. Only data frame names have a different length for Spark.
    """
    contexts = [] if isinstance(error, ParseException) else error.getQueryContext()
    if not contexts or contexts[0].contextType() is not QueryContextType.SQL:
        return None
    name = "_pyspark_connect_temp_view_" if is_remote() else "_pyspark_"
    name += "_" * 32  # the length of the identifiers that Spark generates for data frames
    tokens = Source(_FORMATTED.sub(lambda match: match[0][0] if match[1] else name, text)).tokens
    starts = [each.start for each in tokens]
    if contexts[0].startIndex() not in starts:
        return None
    number = starts.index(contexts[0].startIndex())
    positions = [each.start for each in source.tokens if each.text == tokens[number].text]
    count = sum(each.text == tokens[number].text for each in tokens[:number])
    return positions[count] if count < len(positions) else None


@dataclass(frozen=True, slots=True)
class Query:
    """A query text with its resolved Lance tables and their generated names."""

    source: Source
    references: tuple[Reference, ...]
    opened: tuple[OpenTable, ...]
    names: tuple[str, ...]
    skeleton: Source
    given: str
    has_frames: bool

    def plan(self, session: Session, tree: exp.Query | None) -> Plan:
        """Plan the scans of the query; without a syntax tree all columns and rows are read."""
        names = self.names
        without_alias = set() if tree is None else _name_tables(tree, names, self.references)
        tables = {name: each.columns for name, each in zip(names, self.opened, strict=True)}
        uses = analyse(self.source, tree, tables, session.values)
        aggregations = {}
        if tree is not None:
            for node in tree.find_all(exp.Table):
                if node.name in tables:
                    rows = self.opened[names.index(node.name)].num_rows
                    made = find_aggregation(node, tables[node.name], uses[node.name], num_rows=rows)
                    if made is not None and (made.select is tree or not made.has_unnamed):
                        aggregations[node.name] = made
        text = _final_text(self, tree, without_alias, aggregations)
        reads = tuple(
            Read(reference, each, uses[name], aggregations.get(name))
            for reference, each, name in zip(self.references, self.opened, names, strict=True)
        )
        renames = any(each.select is tree and each.has_unnamed for each in aggregations.values())
        plain = _final_text(self, tree, without_alias, {}) if renames else None
        can_be = aggregations and all(each.can_be_final for each in aggregations.values())
        final = (
            _final_text(self, tree, without_alias, aggregations, is_final=True) if can_be else None
        )
        return Plan(session, self, reads, text, plain, final)


def plan_query(session: Session, source: Source) -> Plan:
    """Resolve the tables of a query, pin their versions, and plan their scans."""
    if session.with_clause:
        text = f"({source.text})" if source.tokens[0].word == "WITH" else source.text
        source = Source(f"{session.with_clause} {text}", source)
        session = replace(session, with_clause="")
    searches, source = with_searches(session, source)
    session = replace(session, frames={**session.frames, **searches})
    views = views_in(session.spark, source)
    references = tuple(find_references(source, attached(session.spark), views))
    seen: dict[ReadOptions, OpenTable] = {}
    opened = tuple(_open(session, source, each, seen) for each in references)
    prefix = _FRAME
    while any(token.text.lower().startswith(prefix) for token in source.tokens):
        prefix += "_"
    names = tuple(f"{prefix}{number}" for number in range(len(references)))
    given = f"{prefix}given_"
    skeleton = _with_frame_names(
        source, references, [f"`{name}`" for name in names], session.frames, given
    )
    has_frames = bool(references or session.frames)
    query = Query(source, references, opened, names, Source(skeleton), given, has_frames)
    tree = parse_query(skeleton) if references and _is_plain(session, source) else None
    return query.plan(session, tree)


def _name_tables(
    tree: exp.Query, names: Sequence[str], references: Sequence[Reference]
) -> set[str]:
    """Add the last part of its name as alias to each table without one; return those tables."""
    parts = dict(zip(names, references, strict=True))
    without_alias = set()
    for node in tree.find_all(exp.Table):
        if node.name in parts and not node.alias:
            without_alias.add(node.name)
            name = exp.to_identifier(parts[node.name].own, quoted=True)
            node.set("alias", exp.TableAlias(this=name))
    return without_alias


def _final_text(
    query: Query,
    tree: exp.Query | None,
    without_alias: AbstractSet[str],
    aggregations: Mapping[str, Aggregation],
    *,
    is_final: bool = False,
) -> str:
    """Return the text for Spark with data frames for tables and merges of partial aggregates.

    With `is_final`, partial results have one row per group and need no merge.
    """
    edits = []
    tokens = query.skeleton.tokens
    numbers = {each.text: number for number, each in enumerate(tokens) if each.kind == "IDENTIFIER"}
    for name, reference in zip(query.names, query.references, strict=True):
        number = numbers[name]
        token = tokens[number]
        edits.append((token.start, token.stop, f"\0{{{name}}}\0"))
        last = _sample_end(tokens, number)
        if name in without_alias if tree is not None else _is_bare(tokens, number, last):
            stop = tokens[last].stop
            edits.append((stop, stop, f" AS {quoted(reference.own)}"))
        aggregation = aggregations.get(name)
        if aggregation is None:
            continue
        for word in ("WHERE", "GROUP") if is_final else ("WHERE",):
            clause = _clause(tokens, number, word)
            if clause is not None:
                edits.append((*clause, ""))
        starts = {each.start: number for number, each in enumerate(tokens)}
        for start, _, merged in aggregation.merged:
            made = final_text(merged) if is_final else merged
            edits.append((start, call_stop(tokens, starts[start]), made))
    edits += [
        (token.start, token.stop, f"\0{{{token.text.removeprefix(query.given)}}}\0")
        for token in tokens
        if token.kind == "IDENTIFIER" and token.text.startswith(query.given)
    ]
    text = _without_row_columns(query.source, tree, edited(query.skeleton.text, edits))
    return _with_braces(text, has_frames=query.has_frames)


def _sample_end(tokens: Sequence[Token], number: int) -> int:
    """Return the index of the last token of a table and its TABLESAMPLE and REPEATABLE clauses."""
    for word in ("TABLESAMPLE", "REPEATABLE"):
        if number + 1 < len(tokens) and tokens[number + 1].word == word:
            stop = call_stop(tokens, number + 1)
            number = next(at for at, each in enumerate(tokens) if each.stop == stop)
    return number


def _is_bare(tokens: Sequence[Token], number: int, last_token: int) -> bool:
    """Return whether a table without a syntax tree has no alias and can be given one."""
    if number and tokens[number - 1].word == "TABLE":
        return False
    after = tokens[last_token + 1] if last_token + 1 < len(tokens) else None
    return after is None or after.kind in _ENDS or after.clause in _AFTER_TABLE


def _clause(tokens: Sequence[Token], number: int, word: str) -> tuple[int, int] | None:
    """Return the range of the WHERE or GROUP BY clause that follows a table."""
    depth, start, stop = 0, None, 0
    for token in tokens[number + 1 :]:
        if token.kind == "R_PAREN" and not depth:
            break
        if not depth and token.clause in _AFTER_WHERE - {word}:
            if start is not None or word == "WHERE":
                break
        elif not depth and token.clause == word:
            start = token.start
        depth += (token.kind == "L_PAREN") - (token.kind == "R_PAREN")
        stop = token.stop
    return None if start is None else (start, stop)


def _open(
    session: Session, source: Source, reference: Reference, seen: dict[ReadOptions, OpenTable]
) -> OpenTable:
    if reference.is_path and reference.parts[1] in session.open_tables:
        return session.open_tables[reference.parts[1]]
    options = read_options(session.spark, source, reference)
    if options not in seen:
        seen[options] = OpenTable(options, pinned(options))
    return seen[options]


def _is_plain(session: Session, source: Source) -> bool:
    """Return whether the session and the parser read quotes and TIMESTAMP in the same way."""
    conf = session.spark.conf
    has_times = any(each.word == "TIMESTAMP" for each in source.tokens)
    if has_times and conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ") != "TIMESTAMP_LTZ":
        return False
    if '"' in source.text and _is_on(conf.get("spark.sql.ansi.doubleQuotedIdentifiers", "false")):
        return False
    quoted = [each.text for each in source.tokens if each.kind == "IDENTIFIER"]
    has_pattern = any(set(text) & set("|*+?()[]^$\\") for text in quoted)
    return not (
        has_pattern and _is_on(conf.get("spark.sql.parser.quotedRegexColumnNames", "false"))
    )


def _is_on(value: str | None) -> bool:
    return str(value).lower() == "true"


def _with_frame_names(
    source: Source,
    references: tuple[Reference, ...],
    texts: list[str],
    frames: Mapping[str, DataFrame],
    given: str,
) -> str:
    """Return the text with generated names for tables and `{frame}`, and without qualifiers."""
    edits = [(each.start, each.stop, text) for each, text in zip(references, texts, strict=True)]
    edits += _qualifiers(source, references)
    edits += [
        (start, stop, f"`{given}{name}`") for start, stop, name in _frame_references(source, frames)
    ]
    return edited(source.text, edits)


def _frame_references(
    source: Source, frames: Mapping[str, DataFrame]
) -> list[tuple[int, int, str]]:
    """Return the ranges and names of the `{name}` that refer to data frames."""
    tokens = source.tokens
    return [
        (first.start, last.stop, name.text)
        for first, name, last in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if first.kind == "L_BRACE" and last.kind == "R_BRACE" and name.text in frames
    ]


def _qualifiers(source: Source, references: tuple[Reference, ...]) -> list[tuple[int, int, str]]:
    """Return edits that shorten qualified columns such as `lake.db.t.id` to `t.id`."""
    named = {
        tuple(part.lower() for part in parts): each.parts[-1]
        for each in references
        if not each.is_path
        for parts in (each.parts, each.parts[1:])
        if len(parts) > 1
    }
    starts = {each.start for each in references}
    edits = []
    tokens = source.tokens
    for number, token in enumerate(tokens):
        if number and tokens[number - 1].kind == "DOT":
            continue
        for parts, last in named.items():
            stop = number + 2 * len(parts) - 1
            names = tuple(each.text.lower() for each in tokens[number:stop:2])
            is_qualifier = names == parts and stop < len(tokens) and tokens[stop].kind == "DOT"
            if is_qualifier and token.start not in starts:
                edits.append((token.start, tokens[stop - 1].stop, quoted(last)))
    return edits


def _without_row_columns(source: Source, tree: exp.Query | None, text: str) -> str:
    """Exclude row columns such as `_rowid` from `*`; they are returned only if named."""
    extra = row_columns(source)
    stars = (
        []
        if tree is None
        else [each for each in tree.find_all(exp.Star) if not isinstance(each.parent, exp.Count)]
    )
    if not extra or not stars:
        return text
    found = list(
        re.finditer(r"(?i)(\bSELECT\s+(?:DISTINCT\s+|ALL\s+)?|,\s*|\.)(\*)(?!\s*EXCEPT)", text)
    )
    if len(stars) > 1 or len(found) != 1:
        start = next(each.start for each in source.tokens if each.text.lower() in extra)
        source.fail(
            ("row columns such as _rowid cannot be combined with several `*`; name the columns"),
            start,
        )
    stop = found[0].end()
    return f"{text[:stop]} EXCEPT ({', '.join(extra)}){text[stop:]}"


def _with_braces(text: str, *, has_frames: bool) -> str:
    """Double literal braces, because Spark formats texts with data frames."""
    if not has_frames:
        return text
    parts = text.split("\0")
    doubled = [
        part if number % 2 else _BRACES.sub(lambda found: found[0] * 2, part)
        for number, part in enumerate(parts)
    ]
    return "".join(doubled)
