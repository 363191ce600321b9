"""Scans as pylance has them: a builder that gathers options, and the scanner it makes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.dataset

from lancelet.dataset import display
from lancelet.dataset.asked_columns import asked_columns
from lancelet.dataset.blob_file import BlobFile
from lancelet.dataset.results import ArrowResult
from lancelet.dataset.search_filter import (
    SearchFilter,
    check_vector_search,
    split_filter,
    warn_of_unused,
    with_search_filter,
)
from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError, similar_names
from lancelet.file.arguments import ArgumentTypeError, flag, integer, texts
from lancelet.format.field import Field
from lancelet.query import search as searches
from lancelet.query.aggregate import Aggregate
from lancelet.query.blob_scan import (
    blob_columns,
    bytes_schema,
    execute_with_bytes,
    execute_with_files,
)
from lancelet.query.execute import count_rows, execute, execute_to_table
from lancelet.query.explain import ScanMetrics, analyze_plan, explain_plan, measure_scan
from lancelet.query.near_text import MinHashQuery
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.row_mask import read_row_mask
from lancelet.query.scan_options import Ordering, ScanOptions
from lancelet.query.substrait import read_aggregate
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.query.search.hits import Search

_BATCH_SIZE_VARIABLE: Final = "LANCE_DEFAULT_BATCH_SIZE"
_ORDER: Final = re.compile(
    r"\s*(?P<name>.+?)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*",
    re.IGNORECASE,
)
_BLOB_MODES: Final = ("lazy", "bytes", "descriptions")
SETTERS: Final = {
    "fragments": "with_fragments",
    "index_segments": "with_index_segments",
    "full_text_query": "full_text_search",
}
"""Methods of the builder that have other names than the arguments of a scan."""

_OPTIONS: Final = frozenset(SETTERS) | {
    *("columns", "filter", "limit", "offset", "batch_size", "batch_size_bytes", "memory_limit"),
    *("strict_batch_size", "with_row_id", "with_row_address", "with_fragments", "order_by"),
    *("include_deleted_rows", "use_stats", "blob_handling", "minhash_search", "fast_search"),
    *("substrait_aggregate", "use_scalar_index", "scan_stats_callback", "nearest", "prefilter"),
    *("disable_scoring_autoprojection", "full_text_search", "with_index_segments"),
    *("batch_readahead", "fragment_readahead", "io_buffer_size", "scan_in_order"),
    *("late_materialization", "row_addr_prefilter"),
}
"""What may be set by name, as default options of a dataset are."""

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
        """Set options by the names of the methods."""
        for name, value in default_opts.items():
            if name not in _OPTIONS:
                hint = similar_names(name, sorted(_OPTIONS))
                raise InvalidInputError(f"no option of a scan has that name{hint}", name=name)
            getattr(self, SETTERS.get(name, name))(value)
        return self

    def columns(self, cols: Sequence[str] | Mapping[str, str] | None = None) -> Self:
        """Return these columns, or these expressions by the name each shall have."""
        return self._set(columns=asked_columns(cols))

    def filter(self, filter: Any) -> Self:  # noqa: A002 - pylance's name
        """Return only rows for which an expression is true, or that another search finds."""
        split = split_filter(filter)
        if split.search is not None:
            self._search_filter = split.search
        return self._set(filter=split.expression)

    def limit(self, n: int | None = None) -> Self:
        """Return at most so many rows."""
        return self._set(limit=None if n is None else integer("limit", n))

    def offset(self, n: int | None = None) -> Self:
        """Leave out so many of the first rows."""
        return self._set(offset=0 if n is None else integer("offset", n))

    def batch_size(self, batch_size: int | None) -> Self:
        """Return batches of at most so many rows."""
        size = None if batch_size is None else integer("batch_size", batch_size)
        return self._set(batch_size=size)

    def batch_size_bytes(self, batch_size_bytes: int | None) -> Self:
        """Return batches of at most so many bytes, about."""
        size = None if batch_size_bytes is None else integer("batch_size_bytes", batch_size_bytes)
        return self._set(batch_bytes=size)

    def memory_limit(self, memory_limit: int | None) -> Self:
        """Take about so many bytes at most beside what is returned.

        Batches become as small as that takes, and a sort of more rows than fit raises
        `MemoryLimitError`. Indices and what is kept of files have limits of their own.
        """
        limit = None if memory_limit is None else integer("memory_limit", memory_limit)
        return self._set(memory_limit=limit)

    def strict_batch_size(self, strict_batch_size: bool = False) -> Self:
        """Fill every batch but the last."""
        return self._set(is_strict=_flag("strict_batch_size", strict_batch_size, default=False))

    def with_row_id(self, with_row_id: bool = True) -> Self:
        """Return a column `_rowid`."""
        return self._set(with_row_id=_flag("with_row_id", with_row_id, default=False))

    def with_row_address(self, with_row_address: bool = True) -> Self:
        """Return a column `_rowaddr`."""
        return self._set(
            with_row_address=_flag("with_row_address", with_row_address, default=False)
        )

    def with_fragments(self, fragments: Iterable[Any] | None) -> Self:
        """Read these fragments only, in the order given."""
        ids = None if fragments is None else tuple(map(_fragment_id, fragments))
        return self._set(fragments=ids)

    def order_by(self, orderings: Sequence[ColumnOrdering | str] | str | None) -> Self:
        """Sort the rows by columns, or by text such as `price desc nulls last, name`."""
        names = frozenset(self._dataset.schema.names)
        given: Sequence[ColumnOrdering | str] = orderings or ()
        if isinstance(given, str):
            given = [given] if given in names else given.split(",")
        return self._set(order_by=tuple(_ordering(each, names) for each in given))

    def include_deleted_rows(self, flag: bool | None) -> Self:
        """Return deleted rows too, with a null row id."""
        return self._set(with_deleted=_flag("include_deleted_rows", flag, default=False))

    def use_stats(self, use_stats: bool = True) -> Self:
        """Skip rows that statistics rule out."""
        return self._set(use_statistics=_flag("use_stats", use_stats, default=True))

    def blob_handling(self, blob_handling: str | None) -> Self:
        """Say what blob columns are read as; see `ScanRequest`."""
        if blob_handling is not None and blob_handling not in _BLOB_HANDLING:
            raise InvalidInputError(f"Invalid blob_handling: {blob_handling}", known=_BLOB_HANDLING)
        self._with_bytes = blob_handling == "all_binary"
        return self

    def row_addr_prefilter(
        self, allowlist: bytes | None = None, blocklist: bytes | None = None
    ) -> Self:
        """Return only rows of one set by `_rowid`, and none of another.

        A search looks at no other rows. `serialize_row_addrs` makes the sets.
        """
        return self._set(rows=read_row_mask(allowlist, blocklist))

    def minhash_search(self, query: Any) -> Self:
        """Return the rows whose texts are most similar to a wanted one, the most similar first."""
        if not isinstance(query, MinHashQuery):
            found = type(query).__name__
            raise QueryTypeError(f"minhash_search expects a MinHashQuery, got {found}")
        return self._search(searches.near_texts.NearTexts(query))

    def substrait_aggregate(self, aggregate: bytes) -> Self:
        """Return measures of the rows instead of rows, as a plan of Substrait asks.

        Args:
            aggregate: The plan. Its first relation is an aggregate over fields of the dataset's
                schema, with the functions count, sum, min, max and avg.
        """
        self._aggregate = read_aggregate(aggregate, self._dataset.schema)
        return self

    def use_scalar_index(self, use_scalar_index: bool | None = True) -> Self:
        """Say whether indices may answer parts of the filter; they may by default."""
        return self._set(use_indices=_flag("use_scalar_index", use_scalar_index, default=True))

    def fast_search(self, flag: bool | None = True) -> Self:
        """Say whether to leave out rows that an index in use does not cover."""
        return self._set(indexed_only=_flag("fast_search", flag, default=False))

    def scan_stats_callback(self, callback: Callable[[ScanMetrics], None] | None) -> Self:
        """Call back with what was read when the scan has ended."""
        if callback is not None and not callable(callback):
            raise ArgumentTypeError("Callback must be callable", found=type(callback).__name__)
        self._scan_stats = callback
        return self

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
        """Return the rows whose vectors are nearest to one or several, the nearest first."""
        if isinstance(column, MinHashQuery):
            return self.minhash_search(column)
        if isinstance(column, Mapping):
            return self.nearest(**column)
        wanted = {
            "column": column,
            "q": q,
            "k": k,
            "metric": metric,
            "nprobes": nprobes,
            "minimum_nprobes": minimum_nprobes,
            "maximum_nprobes": maximum_nprobes,
            "refine_factor": refine_factor,
            "use_index": use_index,
            "ef": ef,
            "distance_range": distance_range,
        }
        asked = {
            "query_parallelism": query_parallelism,
            "approx_mode": approx_mode,
            "search_effort": search_effort,
        }
        check_vector_search({**wanted, **asked})
        warn_of_unused(asked)
        return self._search(
            searches.vector.read_vector_search(self._dataset.snapshot.schema, wanted)
        )

    def prefilter(self, prefilter: bool | None = True) -> Self:
        """Say whether a search looks only at rows that pass the filter; else it is filtered."""
        return self._set(prefilter=_flag("prefilter", prefilter, default=False))

    def disable_scoring_autoprojection(self, disable: bool | None = True) -> Self:
        """Return scores only where they are asked for by name."""
        return self._set(
            adds_scores=not _flag("disable_scoring_autoprojection", disable, default=False)
        )

    def full_text_search(self, query: Any, columns: Sequence[str] | None = None) -> Self:
        """Return the rows whose texts match a query, the best first.

        Args:
            query: A query of `lancelet.query`, or words.
            columns: Where words are looked for; by default every column with a text index.
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
        """Return the scanner of the options so far."""
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
        from lancelet.dataset.aggregated import AggregatedScanner  # noqa: PLC0415 - it is a scanner

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
        """Search only some segments of an index of vectors, given by id, and no other rows."""
        if index_segments is None:
            return self._set(segments=None)
        chosen = frozenset(UUID(str(getattr(each, "uuid", each))) for each in index_segments)
        if not chosen:
            raise InvalidInputError("with_index_segments does not accept an empty segment list")
        return self._set(segments=chosen)

    # --- options that change how the reference works and not what it returns --------------------

    def batch_readahead(self, nbatches: int | None = None) -> Self:
        """Take what has no effect: reading ahead is bounded by bytes."""
        if nbatches is not None and integer("batch_readahead", nbatches) <= 0:
            raise InvalidInputError("batch_readahead must be greater than 0", found=nbatches)
        return self

    def fragment_readahead(self, nfragments: int | None = None) -> Self:
        """Take what has no effect: reading ahead is bounded by bytes."""
        if nfragments is not None and integer("fragment_readahead", nfragments) < 0:
            raise InvalidInputError("fragment_readahead must be non-negative", found=nfragments)
        return self

    def io_buffer_size(self, io_buffer_size: int | None) -> Self:
        """Take what has no effect: what is read ahead is bounded by the work in flight."""
        if io_buffer_size is not None:
            integer("io_buffer_size", io_buffer_size)
        return self

    def scan_in_order(self, scan_in_order: bool | None = True) -> Self:
        """Take what has no effect: rows always come in order."""
        _flag("scan_in_order", scan_in_order, default=True)
        return self

    def late_materialization(self, late_materialization: bool | Sequence[str] | None) -> Self:
        """Take what has no effect: what a filter does not need is read for matching rows alone."""
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


class LanceScanner(ArrowResult, pa.dataset.Scanner):  # type: ignore[misc]  # pyarrow has no types for it
    """A scan that is ready to run, as often as one likes."""

    def __init__(
        self,
        scanner: ScanPlan,
        dataset: LanceDataset,
        snapshot: Snapshot | None = None,
        *,
        scan_stats: Callable[[ScanMetrics], None] | None = None,
        blobs: Mapping[str, Field] | None = None,
        search_filter: SearchFilter | None = None,
    ) -> None:
        """Run a plan; made by `ScannerBuilder` and `LanceDataset.scanner`."""
        del snapshot
        self._unfiltered, self._search_filter = scanner, search_filter
        self._filtered: ScanPlan | None = None
        self._dataset = dataset
        self._scan_stats = scan_stats
        self._blobs = blobs or {}

    @property
    def _plan(self) -> ScanPlan:
        """The plan with what the filtering search finds, which is looked for when rows are."""
        plan, filtering = self._unfiltered, self._search_filter
        if filtering is None:
            return plan
        if self._filtered is None:
            options = with_search_filter(plan.snapshot, plan.options, filtering)
            self._filtered = plan_scan(plan.snapshot, options)
        return self._filtered

    def __repr__(self) -> str:
        """Show what is scanned, and how."""
        options = self._unfiltered.options
        shown = {field.name: getattr(options, field.name) for field in fields(options)}
        plain = {field.name: field.default for field in fields(options)}
        given = {name: value for name, value in shown.items() if value != plain[name]}
        return display.line(
            "LanceScanner", self._dataset.uri, version=self._dataset.version, **given
        )

    def _repr_html_(self) -> str:
        """Show the plan and what comes out, in a notebook."""
        facts = {"plan": self.explain_plan(), "columns": self.projected_schema.names}
        return display.card(repr(self), facts)

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of what is returned."""
        return bytes_schema(self._unfiltered, self._blobs)

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._dataset.schema

    def to_table(self) -> pa.Table:
        """Return all rows."""
        if self._scan_stats is not None or self._blobs:
            return self.to_reader().read_all()
        return execute_to_table(self._plan)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    stream = to_reader

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches."""
        if self._blobs:
            yield from execute_with_bytes(self._plan, self._blobs)
        elif self._scan_stats is None:
            yield from execute(self._plan)
        else:
            yield from measure_scan(self._plan, self._scan_stats)

    def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> Any:
        """Return all rows as a pandas data frame, blobs as `blob_mode` says.

        Args:
            blob_mode: `lazy` makes blobs files of which nothing is read yet, `bytes` reads them,
                and `descriptions` says where they are.
            **kwargs: For pandas; see `pyarrow.Table.to_pandas`.
        """
        if blob_mode not in _BLOB_MODES:
            raise InvalidInputError("blob_mode must be one of " + ", ".join(_BLOB_MODES))
        blobs = {} if blob_mode == "descriptions" else blob_columns(self._plan)
        if not blobs or self._blobs:
            return self.to_table().to_pandas(**kwargs)
        if blob_mode == "bytes":
            batches = execute_with_bytes(self._plan, blobs)
            return pa.Table.from_batches(batches, bytes_schema(self._plan, blobs)).to_pandas(
                **kwargs
            )
        return _with_files(self._plan, blobs, kwargs)

    def scan_batches(self) -> list[pa.RecordBatch]:
        """Return all batches."""
        return list(self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        batches: list[pa.RecordBatch] = []
        left = num_rows
        for batch in self.to_batches():
            if left <= 0:
                break
            batches.append(batch.slice(0, left))
            left -= len(batches[-1])
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Return how many rows there are."""
        return count_rows(self._plan)

    def explain_plan(self, verbose: bool = False) -> str:
        """Return what the scan does, with the requests and bytes it is expected to take."""
        return explain_plan(self._plan, verbose=verbose)

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and return what it does, with what it took."""
        return analyze_plan(self._plan, count_only=count_rows)

    @staticmethod
    def from_dataset(*_: Any, **__: Any) -> NoReturn:
        """Refuse: a scanner is made by its dataset."""
        raise UnsupportedError("make a scanner with LanceDataset.scanner")

    from_fragment = from_batches = from_dataset

    def take(self, indices: Any) -> NoReturn:  # noqa: ARG002 - pylance's name
        """Refuse: rows are taken from the dataset."""
        raise UnsupportedError("take rows with LanceDataset.take")


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


def _with_files(plan: ScanPlan, blobs: Mapping[str, Field], options: Mapping[str, Any]) -> Any:
    """Return a data frame whose blobs are files."""
    batches: list[pa.RecordBatch] = []
    files: dict[str, list[Any]] = {name: [] for name in blobs}
    for batch, found in execute_with_files(plan, blobs, BlobFile):
        batches.append(batch)
        for name, values in found.items():
            files[name] += values
    frame = pa.Table.from_batches(batches, plan.schema).to_pandas(**options)
    for name, values in files.items():
        column = np.empty(len(values), object)
        column[:] = values
        frame[name] = column
    return frame
