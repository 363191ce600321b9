"""What a scan is asked for, option by option, as pylance has it: a builder of scanners."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

import pyarrow as pa
import pyarrow.dataset

from lancelet.dataset.arguments import asked_columns, checks_kinds, says_results
from lancelet.dataset.scan.scanner import AggregatedScanner, LanceScanner
from lancelet.dataset.scan.search import (
    SearchFilter,
    check_vector_search,
    split_filter,
    warn_of_unused,
)
from lancelet.errors import FieldNotFoundError, InvalidInputError, similar_names
from lancelet.file.arguments import ArgumentTypeError, flag, integer, texts
from lancelet.query import search as searches
from lancelet.query.aggregate import Aggregate
from lancelet.query.blob_scan import blob_columns
from lancelet.query.explain import ScanMetrics
from lancelet.query.full_text import MinHashQuery
from lancelet.query.plan import plan_scan
from lancelet.query.row_mask import read_row_mask
from lancelet.query.scan_options import Ordering, ScanOptions
from lancelet.query.substrait import read_aggregate
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.query.search.hits import Search

_BATCH_SIZE_VARIABLE: Final = "LANCE_DEFAULT_BATCH_SIZE"
_ORDER: Final = re.compile(
    r"\s*(?P<name>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE,
)
_SETTERS: Final = {
    "fragments": "with_fragments",
    "index_segments": "with_index_segments",
    "full_text_query": "full_text_search",
}
"""Methods of the builder that have other names than the arguments of a scan."""

_ONLY_CHECKED: Final = ("query_parallelism", "approx_mode", "search_effort")
_BLOB_HANDLING: Final = ("all_binary", "blobs_descriptions", "all_descriptions")


class QueryTypeError(InvalidInputError, TypeError):
    """What is searched for is not a query."""


class UnknownLateColumnError(FieldNotFoundError, RuntimeError):
    """A column that is to be read late is not in the table."""


@dataclass(frozen=True)
class ColumnOrdering:
    """A column to sort by.

    Attributes:
        column_name: The column.
        ascending: Whether the smallest value comes first.
        nulls_first: Whether nulls come before all values.
    """

    column_name: str
    ascending: bool = True
    nulls_first: bool = False


@says_results
class ScannerBuilder:
    """Gathers what a scan shall do; each method changes one thing and returns the builder."""

    def __init__(self, ds: LanceDataset) -> None:
        """Start with a scan of everything."""
        self._dataset = ds
        self._options: dict[str, Any] = {}
        self._scan_stats: Callable[[ScanMetrics], None] | None = None
        self._with_bytes = False
        self._search_filter: SearchFilter | None = None
        self._aggregate: Aggregate | None = None
        self.apply_defaults(ds.default_scan_options)

    def apply_defaults(self, default_opts: Mapping[str, Any]) -> Self:
        """Set several options at once.

        Args:
            default_opts: Values by the name of the builder's method.

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            ScannerBuilder(dataset).apply_defaults({"limit": 3}).to_scanner().to_table()
            ```
        """
        for name, value in default_opts.items():
            if name not in OPTIONS:
                hint = similar_names(name, sorted(OPTIONS))
                raise InvalidInputError(f"no option of a scan has that name{hint}", name=name)
            getattr(self, _SETTERS.get(name, name))(value)
        return self

    def columns(self, cols: Sequence[str] | Mapping[str, str] | None = None) -> Self:
        """Select columns.

        Args:
            cols: Names of columns, or SQL expressions by name; by default all columns.

        Raises:
            FieldNotFoundError: If there is no such column.

        Example:
            ```python
            builder = ScannerBuilder(dataset).columns({"id": "id", "double": "price * 2"})
            builder.to_scanner().to_table()
            ```
        """
        return self._set(columns=asked_columns(cols))

    def filter(self, filter: Any) -> Self:  # noqa: A002 - pylance's name
        """Return only rows for which an expression is true, or that another search finds.

        Args:
            filter: SQL text, a pyarrow expression, or a search.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            ScannerBuilder(dataset).filter("price > 3").to_scanner().to_table()
            ```
        """
        split = split_filter(filter)
        if split.search is not None:
            self._search_filter = split.search
        return self._set(filter=split.expression)

    def limit(self, n: int | None = None) -> Self:
        """Limit the number of rows.

        Args:
            n: The number of rows; None for all.

        Example:
            ```python
            ScannerBuilder(dataset).limit(5).to_scanner().to_table()
            ```
        """
        return self._set(limit=_integer("limit", n))

    def offset(self, n: int | None = None) -> Self:
        """Skip the first rows.

        Args:
            n: The number of rows to skip.

        Example:
            ```python
            ScannerBuilder(dataset).offset(5).to_scanner().to_table()
            ```
        """
        return self._set(offset=_integer("offset", n) or 0)

    def batch_size(self, batch_size: int | None) -> Self:
        """Set the maximum number of rows per batch.

        Args:
            batch_size: The number of rows.

        Example:
            ```python
            ScannerBuilder(dataset).batch_size(5).to_scanner().count_rows()  # 20
            ```
        """
        return self._set(batch_size=_integer("batch_size", batch_size))

    def batch_size_bytes(self, batch_size_bytes: int | None) -> Self:
        """Set the approximate maximum size of a batch.

        Args:
            batch_size_bytes: The number of bytes.

        Example:
            ```python
            ScannerBuilder(dataset).batch_size_bytes(1 << 20).to_scanner().to_table()
            ```
        """
        return self._set(batch_bytes=_integer("batch_size_bytes", batch_size_bytes))

    def memory_limit(self, memory_limit: int | None) -> Self:
        """Limit the memory of the scan, besides the returned batches.

        Batches become as small as needed. A sort of more rows than fit raises `MemoryLimitError`.
        Caches of indices and metadata have limits of their own.

        Args:
            memory_limit: The number of bytes.

        Example:
            ```python
            ScannerBuilder(dataset).memory_limit(1 << 30).to_scanner().to_table()
            ```
        """
        return self._set(memory_limit=_integer("memory_limit", memory_limit))

    def strict_batch_size(self, strict_batch_size: bool = False) -> Self:
        """Set whether all batches but the last are full.

        Args:
            strict_batch_size: Off by default.

        Example:
            ```python
            ScannerBuilder(dataset).batch_size(8).strict_batch_size(True).to_scanner().to_table()
            ```
        """
        return self._set(is_strict=_flag("strict_batch_size", strict_batch_size, default=False))

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Return a column `_rowid`.

        Args:
            with_row_id: Whether to.

        Example:
            ```python
            ScannerBuilder(dataset).with_row_id().to_scanner().to_table()
            ```
        """
        return self._set(with_row_id=_flag("with_row_id", with_row_id, default=False))

    def with_row_address(self, with_row_address: bool = True) -> Self:
        """Return a column `_rowaddr`.

        Args:
            with_row_address: Whether to.

        Example:
            ```python
            ScannerBuilder(dataset).with_row_address().to_scanner().to_table()
            ```
        """
        return self._set(
            with_row_address=_flag("with_row_address", with_row_address, default=False)
        )

    def with_fragments(self, fragments: Iterable[Any] | None) -> Self:
        """Scan only some fragments, in the given order.

        Args:
            fragments: The fragments; None for all.

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

        Raises:
            FieldNotFoundError: If there is no such column.

        Example:
            ```python
            ScannerBuilder(dataset).order_by("price desc").to_scanner().to_table()
            ```
        """
        names = frozenset(self._dataset.schema.names)
        given: Sequence[ColumnOrdering | str] = orderings or ()
        if isinstance(given, str):
            given = [given] if given in names else given.split(",")
        return self._set(order_by=tuple(_ordering(each, names) for each in given))

    def include_deleted_rows(self, flag: bool | None) -> Self:
        """Return deleted rows too, with a null row id.

        Args:
            flag: Whether to.

        Example:
            ```python
            dataset.delete("id = 1")
            builder = ScannerBuilder(dataset).include_deleted_rows(True).with_row_id()
            builder.to_scanner().to_table().num_rows  # 20
            ```
        """
        return self._set(with_deleted=_flag("include_deleted_rows", flag, default=False))

    def use_stats(self, use_stats: bool = True) -> Self:
        """Set whether statistics may rule out rows.

        Args:
            use_stats: On by default.

        Example:
            ```python
            ScannerBuilder(dataset).filter("id = 3").use_stats(False).to_scanner().to_table()
            ```
        """
        return self._set(use_statistics=_flag("use_stats", use_stats, default=True))

    def blob_handling(self, blob_handling: str | None) -> Self:
        """Set what blob columns are read as.

        Args:
            blob_handling: `blobs_descriptions`, the default, or `all_binary`.

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            ScannerBuilder(dataset).blob_handling("all_binary").to_scanner().to_table()
            ```
        """
        if blob_handling is not None and blob_handling not in _BLOB_HANDLING:
            raise InvalidInputError(f"Invalid blob_handling: {blob_handling}", known=_BLOB_HANDLING)
        self._with_bytes = blob_handling == "all_binary"
        return self

    def row_addr_prefilter(
        self, allowlist: bytes | None = None, blocklist: bytes | None = None
    ) -> Self:
        """Restrict the scan, and searches, to some rows. `serialize_row_addrs` makes the sets.

        Args:
            allowlist: The set of `_rowid`s to return at most.
            blocklist: The set of `_rowid`s not to return.

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
        """Return the rows whose texts are most similar, by a MINHASHLSH index, most similar first.

        Args:
            query: A `MinHashQuery`.

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
            aggregate: A Substrait plan whose root is an aggregate of fields of the dataset, by
                count, sum, min, max and avg.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            # What a producer of Substrait makes of `SELECT COUNT(*)`.
            plan = "120b1a0910001a05636f756e741a0e120c0a0a220822060a040800300142050801120175"
            ScannerBuilder(dataset).substrait_aggregate(bytes.fromhex(plan)).to_scanner().to_table()
            ```
        """
        self._aggregate = read_aggregate(aggregate, self._dataset.schema)
        return self

    def use_scalar_index(self, use_scalar_index: bool | None = True) -> Self:
        """Set whether indices may answer the filter.

        Args:
            use_scalar_index: On by default.

        Example:
            ```python
            ScannerBuilder(dataset).filter("id = 3").use_scalar_index(False).to_scanner().to_table()
            ```
        """
        return self._set(use_indices=_flag("use_scalar_index", use_scalar_index, default=True))

    def fast_search(self, flag: bool | None = True) -> Self:
        """Skip rows that the index in use does not cover.

        Args:
            flag: Whether to.

        Example:
            ```python
            ScannerBuilder(dataset).fast_search().to_scanner().to_table()
            ```
        """
        return self._set(indexed_only=_flag("fast_search", flag, default=False))

    def scan_stats_callback(self, callback: Callable[[ScanMetrics], None] | None) -> Self:
        """Call a function with the statistics of the scan, when it has ended.

        Args:
            callback: The function.

        Example:
            ```python
            ScannerBuilder(dataset).scan_stats_callback(print).to_scanner().to_table()
            ```
        """
        if callback is not None and not callable(callback):
            raise ArgumentTypeError("Callback must be callable", found=type(callback).__name__)
        self._scan_stats = callback
        return self

    @checks_kinds
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
            column: The vector column; or a dict of these arguments, or a `MinHashQuery`.
            q: The query vector, or several.
            k: The number of rows, by default 10.
            metric: `l2`, `cosine`, `dot` or `hamming`; by default that of the index, else `l2`.
            nprobes: The number of IVF partitions to probe.
            minimum_nprobes: The number of partitions to probe in any case.
            maximum_nprobes: The number of partitions to probe at most, if a filter leaves too few
                rows.
            refine_factor: The number of candidates to re-rank by exact distance, per row.
            use_index: Whether a vector index may be used.
            ef: The number of candidates of graph searches.
            query_parallelism: Has an effect on speed only.
            approx_mode: How distances of compressed vectors are estimated.
            distance_range: The lower (inclusive) and upper (exclusive) bound of distances.
            search_effort: How hard to search, from 0 to 1, in place of `nprobes`.

        Raises:
            FieldNotFoundError: If there is no such column.
            InvalidInputError: If an argument has a value that it cannot have.

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
        wanted = dict(locals())
        del wanted["self"]
        check_vector_search(wanted)
        asked = {name: wanted.pop(name) for name in _ONLY_CHECKED}
        warn_of_unused(asked)
        return self._search(
            searches.vector.read_vector_search(self._dataset.snapshot.schema, wanted)
        )

    def prefilter(self, prefilter: bool | None = True) -> Self:
        """Set whether a search applies the filter before it searches.

        Args:
            prefilter: On if the method is called; otherwise rows found are filtered.

        Example:
            ```python
            builder = ScannerBuilder(dataset).nearest("vector", [0.1, 0.2, 0.3, 1.0])
            builder = builder.filter("id > 5").prefilter()
            builder.to_scanner().to_table()
            ```
        """
        return self._set(prefilter=_flag("prefilter", prefilter, default=False))

    def disable_scoring_autoprojection(self, disable: bool | None = True) -> Self:
        """Return scores only if they are selected by name.

        Args:
            disable: Whether to.

        Example:
            ```python
            ScannerBuilder(dataset).disable_scoring_autoprojection().to_scanner().to_table()
            ```
        """
        return self._set(
            adds_scores=not _flag("disable_scoring_autoprojection", disable, default=False)
        )

    def full_text_search(self, query: Any, columns: Sequence[str] | None = None) -> Self:
        """Return the rows whose texts match a query, best first, with a column `_score`.

        Args:
            query: Words, or a query of `lancelet.query`.
            columns: The columns to search; by default all with a text index.

        Raises:
            FieldNotFoundError: If there is no such column.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            builder = ScannerBuilder(dataset).full_text_search("fox", columns=["text"])
            builder.to_scanner().to_table()
            ```
        """
        wanted = {"query": query, "columns": columns} if isinstance(query, str) else query
        return self._search(searches.text.read_text_search(self._dataset.snapshot, wanted))

    def _search(self, wanted: Search) -> Self:
        """Search, unless the scan searches for something else already."""
        already = self._options.get("search")
        if already is not None and type(already) is not type(wanted):
            raise InvalidInputError(
                "Cannot have both nearest and full text search in one scan; let one filter the "
                "other, or join them with `hybrid_search`",
                searches=[type(already).__name__, type(wanted).__name__],
            )
        return self._set(search=wanted)

    def to_scanner(self) -> LanceScanner:
        """Build the scanner.

        Returns:
            The scanner.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.
            FieldNotFoundError: If there is no such column.
            InvalidInputError: If an argument has a value that it cannot have.

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
        wanted = replace(options, columns=columns)
        plan = plan_scan(self._dataset.snapshot, wanted)
        return AggregatedScanner(plan, self._dataset, aggregate)

    def _set(self, **options: Any) -> Self:
        self._options.update(options)
        return self

    def with_index_segments(self, index_segments: Iterable[Any] | None) -> Self:
        """Search only some segments of a vector index, and no other rows.

        Args:
            index_segments: The ids of the segments.

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

    # --- options that change how the reference works and not what it returns --------------------

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            nbatches: Has no effect: reading ahead is bounded by bytes.

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
            nfragments: Has no effect: reading ahead is bounded by bytes.

        Example:
            ```python
            ScannerBuilder(dataset).fragment_readahead(2).to_scanner().to_table()
            ```
        """
        if nfragments is not None and integer("fragment_readahead", nfragments) < 0:
            raise InvalidInputError("fragment_readahead must be non-negative", found=nfragments)
        return self

    def io_buffer_size(self, io_buffer_size: int | None) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            io_buffer_size: Has no effect: reading ahead is bounded by the work in flight.

        Example:
            ```python
            ScannerBuilder(dataset).io_buffer_size(64 << 20).to_scanner().to_table()
            ```
        """
        _integer("io_buffer_size", io_buffer_size)
        return self

    def scan_in_order(self, scan_in_order: bool | None = True) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            scan_in_order: Has no effect: rows always come in order.

        Example:
            ```python
            ScannerBuilder(dataset).scan_in_order(False).to_scanner().to_table()
            ```
        """
        _flag("scan_in_order", scan_in_order, default=True)
        return self

    def late_materialization(self, late_materialization: bool | Sequence[str] | None) -> Self:
        """Accepted for compatibility with pylance.

        Args:
            late_materialization: Has no effect: columns outside the filter are always read late.

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
                        "late_materialization names a column that the table does not have",
                        column=path,
                        known=schema.names[:100],
                    ) from error
        return self


OPTIONS: Final = frozenset(_SETTERS) | {
    name for name in vars(ScannerBuilder) if not name.startswith("_")
} - {"apply_defaults", "to_scanner"}
"""What may be set by name, as default options of a dataset are."""


def _integer(name: str, value: object) -> int | None:
    return None if value is None else integer(name, value)


def _flag(name: str, value: object, *, default: bool) -> bool:
    return default if value is None else flag(name, value)


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
        raise ArgumentTypeError(
            "a column to sort by is its name or a ColumnOrdering", found=type(ordering).__name__
        )
    return Ordering(ordering.column_name, ordering.ascending, ordering.nulls_first)
