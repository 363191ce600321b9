"""Searches that a query calls, spread over tasks: each looks at a part of the table.

    SELECT id FROM lance_vector_search('/data/t', 'v', array(0.1, 0.2), k => 5)

    segment a       5 rows     0.1  0.2  0.4 ..
    segment b       5 rows     0.3  0.5 ..          the best 5 of all
    fragments 7, 8  5 rows     0.2  0.9 ..

A function of Spark runs in one task, whatever it does; here the call becomes a data frame instead.
What depends on other rows than those that are found stays a function: scores of texts, and filters
that come after the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lancelet.ops.jobs.split import plan_splits
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import execute
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.query.search.vector import VectorSearch
from lancelet.spark.arrow_tasks import task_frame
from lancelet.spark.columns import ROW_ADDRESS
from lancelet.spark.convert import convert_batch
from lancelet.spark.search_functions import plan_vector_search
from lancelet.spark.searching import schema_found
from lancelet.spark.sql.source import Source, Token, call_stop, edited
from lancelet.spark.types import arrow_schema

if TYPE_CHECKING:
    from lancelet.spark.sql.query import Session

_CALL: Final = "LANCE_VECTOR_SEARCH"
_PARAMETERS: Final = ("path", "column", "query")


def with_searches(session: Session, source: Source) -> tuple[dict[str, DataFrame], Source]:
    """Return frames for searches of large tables, by name, and the statement that names them."""
    tokens = source.tokens
    edits: list[tuple[int, int, str]] = []
    frames: dict[str, DataFrame] = {}
    for number, token in enumerate(tokens[:-1]):
        if token.word != _CALL or tokens[number + 1].kind != "L_PAREN":
            continue
        stop = call_stop(tokens, number)
        frame = _frame(session, source, tokens[number + 2 :], stop)
        if frame is not None:
            name = f"lancelet_search_{len(frames)}"
            frames[name] = frame
            edits.append((token.start, stop, f"{{{name}}}"))
    return frames, Source(edited(source.text, edits), source) if edits else source


def _frame(
    session: Session, source: Source, tokens: Sequence[Token], stop: int
) -> DataFrame | None:
    """Return what a call finds, or None if one task is as well."""
    given = _arguments(session, source, tokens, stop)
    if given is None or not set(_PARAMETERS) <= given.keys():
        return None
    path, column, query = (given.pop(name) for name in _PARAMETERS)
    table, plan = plan_vector_search(path, column, query, given)
    parts = parts_of(plan)
    if len(parts) < 2:
        return None
    search, columns = plan.options.search, plan.options.columns
    assert search is not None
    assert isinstance(columns, tuple)
    shown = [*columns, search.score_field.name]
    parts = [replace(each, columns=tuple(dict.fromkeys([*columns, ROW_ADDRESS]))) for each in parts]
    schema = schema_found(plan_scan(plan.snapshot, parts[0]).schema)
    wanted = arrow_schema(schema)

    def run(number: int, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        del number
        return _search(table, options, wanted)

    found = task_frame(session.spark, run, parts, schema)
    best = found.orderBy(search.score_field.name, ROW_ADDRESS).limit(plan.options.limit or 0)
    return best.select(*(f"`{name}`" for name in dict.fromkeys(shown)))


def parts_of(plan: ScanPlan) -> list[ScanOptions]:
    """Return scans that together find the rows of a search for vectors, the best of which count.

    Each segment of an index is one, and fragments that none covers are some; a search that cannot
    be taken apart is the only one.
    """
    options, snapshot = plan.options, plan.snapshot
    search = options.search
    is_whole = options.filter is None or options.prefilter
    if not isinstance(search, VectorSearch) or not is_whole:
        return [options]
    segments = search.segments_in(snapshot)
    covered = frozenset().union(*(each.covered for each in segments))
    known = snapshot.fragments.ids.tolist()
    missing = [] if options.indexed_only else [each for each in known if each not in covered]
    splits = plan_splits(snapshot, fields=[search.field], fragments=missing, can_cut=False)
    # Distances of an index may be estimates: beside exact ones they are looked up.
    refined = replace(search, refine_factor=search.refine_factor or 1) if splits else search
    return [
        *(
            replace(
                options,
                search=refined,
                segments=frozenset({each.metadata.uuid}),
                fragments=tuple(sorted(each.covered.intersection(known))),
                prefilter=True,
            )
            for each in segments
        ),
        *(
            replace(
                options,
                search=replace(search, use_index=False, metric=search.metric_in(snapshot)),
                fragments=each.fragments,
                prefilter=True,
            )
            for each in splits
        ),
    ]


def _search(table: TableRef, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in execute(plan_scan(table.open(), options)):
        yield convert_batch(batch, schema)


def _arguments(
    session: Session, source: Source, tokens: Sequence[Token], stop: int
) -> dict[str, Any] | None:
    """Return the values of a call's arguments by their names; None if they are no constants."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.stop == stop:
            break
        depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
        if token.kind == "COMMA" and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    texts: dict[str, str] = {}
    for number, part in enumerate(parts):
        is_named = len(part) > 2 and part[1].text == "=>"
        if not part or (not is_named and number >= len(_PARAMETERS)):
            return None
        value = part[2:] if is_named else part
        name = part[0].text.lower() if is_named else _PARAMETERS[number]
        texts[name] = source.text[value[0].start : value[-1].stop]
    shown = ", ".join(f"{text} AS `{name}`" for name, text in texts.items())
    try:
        return dict(session.run(f"SELECT {shown}", {}).collect()[0].asDict())
    except PySparkException:
        return None  # columns of other tables; the function tells what is wrong with others


_OPENING: Final = frozenset({"L_PAREN", "L_BRACKET"})
_CLOSING: Final = frozenset({"R_PAREN", "R_BRACKET"})
