"""Running a query: Lance tables in its text become data frames, everything else stays as it is.

    SELECT id FROM lance.`/data/t` VERSION AS OF 3 WHERE price > 10
    SELECT id FROM {lancelet_0} AS `t` WHERE price > 10         lancelet_0: a scan of `id`, `price`

Nothing but the names of tables is replaced, so Spark parses, checks and runs the text that the
user wrote. A frame that stands for a table has the columns that the query names, and rows that its
conditions leave; Spark evaluates the conditions again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from sqlglot import exp

from lancelet.errors import DatasetNotFoundError
from lancelet.spark.frames import quoted
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, schema_of_snapshot
from lancelet.spark.sql.aggregates import Aggregation, find_aggregation
from lancelet.spark.sql.analysis import Use, analyse, row_columns
from lancelet.spark.sql.names import Reference, attached, find_references, read_options
from lancelet.spark.sql.reading import Opened, frame_of, partial_frame
from lancelet.spark.sql.source import Source, Token, parse_query
from lancelet.values import dataclass

_FRAME: Final = "lancelet_"
_GIVEN: Final = "lancelet_given_"
_BEHIND_WHERE: Final = frozenset(
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
_BRACES: Final = re.compile(r"[{}]")


@dataclass(frozen=True, slots=True)
class Session:
    """What a statement runs with: the session of Spark, and values and frames by their names.

    `known` are versions that are open, by what stands for their path.
    """

    spark: SparkSession
    values: Mapping[str, Any] = field(default_factory=dict)
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    known: Mapping[str, Opened] = field(default_factory=dict)

    def run(self, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Run a text in which `{name}` stands for a frame and `:name` for a value."""
        known = {**self.frames, **frames}
        values = dict(self.values) or None
        return self.spark.sql(text, args=values, **known) if known else self.spark.sql(text, values)


@dataclass(frozen=True, slots=True)
class Read:
    """A table that a query reads, what it needs of it, and what tasks compute of that."""

    reference: Reference | None
    opened: Opened
    use: Use
    aggregation: Aggregation | None = None

    @property
    def schema(self) -> StructType:
        """The columns that are read."""
        return schema_of_snapshot(self.opened.snapshot, self.opened.options(self.use))

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows, or partial results of them."""
        if self.aggregation is None:
            return frame_of(spark, self.opened, self.use)
        return partial_frame(spark, self.opened, self.use, self.aggregation)


@dataclass(frozen=True, slots=True)
class Plan:
    """A query whose tables were found: the text for Spark, and what is read of each table.

    `plain` is the text without partial results, where the names of columns are to be those of it.
    """

    session: Session
    source: Source
    reads: tuple[Read, ...]
    text: str
    plain: str | None = None

    def run(self, before: str = "") -> DataFrame:
        """Return the result as a data frame; `before` stands before the query, as EXPLAIN."""
        spark = self.session.spark
        made: dict[Read, DataFrame] = {}
        frames = {}
        for number, read in enumerate(self.reads):
            key = replace(read, reference=None)
            if key not in made:
                made[key] = read.frame(spark)
            frames[f"{_FRAME}{number}"] = made[key]
        done = run_text(self.session, self.source, before + self.text, frames)
        if self.plain is None or before:
            return done
        # The names that Spark makes of aggregates are those of the text as it was.
        empty = {
            f"{_FRAME}{number}": spark.createDataFrame([], read.schema)
            for number, read in enumerate(self.reads)
        }
        return done.toDF(*self.session.run(self.plain, empty).columns)


def run_text(
    session: Session, source: Source, text: str, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Run a text that was made of a source, whose errors say where they are in the source."""
    try:
        return session.run(text, frames)
    except AnalysisException as error:
        _point(error, source)
        raise


def plan_query(session: Session, source: Source) -> Plan:
    """Find the tables of a query, pin their versions, and decide what to read of them."""
    spark = session.spark
    references = tuple(find_references(source, attached(spark)))
    seen: dict[ReadOptions, Opened] = {}
    opened = tuple(_open(session, source, each, seen) for each in references)
    names = [f"{_FRAME}{number}" for number in range(len(references))]
    skeleton = _spliced(source, references, [f"`{name}`" for name in names], session.frames)
    tree = parse_query(skeleton) if references and _is_plain(session, source) else None
    tables = {name: each.columns for name, each in zip(names, opened, strict=True)}
    uses = analyse(source, tree, tables, session.values)
    aggregations = {}
    if tree is not None:
        for node in tree.find_all(exp.Table):
            if node.name in tables:
                rows = opened[names.index(node.name)].num_rows
                made = find_aggregation(node, tables[node.name], uses[node.name], num_rows=rows)
                if made is not None and (made.select is tree or not made.has_unnamed):
                    aggregations[node.name] = made
    bare = Source(skeleton)
    text = _final_text(source, bare, tree, names, references, aggregations)
    text = _with_braces(text, has_frames=bool(references or session.frames))
    reads = tuple(
        Read(reference, each, uses[name], aggregations.get(name))
        for reference, each, name in zip(references, opened, names, strict=True)
    )
    renames = any(each.select is tree and each.has_unnamed for each in aggregations.values())
    plain = None
    if renames:
        plain = _final_text(source, bare, tree, names, references, {})
        plain = _with_braces(plain, has_frames=True)
    return Plan(session, source, reads, text, plain)


def _final_text(
    source: Source,
    skeleton: Source,
    tree: exp.Query | None,
    names: Sequence[str],
    references: Sequence[Reference],
    aggregations: Mapping[str, Aggregation],
) -> str:
    """Return the text for Spark: frames for tables, and merged partial results for aggregates."""
    aliased = (
        set() if tree is None else {node.name for node in tree.find_all(exp.Table) if node.alias}
    )
    edits = []
    tokens = skeleton.tokens
    numbers = {each.text: number for number, each in enumerate(tokens) if each.text in names}
    for name, reference in zip(names, references, strict=True):
        token = tokens[numbers[name]]
        mark = f"\0{{{name}}}\0"
        if tree is not None and name not in aliased:
            mark += f" AS {quoted(reference.parts[-1])}"
        edits.append((token.start, token.stop, mark))
        aggregation = aggregations.get(name)
        if aggregation is None:
            continue
        where = _where(tokens, numbers[name])
        if where is not None:
            edits.append((*where, ""))
        starts = {each.start: number for number, each in enumerate(tokens)}
        for start, _, merged in aggregation.merged:
            edits.append((start, _call_stop(tokens, starts[start]), merged))
    edits += [
        (token.start, token.stop, f"\0{{{token.text.removeprefix(_GIVEN)}}}\0")
        for token in tokens
        if token.kind == "IDENTIFIER" and token.text.startswith(_GIVEN)
    ]
    made, done = [], 0
    for start, stop, text in sorted(edits):
        made += [skeleton.text[done:start], text]
        done = stop
    return _without_row_columns(source, tree, "".join([*made, skeleton.text[done:]]))


def _call_stop(tokens: Sequence[Token], number: int) -> int:
    """Return where the parenthesis behind the name of a function closes."""
    depth = 0
    for token in tokens[number + 1 :]:
        depth += (token.kind == "L_PAREN") - (token.kind == "R_PAREN")
        if not depth:
            return token.stop
    raise AssertionError("the parser read a call that the text does not close")


def _where(tokens: Sequence[Token], number: int) -> tuple[int, int] | None:
    """Return where the WHERE behind a table begins and ends."""
    depth, start, stop = 0, None, 0
    for token in tokens[number + 1 :]:
        if token.kind == "R_PAREN" and not depth:
            break
        if not depth and token.clause in _BEHIND_WHERE:
            break
        if not depth and token.word == "WHERE":
            start = token.start
        depth += (token.kind == "L_PAREN") - (token.kind == "R_PAREN")
        stop = token.stop
    return None if start is None else (start, stop)


def _open(
    session: Session, source: Source, reference: Reference, seen: dict[ReadOptions, Opened]
) -> Opened:
    if reference.is_path and reference.parts[1] in session.known:
        return session.known[reference.parts[1]]
    wanted = read_options(session.spark, source, reference)
    if wanted not in seen:
        try:
            seen[wanted] = Opened(wanted, pinned(wanted))
        except DatasetNotFoundError as error:
            error.add_note(source.pointer(reference.start))
            raise
    return seen[wanted]


def _is_plain(session: Session, source: Source) -> bool:
    """Say whether the session reads quotes as the parser does."""
    conf = session.spark.conf
    if '"' in source.text and _is_on(conf.get("spark.sql.ansi.doubleQuotedIdentifiers", "false")):
        return False
    quoted = [each.text for each in source.tokens if each.kind == "IDENTIFIER"]
    has_pattern = any(set(text) & set("|*+?()[]^$\\") for text in quoted)
    return not (
        has_pattern and _is_on(conf.get("spark.sql.parser.quotedRegexColumnNames", "false"))
    )


def _is_on(value: str | None) -> bool:
    return str(value).lower() == "true"


def _spliced(
    source: Source,
    references: tuple[Reference, ...],
    texts: list[str],
    frames: Mapping[str, DataFrame],
) -> str:
    """Return the text with names in place of tables and of `{frame}`, and without qualifiers."""
    edits = [(each.start, each.stop, text) for each, text in zip(references, texts, strict=True)]
    edits += _qualifiers(source, references)
    tokens = source.tokens
    for first, name, last in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if first.kind == "L_BRACE" and last.kind == "R_BRACE" and name.text in frames:
            edits.append((first.start, last.stop, f"`{_GIVEN}{name.text}`"))
    made, done = [], 0
    for start, stop, text in sorted(edits):
        made += [source.text[done:start], text]
        done = stop
    return "".join([*made, source.text[done:]])


def _qualifiers(source: Source, references: tuple[Reference, ...]) -> list[tuple[int, int, str]]:
    """Return what columns such as `lake.db.t.id` become, whose table is called `t` for Spark."""
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
            words = tuple(each.text.lower() for each in tokens[number:stop:2])
            is_qualifier = words == parts and stop < len(tokens) and tokens[stop].kind == "DOT"
            if is_qualifier and token.start not in starts:
                edits.append((token.start, tokens[stop - 1].stop, quoted(last)))
    return edits


def _without_row_columns(source: Source, tree: exp.Query | None, text: str) -> str:
    """Leave columns such as `_rowid`, which have to be named to be read, out of the star."""
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
        source.fail("beside several stars, columns of rows cannot be read; name the columns", start)
    stop = found[0].end()
    return f"{text[:stop]} EXCEPT ({', '.join(extra)}){text[stop:]}"


def _with_braces(text: str, *, has_frames: bool) -> str:
    """Double the braces that stand for themselves, since Spark formats texts with frames."""
    if not has_frames:
        return text
    pieces = text.split("\0")
    doubled = [
        piece if number % 2 else _BRACES.sub(lambda found: found[0] * 2, piece)
        for number, piece in enumerate(pieces)
    ]
    return "".join(doubled)


_NAMED: Final = re.compile(r"(?:name|function|relation|routine|view) `([^`]+)`")


def _point(error: PySparkException, source: Source) -> None:
    """Say where in the user's text the name stands that Spark does not know."""
    found = _NAMED.search(str(error))
    wanted = found[1].lower() if found else None
    place = next((each.start for each in source.tokens if each.text.lower() == wanted), None)
    if place is not None:
        error.add_note(source.pointer(place))
