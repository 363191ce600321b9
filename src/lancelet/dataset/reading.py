"""The methods of a dataset that read rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancelet.dataset.scanner import LanceScanner, ScannerBuilder
from lancelet.errors import InvalidInputError
from lancelet.file.arguments import OutOfRangeError
from lancelet.query.plan import projection_of
from lancelet.query.scan_options import Columns
from lancelet.query.take import addresses_at, live_addresses, take_addresses

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle


class ReadingMethods:
    """Reads rows of the version that a dataset looks at."""

    _handle: Handle

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,  # noqa: A002 - pylance's name
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        fragments: Sequence[Any] | None = None,
        index_segments: Sequence[Any] | None = None,
        full_text_query: Any = None,
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
        scan_stats_callback: Any = None,
        strict_batch_size: bool | None = None,
        order_by: Sequence[Any] | None = None,
        disable_scoring_autoprojection: bool | None = None,
        row_addr_allowlist: Any = None,
        row_addr_blocklist: Any = None,
    ) -> LanceScanner:
        """Return a scanner.

        Args:
            columns: Names of columns, or expressions by the name each shall have.
            filter: SQL text or an expression of pyarrow; rows for which it is true are returned.
            limit: The most rows to return.
            offset: How many of the first rows to leave out.
            nearest: A search for vectors.
            batch_size: The most rows of a batch.
            batch_size_bytes: The most bytes of a batch, about.
            batch_readahead: Has no effect: reading ahead is bounded by bytes.
            fragment_readahead: Has no effect, for the same reason.
            scan_in_order: Has no effect: rows always come in order.
            fragments: The fragments to read.
            index_segments: Has no effect on a scan without a search.
            full_text_query: A search for text.
            prefilter: Has no effect on a scan without a search.
            with_row_id: Whether to return a column `_rowid`.
            with_row_address: Whether to return a column `_rowaddr`.
            use_stats: Whether statistics may rule out rows.
            fast_search: Has no effect on a scan without a search.
            io_buffer_size: Has no effect: what is read ahead is bounded by the work in flight.
            late_materialization: Has no effect: what a filter does not need is read for the rows
                that match.
            blob_handling: What blob columns are read as.
            use_scalar_index: Whether indices may be used.
            include_deleted_rows: Whether to return deleted rows too, with a null row id.
            scan_stats_callback: Called with what was read when the scan has ended.
            strict_batch_size: Whether every batch but the last must be full.
            order_by: What to sort by.
            disable_scoring_autoprojection: Has no effect on a scan without a search.
            row_addr_allowlist: Not available.
            row_addr_blocklist: Not available.
        """
        builder = ScannerBuilder(self)  # type: ignore[arg-type]  # mixed into LanceDataset alone
        if row_addr_allowlist is not None or row_addr_blocklist is not None:
            raise InvalidInputError(
                "rows cannot be given by lists of addresses; filter by _rowaddr"
            )
        given = {
            "columns": columns,
            "filter": filter,
            "limit": limit,
            "offset": offset,
            "batch_size": batch_size,
            "batch_size_bytes": batch_size_bytes,
            "batch_readahead": batch_readahead,
            "fragment_readahead": fragment_readahead,
            "scan_in_order": scan_in_order,
            "with_fragments": fragments,
            "with_index_segments": index_segments,
            "prefilter": prefilter,
            "with_row_id": with_row_id,
            "with_row_address": with_row_address,
            "use_stats": use_stats,
            "fast_search": fast_search,
            "io_buffer_size": io_buffer_size,
            "late_materialization": late_materialization,
            "blob_handling": blob_handling,
            "use_scalar_index": use_scalar_index,
            "include_deleted_rows": include_deleted_rows,
            "scan_stats_callback": scan_stats_callback,
            "strict_batch_size": strict_batch_size,
            "order_by": order_by,
            "disable_scoring_autoprojection": disable_scoring_autoprojection,
            "nearest": nearest,
            "full_text_search": full_text_query,
        }
        builder.apply_defaults({name: value for name, value in given.items() if value is not None})
        return builder.to_scanner()

    def to_table(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,  # noqa: A002 - pylance's name
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        **options: Any,
    ) -> pa.Table:
        """Return rows as a table; see `scanner` for the arguments."""
        return self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_size_bytes,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            **options,
        ).to_table()

    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,  # noqa: A002 - pylance's name
        limit: int | None = None,
        offset: int | None = None,
        nearest: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        batch_size_bytes: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
        scan_in_order: bool | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches; see `scanner` for the arguments."""
        return self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_size_bytes,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            **options,
        ).to_batches()

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
        prefilter: bool | None = None,
        with_row_id: bool | None = None,
        with_row_address: bool | None = None,
        use_stats: bool | None = None,
        fast_search: bool | None = None,
        full_text_query: Any = None,
        io_buffer_size: int | None = None,
        late_materialization: bool | Sequence[str] | None = None,
        blob_mode: str = "lazy",
        use_scalar_index: bool | None = None,
        include_deleted_rows: bool | None = None,
        order_by: Sequence[Any] | None = None,
        disable_scoring_autoprojection: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return rows as a pandas data frame; what is left over is for pandas."""
        scanner = self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            None,
            batch_readahead,
            fragment_readahead,
            scan_in_order,
            full_text_query=full_text_query,
            prefilter=prefilter,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            use_stats=use_stats,
            fast_search=fast_search,
            io_buffer_size=io_buffer_size,
            late_materialization=late_materialization,
            use_scalar_index=use_scalar_index,
            include_deleted_rows=include_deleted_rows,
            order_by=order_by,
            disable_scoring_autoprojection=disable_scoring_autoprojection,
        )
        return scanner.to_pandas(blob_mode=blob_mode, **kwargs)

    def count_rows(self, filter: Any = None, **kwargs: Any) -> int:  # noqa: A002 - pylance's name
        """Return how many rows there are, or for how many a filter is true."""
        if filter is None and not kwargs:
            return self._handle.snapshot.num_rows
        return self.scanner(filter=filter, columns=[], **kwargs).count_rows()

    def head(self, num_rows: int, **kwargs: Any) -> pa.Table:
        """Return the first rows."""
        return self.to_table(limit=num_rows, **{"offset": 0, **kwargs})

    def slice(self, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows from one place to before another."""
        if end < start:
            raise InvalidInputError(f"end ({end}) must be >= start ({start})")
        return self.to_table(columns, offset=start, limit=end - start)

    def take(
        self,
        indices: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Return the rows at places among the live rows, in any order, as often as named."""
        snapshot = self._handle.snapshot
        places = _whole_numbers(indices)
        if len(places) and int(places.min()) < 0:
            raise OutOfRangeError("the place of a row is negative", row=int(places.min()))
        projection = projection_of(snapshot, _kept(columns), may_repeat=True)
        return take_addresses(snapshot, addresses_at(snapshot, places), projection)

    def _take_rows(
        self,
        row_ids: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> pa.Table:
        """Return the rows with these ids; ids that no live row has are left out."""
        del kwargs
        snapshot = self._handle.snapshot
        ids = _whole_numbers(row_ids).astype(np.uint64)
        projection = projection_of(snapshot, _kept(columns), may_repeat=True)
        return take_addresses(snapshot, live_addresses(snapshot, ids), projection)

    def sample(
        self,
        num_rows: int,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        randomize_order: bool = True,
        **kwargs: Any,
    ) -> pa.Table:
        """Return rows chosen at random, each at most once."""
        places = random.sample(range(self.count_rows()), num_rows)
        if not randomize_order:
            places.sort()
        return self.take(places, columns, **kwargs)


def _whole_numbers(numbers: Sequence[int] | pa.Array | np.ndarray) -> np.ndarray:
    """Return row numbers as signed integers; those that do not fit are refused."""
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    if isinstance(numbers, pa.Array):
        numbers = numbers.to_numpy(zero_copy_only=False)
    found = np.asarray(numbers)
    if found.size == 0:
        return np.empty(0, np.int64)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise InvalidInputError("rows are named by whole numbers", dtype=str(found.dtype))
    return found.astype(np.int64)


def _kept(columns: Sequence[str] | Mapping[str, str] | None) -> Columns:
    return columns if columns is None or isinstance(columns, Mapping) else tuple(columns)
