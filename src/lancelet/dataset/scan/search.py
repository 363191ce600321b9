"""Searches filtered by another search: vector search on text matches, or the reverse.

    nearest=..., filter=MatchQuery("puppy", "text")              vectors, filtered by text
    full_text_query=..., filter=VectorSearchQuery("v", q, k=5)   text, filtered by vectors

With `prefilter`, the filtering search runs first and restricts the search. Without it, the search
runs first and its results are filtered.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet import search as searches
from lancelet.arguments import instance
from lancelet.errors import InvalidInputError
from lancelet.expr.compile import ExpressionLike, conjunction
from lancelet.rowids.selection import RowMask, RowSet
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.row_mask import mask_expression
from lancelet.scan.scan_options import ScanOptions, SearchRequest
from lancelet.search.full_text import FullTextQuery, MatchQuery
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class QueryVectorTypeError(InvalidInputError, TypeError):
    """The query vector has an unsupported type."""


def coerce_query_vector(query: Any) -> tuple[pa.Array, int]:
    """Convert one or more query vectors to float32; return them and their dimension."""
    if hasattr(query, "__getitem__") and isinstance(query[0], list | tuple | np.ndarray | pa.Array):
        return _several(query)
    vector = _array(query)
    if isinstance(vector, pa.ChunkedArray):
        vector = vector.combine_chunks()
    if pa.types.is_integer(vector.type):
        vector = vector.cast(pa.float32())
    if not isinstance(vector, pa.FloatingPointArray):
        raise QueryVectorTypeError(
            f"query vector must be list-like or pa.FloatingPointArray but received {vector.type}"
        )
    return vector, len(vector)


def _several(queries: Any) -> tuple[pa.Array, int]:
    dimension = len(queries[0])
    wrong = [len(each) for each in queries if len(each) != dimension]
    if wrong:
        raise InvalidInputError(
            f"All query vectors must have the same length, but got {dimension} and {wrong[0]}"
        )
    vectors = [coerce_query_vector(each)[0] for each in queries]
    return pa.array(vectors, pa.list_(pa.float32())), dimension


def _array(query: Any) -> Any:
    if isinstance(query, pa.Scalar):
        stored = query.value if isinstance(query, pa.ExtensionScalar) else query
        return stored.values if isinstance(stored.type, pa.FixedSizeListType) else stored
    if isinstance(query, list | tuple | np.ndarray):
        return pa.array(np.array(query).astype(np.float32), pa.float32())
    if isinstance(query, pa.Array | pa.ChunkedArray):
        return query
    try:
        return pa.array(query)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise QueryVectorTypeError(
            f"Query vectors should be an array of floats, got {type(query)} which we cannot "
            "coerce to a float array"
        ) from error


_DISTANCE_TOLERANCE: Final = 1e-6


class IndexFailedError(InvalidInputError):
    """A vector index fails to find vectors of its column."""


def validate_vector_index(
    dataset: LanceDataset,
    column: str,
    refine_factor: int = 5,
    sample_size: int | None = None,
    pass_threshold: float = 1.0,
) -> None:
    """Raise unless a vector index finds vectors of the table in their nearest partition.

    Args:
        dataset: The table.
        column: The path of the column.
        refine_factor: The number of candidates to rank by exact distance.
        sample_size: The number of vectors to search for, by default all.
        pass_threshold: The minimum fraction of vectors that must be found.
    """
    chosen = (
        dataset.to_table(columns=[column])
        if sample_size is None
        else dataset.sample(sample_size, columns=[column])
    )
    vectors = chosen[column].drop_null().to_numpy(zero_copy_only=False)
    total = passed = 0
    for vector in vectors:
        if not np.isfinite(vector).all():
            continue
        total += 1
        nearest = {
            "column": column,
            "q": vector,
            "k": 1,
            "nprobes": 1,
            "refine_factor": refine_factor,
        }
        found = dataset.to_table(columns=["_distance"], nearest=nearest)["_distance"].to_pylist()
        passed += bool(found) and abs(found[0]) < _DISTANCE_TOLERANCE
    if passed < pass_threshold * total:
        raise IndexFailedError(f"Vector index failed sanity check, only {passed}/{total} passed")


_MODES: Final = ("fast", "normal", "accurate")


@dataclass(frozen=True, slots=True, eq=False)
class VectorSearchQuery:
    """A vector search that can filter a full-text search; see `ScannerBuilder.nearest`."""

    column: str
    q: Any
    k: int | None = None
    metric: str | None = None
    nprobes: int | None = None
    minimum_nprobes: int | None = None
    maximum_nprobes: int | None = None
    refine_factor: int | None = None
    use_index: bool = True
    ef: int | None = None
    query_parallelism: int | None = None
    approx_mode: str = "normal"
    search_effort: float | None = None

    def __post_init__(self) -> None:
        """Raise if a numeric parameter is out of range."""
        _check_vector_search(self.inner())

    def inner(self) -> dict[str, Any]:
        """Return the search as an argument for `nearest`."""
        names = self.__match_args__
        return dict(zip(names, attrgetter(*names)(self), strict=True))


SearchFilter: TypeAlias = FullTextQuery | VectorSearchQuery
"""A search that filters another search."""


_WHOLE: Final = ("k", "nprobes", "ef", "minimum_nprobes", "maximum_nprobes", "refine_factor")


def _check_vector_search(parameters: Mapping[str, Any]) -> None:
    given = {name: value for name, value in parameters.items() if value is not None}
    for name in _WHOLE:
        instance(name, given.get(name, 0), int, np.integer)
    for name, title in (("k", "Nearest-K"), ("nprobes", "Nprobes"), ("ef", "ef")):
        if name in given and int(given[name]) <= 0:
            raise InvalidInputError(f"{title} must be > 0 but got {given[name]}")
    for name in ("minimum_nprobes", "maximum_nprobes"):
        if name in given and int(given[name]) < 0:
            title = name.replace("_", " ").capitalize()
            raise InvalidInputError(f"{title} must be >= 0 but got {given[name]}")
    if given.get("minimum_nprobes", 0) > given.get("maximum_nprobes", math.inf):
        raise InvalidInputError("minimum_nprobes must be <= maximum_nprobes")
    if int(given.get("refine_factor", 1)) < 1:
        raise InvalidInputError(f"Refine factor must be 1 or more got {given['refine_factor']}")
    if operator.index(given.get("query_parallelism", 0)) < -1:
        raise InvalidInputError("query_parallelism must be >= -1")
    effort = given.get("search_effort", 0)
    instance("search_effort", effort, int, float, np.number)
    if not 0 <= effort <= 1:
        raise InvalidInputError(f"search_effort must be finite and in [0, 1], got {effort}")
    if given.get("approx_mode", "normal") not in _MODES:
        raise InvalidInputError(
            "approx_mode must be one of 'fast', 'normal', or 'accurate', "
            f"got {given['approx_mode']!r}"
        )


@dataclass(frozen=True, slots=True)
class SplitFilter:
    """A filter split into an expression and a search, each optional."""

    expression: ExpressionLike | None = None
    search: SearchFilter | None = None


def split_filter(given: Any) -> SplitFilter:
    """Split a filter into its expression and its search.

    >>> split_filter({"expr_filter": "id > 3"}).expression
    'id > 3'
    """
    if isinstance(given, FullTextQuery | VectorSearchQuery):
        return SplitFilter(search=given)
    if isinstance(given, Mapping):
        first, second = (
            split_filter(given.get("expr_filter")),
            split_filter(given.get("search_filter")),
        )
        expression = second.expression if first.expression is None else first.expression
        return SplitFilter(expression, second.search or first.search)
    return SplitFilter(given)


def with_search_filter(
    snapshot: Snapshot, options: ScanOptions, filtering: SearchFilter
) -> ScanOptions:
    """Return the options of a search with another search as its filter."""
    if options.search is None:
        raise InvalidInputError("a search as a filter requires `nearest` or `full_text_query`")
    search = (
        searches.vector.read_vector_search(snapshot.schema, filtering.inner())
        if isinstance(filtering, VectorSearchQuery)
        else searches.text.read_text_search(snapshot, filtering)
    )
    if isinstance(search, searches.text.TextSearch) == isinstance(
        options.search, searches.text.TextSearch
    ):
        raise InvalidInputError("a vector search can be filtered by a text search, or the reverse")
    alone = ScanOptions(rows=options.rows, fragments=options.fragments)
    if options.prefilter:
        found = _found(snapshot, replace(alone, filter=options.filter, prefilter=True), search)
        return replace(options, rows=found)
    if isinstance(search, searches.text.TextSearch):
        if not isinstance(filtering, MatchQuery):
            raise InvalidInputError(
                "Only Match queries are supported when a full-text search filters the results; set "
                "prefilter=True to use other queries",
                found=type(filtering).__name__,
            )
        matches = mask_expression(_found(snapshot, alone, search))
        condition = matches if options.filter is None else conjunction(options.filter, matches)
        return replace(options, filter=condition)
    cut = replace(alone, limit=options.limit, offset=options.offset)
    texts = _found(snapshot, cut, options.search)
    return replace(options, rows=_found(snapshot, replace(alone, rows=texts), search))


def _found(snapshot: Snapshot, options: ScanOptions, search: SearchRequest) -> RowMask:
    """Return the rows found by a search."""
    id_scan = replace(options, columns=(RowColumn.ID.value,), search=search, adds_scores=False)
    ids = execute_to_table(plan_scan(snapshot, id_scan)).column(RowColumn.ID.value)
    return RowMask(RowSet.of(ids.to_numpy().astype(np.uint64, copy=False)))


def warn_of_unused(given: Mapping[str, Any]) -> None:
    """Warn about non-default search options without effect."""
    unused = [name for name, value in given.items() if value not in (None, "normal")]
    if unused:
        warnings.warn(
            f"{', '.join(unused)} of a vector search has no effect: all probed partitions are "
            "searched in full with all threads; set nprobes, ef or refine_factor",
            stacklevel=4,
        )
