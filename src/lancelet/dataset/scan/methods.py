"""Methods of a dataset that read rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.dataset.arguments import (
    refuse_unknown,
    takes_arguments_of,
    takes_named_arguments_of,
    validated_columns,
    whole_numbers,
)
from lancelet.dataset.scan.builder import ScannerBuilder
from lancelet.dataset.scan.scanner import LanceScanner
from lancelet.errors import InvalidInputError
from lancelet.file.arguments import OutOfRangeError
from lancelet.scan.projection import Projection, project_parts
from lancelet.scan.scan_options import Columns
from lancelet.scan.take import live_addresses, take_addresses, take_indices
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.fragment import LanceFragment
    from lancelet.dataset.handle import Handle
    from lancelet.dataset.scan.builder import ColumnOrdering
    from lancelet.scan.explain import ScanMetrics
    from lancelet.search.full_text import FullTextQuery


class ReadMethods:
    """Methods that read rows of the checked-out version."""

    _handle: Handle

    @property
    def _dataset(self) -> LanceDataset:
        return cast("LanceDataset", self)  # the only class that uses this mixin

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
        """Return a scanner; it can be run several times.

        Args:
            columns: Names of columns, paths of struct fields, or SQL expressions by output name; by
                default all columns.
            filter: SQL text or a pyarrow expression; by default all rows are returned.
            limit: The maximum number of rows.
            offset: The number of rows to skip.
            nearest: A vector search: a dict with `column`, `q` and `k`, and further parameters of
                `ScannerBuilder.nearest`.
            batch_size: The maximum number of rows per batch.
            batch_size_bytes: The approximate maximum size of a batch.
            batch_readahead: Has no effect: read-ahead is limited in bytes.
            fragment_readahead: Has no effect: read-ahead is limited in bytes.
            scan_in_order: Has no effect: the order of rows is always preserved.
            fragments: The fragments to read, by default all.
            index_segments: The segments of a vector index to search.
            full_text_query: Search terms, or a query of `lancelet.query`.
            prefilter: Whether the filter runs before a search.
            with_row_id: Whether to return a column `_rowid`.
            with_row_address: Whether to return a column `_rowaddr`.
            use_stats: Whether statistics may be used to skip rows.
            fast_search: Whether to skip rows that the index in use does not cover.
            io_buffer_size: Has no effect: read-ahead is limited in bytes.
            late_materialization: Has no effect: columns outside of the filter are always read late.
            blob_handling: The representation of blobs: `blobs_descriptions`, their locations and
                sizes, or `all_binary`, their bytes.
            use_scalar_index: Whether scalar indices may be used for the filter.
            include_deleted_rows: Whether to return deleted rows too, with a null row id.
            scan_stats_callback: Receives the statistics of the scan when it ends.
            strict_batch_size: Whether all batches except the last must be full.
            order_by: The sort order: names, `ColumnOrdering`s, or text such as `"price desc,
                name"`.
            disable_scoring_autoprojection: Whether score columns are returned only if they are
                selected explicitly.
            row_addr_allowlist: The rows to scan, a result of `serialize_row_addrs`.
            row_addr_blocklist: The rows to exclude, a result of `serialize_row_addrs`.
            memory_limit: The approximate memory limit in bytes, excluding the returned batches.
            use_threads: Has no effect; accepted for compatibility with pyarrow.
            cache_metadata: Has no effect; accepted for compatibility with pyarrow.
            fragment_scan_options: Has no effect; accepted for compatibility with pyarrow.
            memory_pool: Has no effect; accepted for compatibility with pyarrow.

        Returns:
            The scanner; no data is read yet.

        Raises:
            FieldNotFoundError: If a column does not exist.
            ExpressionError: If an expression is invalid.
            InvalidInputError: If an argument is invalid.

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
        """Return rows as an Arrow table.

        See `LanceDataset.scanner` for the arguments.

        Returns:
            The rows, in memory.

        Raises:
            FieldNotFoundError: If a column does not exist.
            ExpressionError: If an expression is invalid.
            InvalidInputError: If an argument is invalid.

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
            refuse_unknown("to_table", options, ReadMethods.scanner.__code__)
            raise
        return scanner.to_table()

    @takes_arguments_of(scanner)
    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches, without reading all of them into memory.

        See `LanceDataset.scanner` for the arguments.

        Returns:
            An iterator of batches.

        Raises:
            FieldNotFoundError: If a column does not exist.
            ExpressionError: If an expression is invalid.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            for batch in dataset.to_batches(["name"], filter="price > 3", batch_size=1000):
                print(batch.num_rows)
            ```
        """
        try:
            scanner = self.scanner(*arguments, **options)
        except TypeError:
            refuse_unknown("to_batches", options, ReadMethods.scanner.__code__)
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

        See `LanceDataset.scanner` for the arguments. `blob_mode` selects the representation
        of blob columns: `lazy` files, `bytes` or `descriptions`. Further arguments (`kwargs`) are
        passed to `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.

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

        Without a filter, no data file is read.

        Args:
            filter: SQL text or a pyarrow expression; by default all rows are counted.
            kwargs: Further arguments of `scanner`.

        Returns:
            The number of rows.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.

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
            kwargs: Further arguments of `scanner`.

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
            The rows from `start` (inclusive) to `end` (exclusive).

        Raises:
            IndexError: If a row index is out of range.
            FieldNotFoundError: If a column does not exist.

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
            FieldNotFoundError: If a column does not exist.

        Example:
            ```python
            dataset.take([7, 0, 7], columns=["id", "name"])
            ```
        """
        snapshot = self._handle.snapshot
        rows = whole_numbers(indices)
        if len(rows) and int(rows.min()) < 0:
            raise OutOfRangeError("negative row index", row=int(rows.min()))
        projection = _parts(snapshot, validated_columns(columns))
        return take_indices(snapshot, rows, projection)

    def _take_rows(
        self,
        row_ids: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> pa.Table:
        """Return rows by row id; ids without a live row are skipped."""
        del kwargs
        snapshot = self._handle.snapshot
        ids = whole_numbers(row_ids).astype(np.uint64)
        projection = _parts(snapshot, validated_columns(columns))
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
            randomize_order: Whether to return the rows in random order instead of table order.
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
        rows = random.sample(range(self.count_rows()), num_rows)
        if not randomize_order:
            rows.sort()
        return self.take(rows, columns, **kwargs)


_CODE: Final = ReadMethods.scanner.__code__
SCAN_OPTIONS: Final = frozenset(_CODE.co_varnames[1 : _CODE.co_argcount + _CODE.co_kwonlyargcount])
"""The names of the scan arguments."""


def _parts(snapshot: Snapshot, columns: Columns) -> Projection:
    """Return the parsed columns of a take, cached by column names."""
    if isinstance(columns, Mapping):
        return project_parts(snapshot.schema, columns)
    return snapshot.version_cache.get_or_make(
        ("parts", columns), lambda: project_parts(snapshot.schema, columns)
    )
