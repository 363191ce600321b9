"""The methods of a dataset that read rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa

from lancelet.dataset.asked_columns import asked_columns
from lancelet.dataset.row_numbers import whole_numbers
from lancelet.dataset.scan_request import ScanRequest, shows_arguments
from lancelet.dataset.scanner import LanceScanner
from lancelet.errors import InvalidInputError
from lancelet.file.arguments import OutOfRangeError
from lancelet.query.projection import Projection, project_parts
from lancelet.query.scan_options import Columns
from lancelet.query.take import live_addresses, take_addresses, take_places
from lancelet.table.snapshot import Snapshot

_OF_ARROW: Final = frozenset(
    {"cache_metadata", "fragment_scan_options", "memory_pool", "use_threads"}
)

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.dataset.handle import Handle


class ReadingMethods:
    """Reads rows of the version that a dataset looks at."""

    _handle: Handle

    @property
    def _dataset(self) -> LanceDataset:
        return cast("LanceDataset", self)  # it is mixed into nothing else

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
        memory_limit: int | None = None,
    ) -> LanceScanner:
        """Return a scanner; see `ScanRequest` for the arguments."""
        return ScanRequest(
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
            fragments,
            index_segments,
            full_text_query,
            prefilter,
            with_row_id,
            with_row_address,
            use_stats,
            fast_search,
            io_buffer_size,
            late_materialization,
            blob_handling,
            use_scalar_index,
            include_deleted_rows,
            scan_stats_callback,
            strict_batch_size,
            order_by,
            disable_scoring_autoprojection,
            row_addr_allowlist,
            row_addr_blocklist,
            memory_limit,
        ).scanner(self._dataset)

    @shows_arguments(
        "columns filter limit offset nearest batch_size batch_size_bytes batch_readahead "
        "fragment_readahead scan_in_order",
        "prefilter with_row_id with_row_address use_stats fast_search full_text_query "
        "io_buffer_size late_materialization blob_handling use_scalar_index "
        "include_deleted_rows order_by disable_scoring_autoprojection memory_limit",
    )
    def to_table(self, *arguments: Any, **options: Any) -> pa.Table:
        """Return rows as a table; see `ScanRequest` for the arguments, which have its order."""
        return self.scanner(*arguments, **options).to_table()

    @shows_arguments(
        "columns filter limit offset nearest batch_size batch_size_bytes batch_readahead "
        "fragment_readahead scan_in_order",
        "prefilter with_row_id with_row_address use_stats full_text_query io_buffer_size "
        "late_materialization blob_handling use_scalar_index strict_batch_size order_by "
        "disable_scoring_autoprojection memory_limit",
        takes_more=True,
    )
    def to_batches(self, *arguments: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches; see `ScanRequest` for the arguments, which have its order.

        What datasets of Arrow take beside, such as `use_threads`, has no effect.
        """
        own = {name: value for name, value in options.items() if name not in _OF_ARROW}
        return self.scanner(*arguments, **own).to_batches()

    @shows_arguments(
        "columns filter limit offset nearest batch_size batch_readahead fragment_readahead "
        "scan_in_order",
        "prefilter with_row_id with_row_address use_stats fast_search full_text_query "
        "io_buffer_size late_materialization blob_mode use_scalar_index include_deleted_rows "
        "order_by disable_scoring_autoprojection memory_limit",
        takes_more=True,
    )
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
        **options: Any,
    ) -> Any:
        """Return rows as a pandas data frame.

        Blob columns become what `blob_mode` says: `lazy` files, `bytes` or `descriptions`. See
        `ScanRequest` for the other arguments; those that it does not know are for pandas.
        """
        ours, theirs = ScanRequest.split(options)
        scanner = self.scanner(
            columns,
            filter,
            limit,
            offset,
            nearest,
            batch_size,
            batch_readahead=batch_readahead,
            fragment_readahead=fragment_readahead,
            scan_in_order=scan_in_order,
            **ours,
        )
        return scanner.to_pandas(blob_mode=blob_mode, **theirs)

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
        if start < 0:
            raise InvalidInputError(f"start must be non-negative, got {start}")
        return self.to_table(columns, offset=start, limit=end - start)

    def take(
        self,
        indices: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Return the rows at places among the live rows, in any order, as often as named."""
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
        """Return rows chosen at random, each at most once."""
        places = random.sample(range(self.count_rows()), num_rows)
        if not randomize_order:
            places.sort()
        return self.take(places, columns, **kwargs)


def _parts(snapshot: Snapshot, columns: Columns) -> Projection:
    """Return how to take columns; worked out once for names of columns."""
    if isinstance(columns, Mapping):
        return project_parts(snapshot.schema, columns)
    return snapshot.kept.get_or_make(
        ("parts", columns), lambda: project_parts(snapshot.schema, columns)
    )
