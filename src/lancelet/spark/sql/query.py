"""Running a query: Lance tables in its text become data frames, everything else stays as it is.

    SELECT id FROM lance.`/data/t` VERSION AS OF 3 WHERE price > 10
    SELECT id FROM {lancelet_0} AS `t` WHERE price > 10         lancelet_0: a scan of `id`, `price`

Nothing but the names of tables is replaced, so Spark parses, checks and runs the text that the
user wrote. A frame that stands for a table has the columns that the query names, and rows that its
conditions leave; Spark evaluates the conditions again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from sqlglot import exp

from lancelet.errors import DatasetNotFoundError
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned
from lancelet.spark.sql.analysis import Use, analyse, row_columns
from lancelet.spark.sql.names import Reference, attached, find_references, read_options
from lancelet.spark.sql.reading import Opened, frame_of
from lancelet.spark.sql.source import Source, parse_query

_FRAME: Final = "lancelet_"
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
class Plan:
    """A query whose tables were found: the text for Spark, and what is read of each table."""

    session: Session
    source: Source
    references: tuple[Reference, ...]
    opened: tuple[Opened, ...]
    uses: tuple[Use, ...]
    text: str
    tree: exp.Query | None

    def run(self, before: str = "") -> DataFrame:
        """Return the result as a data frame; `before` stands before the query, as EXPLAIN."""
        made: dict[tuple[ReadOptions, Use], DataFrame] = {}
        frames = {}
        for number, (opened, use) in enumerate(zip(self.opened, self.uses, strict=True)):
            key = opened.wanted, use
            if key not in made:
                made[key] = frame_of(self.session.spark, opened, use)
            frames[f"{_FRAME}{number}"] = made[key]
        return run_text(self.session, self.source, before + self.text, frames)


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
    skeleton = _spliced(source, references, [f"`{name}`" for name in names])
    for name in session.frames:
        skeleton = skeleton.replace(f"{{{name}}}", f"`{name}`")
    tree = parse_query(skeleton) if references and _is_plain(session, source) else None
    tables = {name: each.columns for name, each in zip(names, opened, strict=True)}
    uses = analyse(source, tree, tables, session.values)
    marks = [f"\0{{{name}}}\0" for name in names]
    if tree is not None:
        aliased = {node.name for node in tree.find_all(exp.Table) if node.alias}
        marks = [
            mark if name in aliased else f"{mark} AS {quoted(each.parts[-1])}"
            for name, mark, each in zip(names, marks, references, strict=True)
        ]
    text = _without_row_columns(source, tree, _spliced(source, references, marks))
    text = _with_braces(text, session, has_frames=bool(references or session.frames))
    return Plan(
        session, source, references, opened, tuple(uses[name] for name in names), text, tree
    )


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


def _spliced(source: Source, references: tuple[Reference, ...], texts: list[str]) -> str:
    """Return the text with other texts in place of the tables, and of their names elsewhere."""
    edits = [(each.start, each.stop, text) for each, text in zip(references, texts, strict=True)]
    edits += _qualifiers(source, references)
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


def _with_braces(text: str, session: Session, *, has_frames: bool) -> str:
    """Double the braces that stand for themselves, since Spark formats texts with frames."""
    if not has_frames:
        return text
    pieces = text.split("\0")
    doubled = [
        piece if number % 2 else _BRACES.sub(lambda found: found[0] * 2, piece)
        for number, piece in enumerate(pieces)
    ]
    made = "".join(doubled)
    for name in session.frames:
        made = made.replace(f"{{{{{name}}}}}", f"{{{name}}}")
    return made


def quoted(name: str) -> str:
    """Return a name as Spark reads it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


_NAMED: Final = re.compile(r"(?:name|function|relation|routine|view) `([^`]+)`")


def _point(error: PySparkException, source: Source) -> None:
    """Say where in the user's text the name stands that Spark does not know."""
    found = _NAMED.search(str(error))
    wanted = found[1].lower() if found else None
    place = next((each.start for each in source.tokens if each.text.lower() == wanted), None)
    if place is not None:
        error.add_note(source.pointer(place))
