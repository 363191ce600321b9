"""Run search functions of a query as distributed tasks, each on a part of the table.

    SELECT id FROM lance_vector_search('/data/t', 'v', array(0.1, 0.2), k => 5)

    segment a       5 rows     0.1  0.2  0.4 ..
    segment b       5 rows     0.3  0.5 ..          the best 5 of all
    fragments 7, 8  5 rows     0.2  0.9 ..

    SELECT id FROM lance_text_search('/data/t', 'red fox', k => 5)

    fragments 7, 8  400 rows, 7 with `red`      token counts are collected first
    fragments 9     200 rows, 2 with `red`
    the index       5 rows     7.1  6.3  2.0 ..
    fragments 7, 8  5 rows     5.5  0.4 ..          the best 5 of all
    fragments 9     5 rows     6.9  0.1 ..

A table function of Spark always runs in one task; here the call is replaced by a data frame. A
full-text index is searched in one task, since a lookup costs less than starting tasks. Many tasks
read the unindexed rows. For a hybrid search, the driver merges the results of both searches. A
search with a postfilter stays a function, because it depends on all results.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias
from pyspark.sql.types import BinaryType, StructField, StructType

from lancelet.jobs.split import plan_splits
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import execute, execute_to_table
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.hits import FoundSearch, Hits
from lancelet.search.hybrid import HybridSearch
from lancelet.search.scored import searched_rows
from lancelet.search.terms import Statistics
from lancelet.search.text import TextSearch, count_unindexed, unindexed_fragments
from lancelet.search.text_indices import Target
from lancelet.search.vector import VectorSearch
from lancelet.spark.arrow_tasks import task_frame
from lancelet.spark.columns import ROW_ADDRESS
from lancelet.spark.convert import convert_batch
from lancelet.spark.search_functions import FUNCTION_ARGUMENTS, plan_function
from lancelet.spark.searching import to_spark_schema
from lancelet.spark.small_reads import local_frame
from lancelet.spark.sql.session import Session
from lancelet.spark.sql.source import Source, Token, call_stop, edited
from lancelet.spark.types import arrow_schema

_CALLS: Final = {name.upper(): name for name in FUNCTION_ARGUMENTS}


def with_searches(session: Session, source: Source) -> tuple[dict[str, DataFrame], Source]:
    """Return data frames of large searches by name, and the statement that refers to them."""
    tokens = source.tokens
    edits: list[tuple[int, int, str]] = []
    frames: dict[str, DataFrame] = {}
    for number, token in enumerate(tokens[:-1]):
        if token.word not in _CALLS or tokens[number + 1].kind != "L_PAREN":
            continue
        stop = call_stop(tokens, number)
        call = _CALLS[token.word]
        frame = _frame(session, source, call, tokens[number + 2 :], stop)
        if frame is not None:
            name = f"lancelet_search_{len(frames)}"
            frames[name] = frame
            edits.append((token.start, stop, f"{{{name}}}"))
    return frames, Source(edited(source.text, edits), source) if edits else source


def _frame(
    session: Session, source: Source, name: str, tokens: Sequence[Token], stop: int
) -> DataFrame | None:
    """Return the results of a call, or None if it is not worth distributing."""
    names = FUNCTION_ARGUMENTS[name]
    arguments = _arguments(session, source, names, tokens, stop)
    if arguments is None or not set(names) <= arguments.keys():
        return None
    table, plan = plan_function(name, arguments)
    search = plan.options.search
    if isinstance(search, HybridSearch):
        return _best_of_both(session, table, plan, search)
    parts = split_search(plan)
    return _top_k(session, table, plan, parts) if len(parts) > 1 else None


def _top_k(
    session: Session, table: TableRef, plan: ScanPlan, parts: Sequence[ScanOptions]
) -> DataFrame:
    """Return the best rows over all parts of a search."""
    search, columns = plan.options.search, plan.options.columns
    assert search is not None
    assert isinstance(columns, tuple)
    shown = [*columns, search.score_field.name]
    if isinstance(search, TextSearch):
        parts = _with_statistics(session, table, parts)
    parts = [replace(each, columns=tuple(dict.fromkeys([*columns, ROW_ADDRESS]))) for each in parts]
    schema = to_spark_schema(plan_scan(plan.snapshot, parts[0]).schema)
    arrow_types = arrow_schema(schema)

    def run(number: int, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        del number
        return _search(table, options, arrow_types)

    found = task_frame(session.spark, run, parts, schema)
    score = F.col(search.score_field.name)
    order = score.desc() if isinstance(search, TextSearch) else score
    best = found.orderBy(order, ROW_ADDRESS).limit(plan.options.limit or 0)
    return best.select(*(f"`{name}`" for name in dict.fromkeys(shown)))


def _best_of_both(
    session: Session, table: TableRef, plan: ScanPlan, search: HybridSearch
) -> DataFrame | None:
    """Return the best rows of a hybrid search, distributing both of its searches."""
    options = plan.options
    if options.filter is not None and not options.prefilter:
        return None
    plans = [
        plan_scan(
            plan.snapshot,
            replace(options, search=each, limit=search.depth, columns=(ROW_ADDRESS,)),
        )
        for each in (search.text, search.vector)
    ]
    parts = [split_search(each) for each in plans]
    if max(map(len, parts)) < 2:
        return None
    results = []
    for each, own_parts in zip(plans, parts, strict=True):
        rows = _top_k(session, table, each, own_parts).collect()
        addresses = np.array([row[0] for row in rows], np.uint64)
        scores = np.array([row[1] for row in rows], np.float32)
        results.append(FoundSearch(Hits.of_query(addresses, scores), pa.field("_", pa.float32())))
    text, vector = results
    joined = replace(search, text=text, vector=vector)
    best = execute_to_table(plan_scan(plan.snapshot, replace(options, search=joined, filter=None)))
    schema = to_spark_schema(best.schema)
    arrow_types = arrow_schema(schema)
    batches = [convert_batch(batch, arrow_types) for batch in best.to_batches()]
    return local_frame(session.spark, pa.Table.from_batches(batches, arrow_types), schema)


def split_search(plan: ScanPlan) -> list[ScanOptions]:
    """Split a search into scans; their best rows together contain the result.

    A full-text search has one scan for the index and some for groups of unindexed fragments.
    A vector search has one scan per index segment and some for groups of unindexed fragments.
    Searches that cannot be split return one scan.
    """
    options, snapshot = plan.options, plan.snapshot
    search = options.search
    if options.filter is not None and not options.prefilter:
        return [options]
    options = replace(options, prefilter=True)
    fragment_ids = snapshot.fragments.ids.tolist()
    if isinstance(search, TextSearch):
        unindexed = None if options.indexed_only else unindexed_fragments(search, snapshot)
        fields = [field for field, _ in search.unindexed_fields(plan)]
        splits = plan_splits(snapshot, fields=fields, fragments=unindexed or [], can_cut=False)
        if unindexed is None or len(splits) < 2:
            return [options]
        indexed = tuple(each for each in fragment_ids if each not in frozenset(unindexed))
        chosen = [*([indexed] if indexed else []), *(each.fragments for each in splits)]
        return [replace(options, fragments=each) for each in chosen]
    if not isinstance(search, VectorSearch):
        return [options]
    segments = search.segments_in(snapshot)
    covered = frozenset().union(*(each.covered for each in segments))
    missing = [] if options.indexed_only else [each for each in fragment_ids if each not in covered]
    splits = plan_splits(snapshot, fields=[search.field], fragments=missing, can_cut=False)
    # Distances of an index may be estimates: refine them to compare with exact ones.
    refined = replace(search, refine_factor=search.refine_factor or 1) if splits else search
    return [
        *(
            replace(
                options,
                search=refined,
                segments=frozenset({each.metadata.uuid}),
                fragments=tuple(sorted(each.covered.intersection(fragment_ids))),
            )
            for each in segments
        ),
        *(
            replace(
                options,
                search=replace(search, use_index=False, metric=search.metric_in(snapshot)),
                fragments=each.fragments,
            )
            for each in splits
        ),
    ]


def _with_statistics(
    session: Session, table: TableRef, parts: Sequence[ScanOptions]
) -> list[ScanOptions]:
    """Add the token statistics of all parts to each part of a full-text search."""

    def run(number: int, options: ScanOptions) -> Iterator[pa.RecordBatch]:
        del number
        plan = plan_scan(table.open(), options)
        counted = pickle.dumps(count_unindexed(plan, searched_rows(plan)))
        yield pa.RecordBatch.from_pydict({"counted": [counted]})

    schema = StructType([StructField("counted", BinaryType(), False)])
    total: dict[Target, Statistics] = {}
    for row in task_frame(session.spark, run, parts, schema).collect():
        for target, own in pickle.loads(row.counted).items():  # noqa: S301 - our own workers wrote it
            total[target] = total[target] + own if target in total else own
    made = []
    for each in parts:
        assert isinstance(each.search, TextSearch)
        made.append(replace(each, search=replace(each.search, unindexed=total)))
    return made


def _search(table: TableRef, options: ScanOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in execute(plan_scan(table.open(), options)):
        yield convert_batch(batch, schema)


def _arguments(
    session: Session, source: Source, names: Sequence[str], tokens: Sequence[Token], stop: int
) -> dict[str, Any] | None:
    """Return the argument values of a call by name; None if they are not constants."""
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
        if not part or (not is_named and number >= len(names)):
            return None
        value = part[2:] if is_named else part
        name = part[0].text.lower() if is_named else names[number]
        texts[name] = source.text[value[0].start : value[-1].stop]
    shown = ", ".join(f"{text} AS `{name}`" for name, text in texts.items())
    try:
        return dict(session.run(f"SELECT {shown}", {}).collect()[0].asDict())
    except PySparkException:
        return None  # columns of other tables; the table function reports any other error


_OPENING: Final = frozenset({"L_PAREN", "L_BRACKET"})
_CLOSING: Final = frozenset({"R_PAREN", "R_BRACKET"})
