"""The methods of a dataset that read rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.dataset.arguments import (
    asked_columns,
    refuse_unknown,
    takes_arguments_of,
    takes_named_arguments_of,
    whole_numbers,
)
from lancelet.dataset.scan.builder import ScannerBuilder
from lancelet.dataset.scan.scanner import LanceScanner
from lancelet.errors import InvalidInputError
from lancelet.file.arguments import OutOfRangeError
from lancelet.query.projection import Projection, project_parts
from lancelet.query.scan_options import Columns
from lancelet.query.take import live_addresses, take_addresses, take_places
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.fragment import LanceFragment
    from lancelet.dataset.handle import Handle
    from lancelet.dataset.scan.builder import ColumnOrdering
    from lancelet.query.explain import ScanMetrics
    from lancelet.query.full_text import FullTextQuery


class ReadingMethods:
    """Reads rows of the version that a dataset looks at."""

    _handle: Handle

    @property
    def _dataset(self) -> LanceDataset:
        return cast("LanceDataset", self)  # it is mixed into nothing else

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | pc.Expression | None = None,  # noqa: A002 - pylance's name
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        fragments: Sequence[LanceFragment] | None = None,
        index_segments: Sequence[Any] | None = None,
        full_text_query: str | Mapping[str, Any] | FullTextQuery | None = None,
        *,
        prefilter: bool | None = None,
        with_row_id: bool | None = None,
        with_row_address: bool | None = None,
        use_stats: bool | None = None,
        fast_search: bool | None = None,
        io_buffer_size: int | None = None,
        late_materialization: bool | Sequence[str] | None = None,
        blob_handling: str | None = None,
        use_scalar_index: bool | None = None,
        include_deleted_rows: bool | None = None,
        scan_stats_callback: Callable[[ScanMetrics], None] | None = None,
        strict_batch_size: bool | None = None,
        order_by: str | Sequence[ColumnOrdering | str] | None = None,
        disable_scoring_autoprojection: bool | None = None,
        row_addr_allowlist: bytes | None = None,
        row_addr_blocklist: bytes | None = None,
        memory_limit: int | None = None,
        use_threads: bool | None = None,
        cache_metadata: bool | None = None,
        fragment_scan_options: Any = None,
        memory_pool: pa.MemoryPool | None = None,
    ) -> LanceScanner:
        """Return a scan that is ready to run, as often as one likes.

        Args:
            columns: Names of columns, paths within structs, or expressions of SQL by the name each
                shall have; by default all columns.
            filter: Text of SQL or an expression of pyarrow; only rows for which it is true are
                returned.
            limit: The most rows to return.
            offset: How many of the first rows to leave out.
            nearest: A search for vectors: a dict with `column`, `q` and `k`, and what
                `ScannerBuilder.nearest` takes beside.
            batch_size: The most rows of a batch.
            batch_size_bytes: The most bytes of a batch, about.
            batch_readahead: Has no effect: reading ahead is bounded by bytes.
            fragment_readahead: Has no effect, for the same reason.
            scan_in_order: Has no effect: rows always come in order.
            fragments: The fragments to read, by default all.
            index_segments: The segments of a vector index to search.
            full_text_query: Words, or a query of `lancelet.query`, that texts must match.
            prefilter: Whether a search looks only at rows that pass the filter.
            with_row_id: Whether to return a column `_rowid`.
            with_row_address: Whether to return a column `_rowaddr`.
            use_stats: Whether statistics may rule out rows.
            fast_search: Whether to leave out rows that an index in use does not cover.
            io_buffer_size: Has no effect: reading ahead is bounded by bytes.
            late_materialization: Has no effect: what a filter does not need is read for the rows
                that match.
            blob_handling: What blobs are read as: `blobs_descriptions`, which says where their
                bytes are, or `all_binary`, the bytes.
            use_scalar_index: Whether indices may answer the filter.
            include_deleted_rows: Whether to return deleted rows too, with a null row id.
            scan_stats_callback: Called with what was read when the scan has ended.
            strict_batch_size: Whether every batch but the last must be full.
            order_by: What to sort by: names, `ColumnOrdering`s, or text such as `"price desc,
                name"`.
            disable_scoring_autoprojection: Whether scores of a search are returned only where they
                are asked for by name.
            row_addr_allowlist: The rows to return at most, as `serialize_row_addrs` makes them.
            row_addr_blocklist: Rows that are not returned, in the same form.
            memory_limit: The bytes that the scan may take, about, beside what it returned.
            use_threads: Has no effect: datasets of pyarrow take it.
            cache_metadata: Has no effect, for the same reason.
            fragment_scan_options: Has no effect, for the same reason.
            memory_pool: Has no effect, for the same reason.

        Returns:
            The scan; nothing is read yet.

        Raises:
            FieldNotFoundError: If a column is not in the table.
            ExpressionError: If the filter, or an expression, cannot be understood.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            scanner = dataset.scanner(["name"], filter="price > 3")
            for batch in scanner.to_batches():
                print(batch.num_rows)
            print(scanner.explain_plan())
            ```
        """
        del use_threads, cache_metadata, fragment_scan_options, memory_pool
        given = {name: value for name, value in locals().items() if value is not None}
        builder = ScannerBuilder(given.pop("self"))
        rows = given.pop("row_addr_allowlist", None), given.pop("row_addr_blocklist", None)
        if rows != (None, None):
            builder.row_addr_prefilter(*rows)
        return builder.apply_defaults(given).to_scanner()

    @takes_arguments_of(scanner)
    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Return rows as a table.

        See `LanceDataset.scanner` for the arguments.

        Returns:
            The rows, in memory.

        Raises:
            FieldNotFoundError: If a column is not in the table.
            ExpressionError: If the filter, or an expression, cannot be understood.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            dataset.to_table(["name", "price"], filter="price > 3", limit=10)
            dataset.to_table({"total": "price * id"}, order_by="price desc")
            dataset.to_table(nearest={"column": "vector", "q": [0.1, 0.2, 0.3, 0.4], "k": 5})
            ```
        """
        try:
            scanner = self.scanner(*arguments, **options)
        except TypeError:
            refuse_unknown("to_table", options, ReadingMethods.scanner.__code__)
            raise
        return scanner.to_table()

    @takes_arguments_of(scanner)
    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches, so that only some are in memory at a time.

        See `LanceDataset.scanner` for the arguments.

        Returns:
            An iterator of batches.

        Raises:
            FieldNotFoundError: If a column is not in the table.
            ExpressionError: If the filter, or an expression, cannot be understood.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            for batch in dataset.to_batches(["name"], filter="price > 3", batch_size=1000):
                print(batch.num_rows)
            ```
        """
        try:
            scanner = self.scanner(*arguments, **options)
        except TypeError:
            refuse_unknown("to_batches", options, ReadingMethods.scanner.__code__)
            raise
        return scanner.to_batches()

    @takes_named_arguments_of(scanner, but=("blob_handling",))
    def to_pandas(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,  # noqa: A002 - pylance's name
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        *,
        blob_mode: str = "lazy",
        **kwargs: Any,
    ) -> Any:
        """Return rows as a pandas data frame.

        See `LanceDataset.scanner` for the other arguments. `blob_mode` is what blob columns
        become: `lazy` files, `bytes` or `descriptions`. Others (`kwargs`) are for
        `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.
            FieldNotFoundError: If there is no such column.

        Example:
            ```python
            frame = dataset.to_pandas(columns=["id", "price"], filter="price > 3")
            frame.describe()
            ```
        """
        given = dict(locals())
        ours = {name: kwargs.pop(name) for name in SCAN_OPTIONS & kwargs.keys()}
        for name in ("self", "blob_mode", "kwargs"):
            del given[name]
        return self.scanner(**given, **ours).to_pandas(blob_mode=blob_mode, **kwargs)

    def count_rows(self, filter: Any = None, **kwargs: Any) -> int:  # noqa: A002 - pylance's name
        """Return the number of rows.

        Without a filter no data file is read.

        Args:
            filter: SQL text or a pyarrow expression: count the rows for which it is true.
            kwargs: Further options of a scan; see `scanner`.

        Returns:
            The number of rows.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.

        Example:
            ```python
            dataset.count_rows()  # 20
            dataset.count_rows("price > 3")
            ```
        """
        if filter is None and not kwargs:
            return self._handle.snapshot.num_rows
        return self.scanner(filter=filter, columns=[], **kwargs).count_rows()

    def head(self, num_rows: int, **kwargs: Any) -> pa.Table:
        """Return the first rows.

        Args:
            num_rows: The number of rows.
            kwargs: Further options of a scan; see `scanner`.

        Returns:
            At most `num_rows` rows.

        Example:
            ```python
            dataset.head(5)
            ```
        """
        return self.to_table(limit=num_rows, **{"offset": 0, **kwargs})

    def slice(self, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a range of rows.

        Args:
            start: The index of the first row.
            end: The index after the last row.
            columns: The columns to return, by default all.

        Returns:
            The rows from `start` up to, not including, `end`.

        Raises:
            IndexError: If a row index is out of range.
            FieldNotFoundError: If there is no such column.

        Example:
            ```python
            dataset.slice(5, 8, columns=["id"])
            ```
        """
        if end < start:
            raise InvalidInputError(f"end ({end}) must be >= start ({start})")
        if start < 0:
            raise InvalidInputError(f"start must be non-negative, got {start}")
        return self.to_table(columns, offset=start, limit=end - start)

    def take(
        self,
        indices: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Return rows by index, in the order of the indices.

        Args:
            indices: Indices among the live rows, from 0. An index may be repeated.
            columns: Names of columns, or SQL expressions by name; by default all columns.

        Returns:
            One row per index.

        Raises:
            IndexError: If a row index is out of range.
            FieldNotFoundError: If there is no such column.

        Example:
            ```python
            dataset.take([7, 0, 7], columns=["id", "name"])
            ```
        """
        snapshot = self._handle.snapshot
        places = whole_numbers(indices)
        if len(places) and int(places.min()) < 0:
            raise OutOfRangeError("the place of a row is negative", row=int(places.min()))
        projection = _parts(snapshot, asked_columns(columns))
        return take_places(snapshot, places, projection)

    def _take_rows(
        self,
        row_ids: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> pa.Table:
        """Return the rows with these ids; ids that no live row has are left out."""
        del kwargs
        snapshot = self._handle.snapshot
        ids = whole_numbers(row_ids).astype(np.uint64)
        projection = _parts(snapshot, asked_columns(columns))
        return take_addresses(snapshot, live_addresses(snapshot, ids), projection)

    def sample(
        self,
        num_rows: int,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        randomize_order: bool = True,
        **kwargs: Any,
    ) -> pa.Table:
        """Return rows chosen at random, without replacement.

        Args:
            num_rows: The number of rows, at most that of the table.
            columns: Names of columns, or SQL expressions by name; by default all columns.
            randomize_order: Whether the rows come in random order, or in that of the table.
            kwargs: Further arguments of `take`.

        Returns:
            The sampled rows.

        Raises:
            ValueError: If the table has fewer rows.

        Example:
            ```python
            dataset.sample(3, columns=["id"])
            ```
        """
        places = random.sample(range(self.count_rows()), num_rows)
        if not randomize_order:
            places.sort()
        return self.take(places, columns, **kwargs)


_CODE: Final = ReadingMethods.scanner.__code__
SCAN_OPTIONS: Final = frozenset(_CODE.co_varnames[1 : _CODE.co_argcount + _CODE.co_kwonlyargcount])
"""The names of what a scan takes."""


def _parts(snapshot: Snapshot, columns: Columns) -> Projection:
    """Return how to take columns; worked out once for names of columns."""
    if isinstance(columns, Mapping):
        return project_parts(snapshot.schema, columns)
    return snapshot.version_cache.get_or_make(
        ("parts", columns), lambda: project_parts(snapshot.schema, columns)
    )
