"""Running a query: Lance tables in its text become data frames, everything else stays as it is.

    SELECT id FROM lance.`/data/t` VERSION AS OF 3 WHERE price > 10
    SELECT id FROM {lancelet_0} AS `t` WHERE price > 10         lancelet_0: a scan of `id`, `price`

Nothing but the names of tables is replaced, so Spark parses, checks and runs the text that the
user wrote. A frame that stands for a table has the columns that the query names, and rows that its
conditions leave; Spark evaluates the conditions again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, QueryContextType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote
from sqlglot import exp

from lancelet.errors import DatasetNotFoundError
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
from lancelet.spark.sql.reading import Opened, frame_of, partial_frame, with_keys
from lancelet.spark.sql.search_calls import with_searches
from lancelet.spark.sql.source import Source, Token, call_stop, edited, parse_query
from lancelet.values import dataclass

_FRAME: Final = "lancelet_"
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
_BEHIND_TABLE: Final = _BEHIND_WHERE | {
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
"""Words behind the name of a table that are no alias of it."""
_ENDS: Final = frozenset({"R_PAREN", "COMMA", "PIPE", "PIPE_GT"})
_BRACES: Final = re.compile(r"[{}]")
_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_FORMATTED: Final = re.compile(r"(\{\{|\}\})|\{\w+\}")


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
    def is_whole(self) -> bool:
        """Whether all columns and rows are read as they are."""
        stored = {each.name for each in self.opened.columns.stored}
        is_all = stored <= set(self.use.columns)
        return is_all and self.use.filter is None and self.aggregation is None

    @property
    def bytes_read(self) -> int:
        """About how many bytes of files hold what is read."""
        return self.opened.bytes_read(self.use.columns)

    @property
    def schema(self) -> StructType:
        """The columns that are read."""
        return schema_of_snapshot(self.opened.snapshot, self.opened.options(self.use))

    def frame(self, spark: SparkSession) -> tuple[DataFrame, pa.Table | None, bool]:
        """Return the rows, and them if the driver read them; or results, and if they are final."""
        if self.aggregation is None:
            return *frame_of(spark, self.opened, self.use), True
        made, is_final = partial_frame(spark, self.opened, self.use, self.aggregation)
        return made, None, is_final


@dataclass(frozen=True, slots=True)
class Plan:
    """A query whose tables were found: the text for Spark, and what is read of each table.

    `plain` is the text without partial results, where the names of columns are to be those of it;
    `final` is the text where all aggregates are already computed, if that is possible.
    """

    session: Session
    query: Query
    reads: tuple[Read, ...]
    text: str
    plain: str | None = None
    final: str | None = None

    def run(self, before: str = "") -> DataFrame:
        """Return the result as a data frame; `before` stands before the query, as EXPLAIN."""
        try:
            return self._run(before)
        except AnalysisException:
            if all(each.is_whole for each in self.reads):
                raise
        # Spark shall refuse nothing for what was left out, and know all columns when it does.
        return self.query.plan(self.session, None).run(before)

    def _run(self, before: str) -> DataFrame:
        spark = self.session.spark
        made: dict[Read, tuple[DataFrame, pa.Table | None, bool]] = {}
        frames: dict[str, DataFrame] = {}
        few: dict[str, tuple[int, pa.Table]] = {}
        named = zip(self.query.names, self.reads, strict=True)
        # The smallest first: keys that are left of them say what is read of the others.
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
        # The names that Spark makes of aggregates are those of the text as it was.
        empty = {
            name: spark.createDataFrame([], read.schema)
            for name, read in zip(self.query.names, self.reads, strict=True)
        }
        return done.toDF(*self.session.run(self.plain, empty).columns)


def run_text(
    session: Session, source: Source, text: str, frames: Mapping[str, DataFrame]
) -> DataFrame:
    """Run a text that was made of a source, whose errors say where they are in the source."""
    try:
        done = session.run(text, frames)
        if is_remote():
            _ = done.schema  # the server looks at the text when it is asked for this
    except AnalysisException as error:
        if isinstance(error, ParseException) and source.is_written:
            _parse_as_written(session, source)
        start = _place_of(error, source, text)
        if start is not None:
            error.add_note(source.pointer(start))
        raise
    return done


def _parse_as_written(session: Session, source: Source) -> None:
    """Raise what Spark's parser says of the text of the user, if it refuses that one too.

    What it has no grammar for is left out: `@branch`, and the braces around the name of a frame.
    """
    tokens = source.tokens
    edits = [(start, stop, f" {name} ") for start, stop, name in _given(source, session.frames)]
    for each in find_references(source, attached(session.spark)):
        for sign, branch in itertools.pairwise(tokens):
            if sign.kind == "PARAMETER" and each.start < sign.start < each.stop:
                edits.append((sign.start, branch.stop, " " * (branch.stop - sign.start)))
    try:
        # Without its parameters, since an error has no place in the text with them.
        session.spark.sql(edited(source.text, edits))
    except ParseException as error:
        found = _PLACE.search(str(error))
        if found is not None:
            before = source.text.splitlines(keepends=True)[: int(found[1]) - 1]
            error.add_note(source.pointer(sum(map(len, before)) + int(found[2])))
        raise
    except AnalysisException:
        return


def _place_of(error: AnalysisException, source: Source, text: str) -> int | None:
    """Return where in the source the words stand that Spark complains about in a text.

    Words of the source are words of the text too, in the same order: the third `id` of one is the
    third of the other. Only the names of frames have other lengths than those that Spark sees.
    """
    contexts = [] if isinstance(error, ParseException) else error.getQueryContext()
    if not contexts or contexts[0].contextType() is not QueryContextType.SQL:
        return None
    name = "_pyspark_connect_temp_view_" if is_remote() else "_pyspark_"
    name += "_" * 32  # as long as the identifier that Spark draws for a frame
    tokens = Source(_FORMATTED.sub(lambda found: found[0][0] if found[1] else name, text)).tokens
    starts = [each.start for each in tokens]
    if contexts[0].startIndex() not in starts:
        return None
    number = starts.index(contexts[0].startIndex())
    places = [each.start for each in source.tokens if each.text == tokens[number].text]
    count = sum(each.text == tokens[number].text for each in tokens[:number])
    return places[count] if count < len(places) else None


@dataclass(frozen=True, slots=True)
class Query:
    """The text of a query with its Lance tables, each of a version, and the names they get."""

    source: Source
    references: tuple[Reference, ...]
    opened: tuple[Opened, ...]
    names: tuple[str, ...]
    skeleton: Source
    given: str
    has_frames: bool

    def plan(self, session: Session, tree: exp.Query | None) -> Plan:
        """Decide what to read of the tables; without a tree everything is read."""
        names = self.names
        bare = set() if tree is None else _name_tables(tree, names, self.references)
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
        text = _final_text(self, tree, bare, aggregations)
        reads = tuple(
            Read(reference, each, uses[name], aggregations.get(name))
            for reference, each, name in zip(self.references, self.opened, names, strict=True)
        )
        renames = any(each.select is tree and each.has_unnamed for each in aggregations.values())
        plain = _final_text(self, tree, bare, {}) if renames else None
        can_be = aggregations and all(each.can_be_final for each in aggregations.values())
        final = _final_text(self, tree, bare, aggregations, is_final=True) if can_be else None
        return Plan(session, self, reads, text, plain, final)


def plan_query(session: Session, source: Source) -> Plan:
    """Find the tables of a query, pin their versions, and decide what to read of them."""
    searches, source = with_searches(session, source)
    session = replace(session, frames={**session.frames, **searches})
    views = views_in(session.spark, source)
    references = tuple(find_references(source, attached(session.spark), views))
    seen: dict[ReadOptions, Opened] = {}
    opened = tuple(_open(session, source, each, seen) for each in references)
    prefix = _FRAME
    while any(token.text.lower().startswith(prefix) for token in source.tokens):
        prefix += "_"
    names = tuple(f"{prefix}{number}" for number in range(len(references)))
    given = f"{prefix}given_"
    skeleton = _spliced(source, references, [f"`{name}`" for name in names], session.frames, given)
    has_frames = bool(references or session.frames)
    query = Query(source, references, opened, names, Source(skeleton), given, has_frames)
    tree = parse_query(skeleton) if references and _is_plain(session, source) else None
    return query.plan(session, tree)


def _name_tables(
    tree: exp.Query, names: Sequence[str], references: Sequence[Reference]
) -> set[str]:
    """Give tables without an alias the last part of their name as one; return which they are."""
    parts = dict(zip(names, references, strict=True))
    bare = set()
    for node in tree.find_all(exp.Table):
        if node.name in parts and not node.alias:
            bare.add(node.name)
            name = exp.to_identifier(parts[node.name].own, quoted=True)
            node.set("alias", exp.TableAlias(this=name))
    return bare


def _final_text(
    query: Query,
    tree: exp.Query | None,
    bare: AbstractSet[str],
    aggregations: Mapping[str, Aggregation],
    *,
    is_final: bool = False,
) -> str:
    """Return the text for Spark: frames for tables, and merged partial results for aggregates.

    With `is_final` there is a row for each group, and nothing is left to merge.
    """
    edits = []
    tokens = query.skeleton.tokens
    numbers = {each.text: number for number, each in enumerate(tokens) if each.kind == "IDENTIFIER"}
    for name, reference in zip(query.names, query.references, strict=True):
        number = numbers[name]
        token = tokens[number]
        edits.append((token.start, token.stop, f"\0{{{name}}}\0"))
        last = _sample_end(tokens, number)
        if name in bare if tree is not None else _is_bare(tokens, number, last):
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
    """Return the number of the last token of a table and its TABLESAMPLE (...) REPEATABLE (...)."""
    for word in ("TABLESAMPLE", "REPEATABLE"):
        if number + 1 < len(tokens) and tokens[number + 1].word == word:
            stop = call_stop(tokens, number + 1)
            number = next(at for at, each in enumerate(tokens) if each.stop == stop)
    return number


def _is_bare(tokens: Sequence[Token], number: int, last: int) -> bool:
    """Say whether a table surely has no alias and may get one, in a text that has no tree."""
    if number and tokens[number - 1].word == "TABLE":
        return False
    after = tokens[last + 1] if last + 1 < len(tokens) else None
    return after is None or after.kind in _ENDS or after.clause in _BEHIND_TABLE


def _clause(tokens: Sequence[Token], number: int, word: str) -> tuple[int, int] | None:
    """Return where the WHERE or GROUP BY behind a table begins and ends."""
    depth, start, stop = 0, None, 0
    for token in tokens[number + 1 :]:
        if token.kind == "R_PAREN" and not depth:
            break
        if not depth and token.clause in _BEHIND_WHERE - {word}:
            if start is not None or word == "WHERE":
                break
        elif not depth and token.clause == word:
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
    """Say whether the session reads quotes, and TIMESTAMP, as the parser does."""
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


def _spliced(
    source: Source,
    references: tuple[Reference, ...],
    texts: list[str],
    frames: Mapping[str, DataFrame],
    given: str,
) -> str:
    """Return the text with names in place of tables and of `{frame}`, and without qualifiers."""
    edits = [(each.start, each.stop, text) for each, text in zip(references, texts, strict=True)]
    edits += _qualifiers(source, references)
    edits += [(start, stop, f"`{given}{name}`") for start, stop, name in _given(source, frames)]
    return edited(source.text, edits)


def _given(source: Source, frames: Mapping[str, DataFrame]) -> list[tuple[int, int, str]]:
    """Return where `{name}` stands for a frame, and the names."""
    tokens = source.tokens
    return [
        (first.start, last.stop, name.text)
        for first, name, last in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if first.kind == "L_BRACE" and last.kind == "R_BRACE" and name.text in frames
    ]


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
