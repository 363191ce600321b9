"""SQL table functions for vector, text and hybrid search of a table at any path.

    SELECT id, _distance FROM lance_vector_search(
        path => 's3://b/t', column => 'v', query => array(0.1, 0.2), k => 5, filter => 'price > 10')
    SELECT id, _score FROM lance_text_search(path => 's3://b/t', query => 'red fox', k => 5)
    SELECT id, _relevance_score FROM lance_hybrid_search(
        path => 's3://b/t', text => 'red fox', column => 'v', query => array(0.1, 0.2))

Read options such as `columns`, `filter` and `version` work as in `lance_scan`. A call runs in one
task, which suits a few rows and an index. `lancelet.spark.search` distributes many queries, and
`lancelet.spark.sql` distributes a search of a large table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from lancelet.dataset.scan.ranked import hybrid_search
from lancelet.errors import InvalidInputError
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import execute
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.fusion import Fusion, ReciprocalRank, WeightedSum
from lancelet.search.hits import Search
from lancelet.search.text import read_text_search
from lancelet.search.vector import COUNT, read_vector_search
from lancelet.spark.convert import convert_batch
from lancelet.spark.functions import Row, constant_of, constants_of, rows_of
from lancelet.spark.options import SEARCH_NAMES, ReadOptions, text_of
from lancelet.spark.reader import pinned, ref_of
from lancelet.spark.searching import to_spark_schema
from lancelet.spark.types import arrow_schema
from lancelet.table.snapshot import Snapshot

_NEAREST: Final = frozenset(
    {"metric", "nprobes", "minimum_nprobes", "maximum_nprobes", "refine_factor", "ef", "use_index"}
)
_COMMON: Final = frozenset({"k", "prefilter", "fast_search"})
_FUSIONS: Final[dict[str, Callable[[tuple[float, float]], Fusion]]] = {
    "reciprocal_rank": ReciprocalRank,
    "weighted_sum": WeightedSum,
}

MakeSearch = Callable[[Snapshot, dict[str, Any], int], Search]


class LanceVectorSearch:
    """Return the nearest rows to a query vector. Accepts the keys of `nearest` as arguments."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument,
        column: AnalyzeArgument,
        query: AnalyzeArgument,
        **options: AnalyzeArgument,
    ) -> AnalyzeResult:
        """Return the schema: the columns of the table and `_distance`."""
        given = constants_of(options)
        make = _by_vector(constant_of(column), constant_of(query))
        return _analyzed(_plan(constant_of(path), given, _NEAREST, make))

    def eval(self, path: Any, column: Any, query: Any, **options: Any) -> Iterator[Row]:
        """Yield the rows by ascending distance."""
        return _rows(_plan(path, options, _NEAREST, _by_vector(column, query)))


class LanceTextSearch:
    """The best rows of a full-text query; `on` names the columns."""

    @staticmethod
    def analyze(
        path: AnalyzeArgument, query: AnalyzeArgument, **options: AnalyzeArgument
    ) -> AnalyzeResult:
        """Return the schema: the columns of the table and `_score`."""
        make = _by_text(constant_of(query))
        return _analyzed(_plan(constant_of(path), constants_of(options), {"on"}, make))

    def eval(self, path: Any, query: Any, **options: Any) -> Iterator[Row]:
        """Yield the rows by descending score."""
        return _rows(_plan(path, options, {"on"}, _by_text(query)))


class LanceHybridSearch:
    """The best rows of a hybrid text and vector search."""

    NAMES: Final = _NEAREST | {"on", "fusion", "text_weight", "vector_weight", "depth"}

    @staticmethod
    def analyze(
        path: AnalyzeArgument,
        text: AnalyzeArgument,
        column: AnalyzeArgument,
        query: AnalyzeArgument,
        **options: AnalyzeArgument,
    ) -> AnalyzeResult:
        """Return the schema: the columns of the table and `_relevance_score`."""
        make = _by_both(constant_of(text), constant_of(column), constant_of(query))
        given = constants_of(options)
        return _analyzed(_plan(constant_of(path), given, LanceHybridSearch.NAMES, make))

    def eval(self, path: Any, text: Any, column: Any, query: Any, **options: Any) -> Iterator[Row]:
        """Yield the rows by descending relevance."""
        make = _by_both(text, column, query)
        return _rows(_plan(path, options, LanceHybridSearch.NAMES, make))


FUNCTION_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "lance_vector_search": ("path", "column", "query"),
    "lance_text_search": ("path", "query"),
    "lance_hybrid_search": ("path", "text", "column", "query"),
}
"""Required arguments of each search, in positional order."""

SEARCH_FUNCTIONS: Final = {
    "lance_vector_search": LanceVectorSearch,
    "lance_text_search": LanceTextSearch,
    "lance_hybrid_search": LanceHybridSearch,
}


def plan_function(name: str, given: Mapping[str, Any]) -> tuple[TableRef, ScanPlan]:
    """Return the version that a call of a search function reads, and its plan."""
    first, *rest = (given[each] for each in FUNCTION_ARGUMENTS[name])
    own = {key: value for key, value in given.items() if key not in FUNCTION_ARGUMENTS[name]}
    match name:
        case "lance_vector_search":
            return _planned(first, own, _NEAREST, _by_vector(*rest))
        case "lance_text_search":
            return _planned(first, own, {"on"}, _by_text(*rest))
        case _:
            return _planned(first, own, LanceHybridSearch.NAMES, _by_both(*rest))


def _plan(
    path: Any, options: Mapping[str, Any], own: frozenset[str] | set[str], make: MakeSearch
) -> ScanPlan:
    return _planned(path, options, own, make)[1]


def _planned(
    path: Any, options: Mapping[str, Any], own: frozenset[str] | set[str], make: MakeSearch
) -> tuple[TableRef, ScanPlan]:
    """Return the table and the plan of a search; `own` are options of this search only."""
    given = {name.lower(): value for name, value in options.items() if value is not None}
    arguments = {name: given.pop(name) for name in own | _COMMON if name in given}
    read = {name: text_of(value) for name, value in given.items()}
    read_options = ReadOptions.parse(read | {"path": str(path)}, SEARCH_NAMES)
    snapshot = pinned(read_options)
    count = int(arguments.pop("k", COUNT))
    if count < 1:
        raise InvalidInputError("k must be at least 1", k=count)
    prefilter = bool(arguments.pop("prefilter", True))
    indexed_only = bool(arguments.pop("fast_search", False))
    names = snapshot.schema.names if read_options.columns is None else read_options.columns
    scan = ScanOptions(
        columns=(*names, *read_options.row_columns),
        filter=read_options.filter,
        limit=count,
        prefilter=prefilter,
        indexed_only=indexed_only,
        search=make(snapshot, arguments, count),
    )
    return ref_of(snapshot, read_options), plan_scan(snapshot, scan)


def _by_vector(column: Any, query: Any) -> MakeSearch:
    def make(snapshot: Snapshot, arguments: dict[str, Any], count: int) -> Search:
        return read_vector_search(
            snapshot.schema, {**arguments, "column": column, "q": _vector(query), "k": count}
        )

    return make


def _by_text(query: Any) -> MakeSearch:
    def make(snapshot: Snapshot, arguments: dict[str, Any], count: int) -> Search:
        del count
        return read_text_search(snapshot, _text_query(query, arguments))

    return make


def _by_both(text: Any, column: Any, query: Any) -> MakeSearch:
    def make(snapshot: Snapshot, arguments: dict[str, Any], count: int) -> Search:
        text_query = _text_query(text, arguments)
        name = str(arguments.pop("fusion", "reciprocal_rank"))
        weights = (
            float(arguments.pop("text_weight", 0.5)),
            float(arguments.pop("vector_weight", 0.5)),
        )
        if name not in _FUSIONS:
            raise InvalidInputError("unknown fusion", found=name, expected=sorted(_FUSIONS))
        depth = arguments.pop("depth", None)
        return hybrid_search(
            snapshot,
            text_query,
            {**arguments, "column": column, "q": _vector(query)},
            count,
            fusion=_FUSIONS[name](weights),
            depth=None if depth is None else int(depth),
        )

    return make


def _text_query(query: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    on = arguments.pop("on", None)
    columns = None if on is None else [name.strip() for name in str(on).split(",")]
    return {"query": str(query), "columns": columns}


def _vector(query: Any) -> np.ndarray[Any, Any]:
    # SQL literals such as 0.1 are decimals.
    return np.array([float(each) for each in query], np.float64)


def _analyzed(plan: ScanPlan) -> AnalyzeResult:
    return AnalyzeResult(to_spark_schema(plan.schema))


def _rows(plan: ScanPlan) -> Iterator[Row]:
    schema = arrow_schema(to_spark_schema(plan.schema))
    for batch in execute(plan):
        yield from rows_of(convert_batch(batch, schema))
