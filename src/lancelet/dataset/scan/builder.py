"""A builder of scanners with the API of pylance."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset

from lancelet import search as searches
from lancelet.arguments import ArgumentTypeError, flag, integer, texts
from lancelet.dataset.arguments import suggests_names, validated_columns
from lancelet.dataset.scan.scan_setters import ScanSetters
from lancelet.dataset.scan.scanner import AggregatedScanner, LanceScanner
from lancelet.dataset.scan.search import (
    SearchFilter,
    VectorSearchQuery,
    split_filter,
    warn_of_unused,
)
from lancelet.errors import FieldNotFoundError, InvalidInputError, similar_names
from lancelet.scan.aggregate import Aggregate
from lancelet.scan.blob_scan import blob_columns
from lancelet.scan.explain import ScanMetrics
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_mask import read_row_mask
from lancelet.scan.scan_options import Ordering, ScanOptions
from lancelet.scan.substrait import read_aggregate
from lancelet.search.full_text import MinHashQuery
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.search.hits import Search

_BATCH_SIZE_VARIABLE: Final = "LANCE_DEFAULT_BATCH_SIZE"
_ORDER: Final = re.compile(
    r"\s*(?P<name>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE,
)
_BLOB_HANDLING: Final = ("all_binary", "blobs_descriptions", "all_descriptions")


class QueryTypeError(InvalidInputError, TypeError):
    """The search query has an unsupported type."""


class UnknownLateColumnError(FieldNotFoundError, RuntimeError):
    """A column for late materialization does not exist."""


@dataclass(frozen=True)
class ColumnOrdering:
    """A column to sort by.

    Attributes:
        column_name: The column.
        ascending: Whether to sort in ascending order.
        nulls_first: Whether to sort nulls before all values.
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


class ScannerBuilder(ScanSetters):
    """Builds a scan. Each method sets one option and returns the builder."""

    def __init__(self, ds: LanceDataset) -> None:
        """Start with a scan of all rows and columns."""
        self._dataset = ds
        self._options = {}
        self._scan_stats: Callable[[ScanMetrics], None] | None = None
        self._with_bytes = False
        self._search_filter: SearchFilter | None = None
        self._aggregate: Aggregate | None = None
        self.apply_defaults(ds.default_scan_options)

    def apply_defaults(self, default_opts: Mapping[str, Any]) -> Self:
        """Set several options together.

        Args:
            default_opts: Values by builder method name.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            ScannerBuilder(dataset).apply_defaults({"limit": 3}).to_scanner().to_table()
            ```
        """
        for name, value in default_opts.items():
            if name not in SETTERS:
                hint = similar_names(name, sorted(SETTERS))
                raise InvalidInputError(f"unknown scan option{hint}", name=name)
            SETTERS[name](self, value)
        return self

    def columns(self, cols: Sequence[str] | Mapping[str, str] | None = None) -> Self:
        """Select columns.

        Args:
            cols: Names of columns, or SQL expressions by name; by default all columns.

        Returns:
            The builder.

        Raises:
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            builder = ScannerBuilder(dataset).columns({"id": "id", "double": "price * 2"})
            builder.to_scanner().to_table()
            ```
        """
        return self._set(columns=validated_columns(cols))

    def filter(self, filter: Any) -> Self:  # noqa: A002 - pylance's name
        """Filter rows by an expression or by another search.

        Args:
            filter: SQL text, a pyarrow expression, or a search.

        Returns:
            The builder.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            ScannerBuilder(dataset).filter("price > 3").to_scanner().to_table()
            ```
        """
        split = split_filter(filter)
        if split.search is not None:
            self._search_filter = split.search
        return self._set(filter=split.expression)

    def with_fragments(self, fragments: Iterable[Any] | None) -> Self:
        """Scan only some fragments, in the given order.

        Args:
            fragments: The fragments; None for all.

        Returns:
            The builder.

        Example:
            ```python
            ScannerBuilder(dataset).with_fragments(dataset.get_fragments()[:1]).to_scanner().to_table()
            ```
        """
        ids = None if fragments is None else tuple(map(_fragment_id, fragments))
        return self._set(fragments=ids)

    def order_by(self, orderings: Sequence[ColumnOrdering | str] | str | None) -> Self:
        """Sort the rows.

        Args:
            orderings: Columns, `ColumnOrdering`s, or text such as `price desc nulls last, name`.

        Returns:
            The builder.

        Raises:
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            ScannerBuilder(dataset).order_by("price desc").to_scanner().to_table()
            ```
        """
        names = frozenset(self._dataset.schema.names)
        given: Sequence[ColumnOrdering | str] = orderings or ()
        if isinstance(given, str):
            given = [given] if given in names else given.split(",")
        elif not isinstance(given, Iterable):
            raise _wrong_ordering(given)
        return self._set(order_by=tuple(_ordering(each, names) for each in given))

    def blob_handling(self, blob_handling: str | None) -> Self:
        """Set the representation of blob columns.

        Args:
            blob_handling: `blobs_descriptions`, the default, or `all_binary`.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            ScannerBuilder(dataset).blob_handling("all_binary").to_scanner().to_table()
            ```
        """
        if blob_handling is not None and blob_handling not in _BLOB_HANDLING:
            raise InvalidInputError(
                f"Invalid blob_handling: {blob_handling}", expected=_BLOB_HANDLING
            )
        self._with_bytes = blob_handling == "all_binary"
        return self

    def row_addr_prefilter(
        self, allowlist: bytes | None = None, blocklist: bytes | None = None
    ) -> Self:
        """Restrict the scan, and searches, to a set of rows; see `serialize_row_addrs`.

        Args:
            allowlist: The `_rowid`s of the rows to scan.
            blocklist: The `_rowid`s to exclude.

        Returns:
            The builder.

        Example:
            ```python
            from lancelet.dataset import ScannerBuilder, serialize_row_addrs

            ids = dataset.to_table([], filter="price > 3", with_row_id=True)["_rowid"].to_pylist()
            scan = ScannerBuilder(dataset).row_addr_prefilter(serialize_row_addrs(ids))
            scan.to_scanner().to_table()
            ```
        """
        return self._set(rows=read_row_mask(allowlist, blocklist))

    def minhash_search(self, query: Any) -> Self:
        """Return rows with the most similar text, best first, using a MINHASHLSH index.

        Args:
            query: A `MinHashQuery`.

        Returns:
            The builder.

        Example:
            ```python
            from lancelet.dataset import ScannerBuilder
            from lancelet.query import MinHashQuery

            dataset.create_scalar_index("text", "MINHASHLSH")
            query = MinHashQuery("a fox in chapter 7", "text")
            ScannerBuilder(dataset).minhash_search(query).limit(3).to_scanner().to_table()
            ```
        """
        if not isinstance(query, MinHashQuery):
            found = type(query).__name__
            raise QueryTypeError(f"minhash_search expects a MinHashQuery, got {found}")
        return self._search(searches.near_texts.NearTexts(query))

    def substrait_aggregate(self, aggregate: bytes) -> Self:
        """Return aggregates instead of rows.

        Args:
            aggregate: A Substrait plan with an aggregation of fields of the dataset at its root:
                count, sum, min, max and avg.

        Returns:
            The builder.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

        Example:
            ```python
            # The plan of `SELECT COUNT(*)` in Substrait.
            plan = "120b1a0910001a05636f756e741a0e120c0a0a220822060a040800300142050801120175"
            ScannerBuilder(dataset).substrait_aggregate(bytes.fromhex(plan)).to_scanner().to_table()
            ```
        """
        self._aggregate = read_aggregate(aggregate, self._dataset.schema)
        return self

    def scan_stats_callback(self, callback: Callable[[ScanMetrics], None] | None) -> Self:
        """Set a function that receives the statistics of the scan when it ends.

        Args:
            callback: The function.

        Returns:
            The builder.

        Example:
            ```python
            ScannerBuilder(dataset).scan_stats_callback(print).to_scanner().to_table()
            ```
        """
        if callback is not None and not callable(callback):
            raise ArgumentTypeError("Callback must be callable", found=type(callback).__name__)
        self._scan_stats = callback
        return self

    @suggests_names
    def nearest(
        self,
        column: str | Mapping[str, Any] | MinHashQuery,
        q: Any = None,
        k: int | None = None,
        metric: str | None = None,
        nprobes: int | None = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        ef: int | None = None,
        query_parallelism: int | None = None,
        approx_mode: str = "normal",
        distance_range: tuple[float | None, float | None] | None = None,
        search_effort: float | None = None,
    ) -> Self:
        """Return the rows with the nearest vectors, nearest first, with a column `_distance`.

        Args:
            column: The vector column; or a dict with these arguments, or a `MinHashQuery`.
            q: One or more query vectors.
            k: The number of rows, by default 10.
            metric: `l2`, `cosine`, `dot` or `hamming`; by default that of the index, else `l2`.
            nprobes: The number of IVF partitions to probe.
            minimum_nprobes: The minimum number of partitions to probe.
            maximum_nprobes: The maximum number of partitions to probe if a filter leaves fewer than
                `k` rows.
            refine_factor: Rank `k * refine_factor` candidates by exact distance.
            use_index: Whether to use a vector index.
            ef: The candidate list size of graph searches.
            query_parallelism: Affects only the speed.
            approx_mode: The distance estimation for compressed vectors.
            distance_range: The lower (inclusive) and upper (exclusive) bound of distances.
            search_effort: The effort from 0 to 1, as an alternative to `nprobes`.

        Returns:
            The builder.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            builder = ScannerBuilder(dataset).nearest("vector", [0.1, 0.2, 0.3, 1.0], k=3)
            builder.to_scanner().to_table()
            ```
        """
        if isinstance(column, MinHashQuery):
            return self.minhash_search(column)
        if isinstance(column, Mapping):
            return self.nearest(**column)
        query = VectorSearchQuery(
            column,
            q,
            k,
            metric,
            nprobes,
            minimum_nprobes,
            maximum_nprobes,
            refine_factor,
            flag("use_index", use_index),
            ef,
            query_parallelism,
            approx_mode,
            search_effort,
        )
        unused = {"query_parallelism": query_parallelism, "search_effort": search_effort}
        warn_of_unused({**unused, "approx_mode": approx_mode})
        arguments = {**query.inner(), "distance_range": distance_range}
        return self._search(
            searches.vector.read_vector_search(self._dataset.snapshot.schema, arguments)
        )

    def disable_scoring_autoprojection(self, disable: bool | None = True) -> Self:
        """Return score columns only if they are selected explicitly.

        Args:
            disable: Whether to omit them by default.

        Returns:
            The builder.

        Example:
            ```python
            ScannerBuilder(dataset).disable_scoring_autoprojection().to_scanner().to_table()
            ```
        """
        is_set = disable is not None and flag("disable_scoring_autoprojection", disable)
        return self._set(adds_scores=not is_set)

    def full_text_search(self, query: Any, columns: Sequence[str] | None = None) -> Self:
        """Return rows that match a full-text query, best first, with a column `_score`.

        Args:
            query: Search terms, or a query of `lancelet.query`.
            columns: The columns to search; by default all columns with a full-text index.

        Returns:
            The builder.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            builder = ScannerBuilder(dataset).full_text_search("fox", columns=["text"])
            builder.to_scanner().to_table()
            ```
        """
        search = {"query": query, "columns": columns} if isinstance(query, str) else query
        return self._search(searches.text.read_text_search(self._dataset.snapshot, search))

    def _search(self, search: Search) -> Self:
        """Set the search; raise if the scan already has one."""
        current = self._options.get("search")
        if current is not None and type(current) is not type(search):
            raise InvalidInputError(
                "Cannot have both nearest and full text search in one scan; use one as the filter "
                "of the other, or combine them with `hybrid_search`",
                searches=[type(current).__name__, type(search).__name__],
            )
        return self._set(search=search)

    def to_scanner(self) -> LanceScanner:
        """Build the scanner.

        Returns:
            The scanner.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            builder = ScannerBuilder(dataset).columns(["id"]).filter("price > 3")
            builder.limit(5).to_scanner().to_table()
            ```
        """
        options = ScanOptions(**self._options)
        if options.batch_size is None and _BATCH_SIZE_VARIABLE in os.environ:
            options = replace(options, batch_size=int(os.environ[_BATCH_SIZE_VARIABLE]))
        if options.segments is not None and not isinstance(
            options.search, searches.vector.VectorSearch
        ):
            raise InvalidInputError("with_index_segments is only supported for vector search")
        if self._aggregate is not None:
            return self._aggregated(options, self._aggregate)
        plan = plan_scan(self._dataset.snapshot, options)
        return LanceScanner(
            plan,
            self._dataset,
            scan_stats=self._scan_stats,
            blobs=blob_columns(plan) if self._with_bytes else {},
            search_filter=self._search_filter,
        )

    def _aggregated(self, options: ScanOptions, aggregate: Aggregate) -> LanceScanner:
        if options.limit is not None or options.offset:
            raise InvalidInputError(
                "Cannot use limit/offset with aggregate. Apply limit to the result instead."
            )
        columns = tuple(aggregate.columns) or tuple(self._dataset.schema.names[:1])
        inputs = replace(options, columns=columns)
        plan = plan_scan(self._dataset.snapshot, inputs)
        return AggregatedScanner(plan, self._dataset, aggregate)

    def _set(self, **options: Any) -> Self:
        self._options.update(options)
        return self

    def with_index_segments(self, index_segments: Iterable[Any] | None) -> Self:
        """Restrict the search to segments of a vector index.

        Args:
            index_segments: The ids of the segments.

        Returns:
            The builder.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=1)
            (index,) = dataset.describe_indices()
            scan = ScannerBuilder(dataset).nearest(column="vector", q=[0.1, 0.2, 0.3, 1.0], k=3)
            scan.with_index_segments([each.uuid for each in index.segments]).to_scanner().to_table()
            ```
        """
        if index_segments is None:
            return self._set(segments=None)
        chosen = frozenset(UUID(str(getattr(each, "uuid", each))) for each in index_segments)
        if not chosen:
            raise InvalidInputError("with_index_segments does not accept an empty segment list")
        return self._set(segments=chosen)

    # --- options of pylance without effect ------------------------------------------------------

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            nbatches: Has no effect: read-ahead is limited in bytes.

        Returns:
            The builder.

        Example:
            ```python
            ScannerBuilder(dataset).batch_readahead(4).to_scanner().to_table()
            ```
        """
        if nbatches is not None and integer("batch_readahead", nbatches) <= 0:
            raise InvalidInputError("batch_readahead must be greater than 0", found=nbatches)
        return self

    def fragment_readahead(self, nfragments: int | None = None) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            nfragments: Has no effect: read-ahead is limited in bytes.

        Returns:
            The builder.

        Example:
            ```python
            ScannerBuilder(dataset).fragment_readahead(2).to_scanner().to_table()
            ```
        """
        if nfragments is not None and integer("fragment_readahead", nfragments) < 0:
            raise InvalidInputError("fragment_readahead must be non-negative", found=nfragments)
        return self

    def late_materialization(self, late_materialization: bool | Sequence[str] | None) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            late_materialization: Has no effect: columns outside of the filter are always read late.

        Returns:
            The builder.

        Example:
            ```python
            builder = ScannerBuilder(dataset).filter("id = 3").late_materialization(["text"])
            builder.to_scanner().to_table()
            ```
        """
        if late_materialization is not None and not isinstance(late_materialization, bool):
            schema = self._dataset.snapshot.schema
            for path in texts("late_materialization", late_materialization):
                try:
                    schema.field_by_path(path)
                except FieldNotFoundError as error:
                    raise UnknownLateColumnError(
                        "unknown column for late_materialization",
                        column=path,
                        available=schema.names[:100],
                    ) from error
        return self


SETTERS: Final[Mapping[str, Callable[[ScannerBuilder, Any], object]]] = {
    **{
        name: setter
        for owner in (ScanSetters, ScannerBuilder)
        for name, setter in vars(owner).items()
        if not name.startswith("_") and name not in {"apply_defaults", "to_scanner"}
    },
    "fragments": ScannerBuilder.with_fragments,
    "index_segments": ScannerBuilder.with_index_segments,
    "full_text_query": ScannerBuilder.full_text_search,
}
"""The builder methods by the names of scan arguments and by their own."""


def build_scanner(
    dataset: Any,
    arguments: Mapping[str, Any],
    *,
    allowlist: bytes | None = None,
    blocklist: bytes | None = None,
) -> LanceScanner:
    """Return the scanner of a dataset for scan arguments; None means the default."""
    builder = ScannerBuilder(dataset)
    if allowlist is not None or blocklist is not None:
        builder.row_addr_prefilter(allowlist, blocklist)
    given = {name: value for name, value in arguments.items() if value is not None}
    return builder.apply_defaults(given).to_scanner()


def _fragment_id(fragment: Any) -> int:
    if not isinstance(fragment, pa.dataset.Fragment):
        raise ArgumentTypeError(
            f"fragments must be an iterable of LanceFragment. Got {type(fragment)} instead."
        )
    return int(fragment.fragment_id)


def _ordering(ordering: ColumnOrdering | str, names: frozenset[str]) -> Ordering:
    if isinstance(ordering, str):
        match = None if ordering in names else _ORDER.fullmatch(ordering)
        if match is None:
            return Ordering(ordering)
        first = (match["nulls"] or "").lower() == "first"
        return Ordering(match["name"], (match["way"] or "").lower() != "desc", first)
    if not hasattr(ordering, "column_name"):
        raise _wrong_ordering(ordering)
    return Ordering(ordering.column_name, ordering.ascending, ordering.nulls_first)


def _wrong_ordering(found: object) -> ArgumentTypeError:
    return ArgumentTypeError(
        "order_by requires column names or ColumnOrdering values", found=type(found).__name__
    )
