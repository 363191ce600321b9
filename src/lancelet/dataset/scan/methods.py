"""Methods of a dataset that read rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.arguments import OutOfRangeError
from lancelet.dataset.arguments import validated_columns, whole_numbers
from lancelet.dataset.scan.scan_methods import ScanMethods
from lancelet.errors import InvalidInputError
from lancelet.scan.projection import Projection, project_parts
from lancelet.scan.scan_options import Columns
from lancelet.scan.take import StoredRows, live_addresses, take_addresses, take_stored
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle


class ReadMethods(ScanMethods):
    """Methods that read rows of the checked-out version."""

    _handle: Handle

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
        return self._take_stored(indices, columns).to_table()

    def _take_stored(
        self,
        indices: Sequence[int] | pa.Array | np.ndarray,
        columns: Sequence[str] | Mapping[str, str] | None = None,
    ) -> StoredRows:
        """Return rows by index in storage order, with their order in the request."""
        snapshot = self._handle.snapshot
        rows = whole_numbers(indices)
        if len(rows) and int(rows.min()) < 0:
            raise OutOfRangeError("negative row index", row=int(rows.min()))
        return take_stored(snapshot, rows, _parts(snapshot, validated_columns(columns)))

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
        rows = surroundings.sample(range(self.count_rows()), num_rows)
        if not randomize_order:
            rows.sort()
        return self.take(rows, columns, **kwargs)


def _parts(snapshot: Snapshot, columns: Columns) -> Projection:
    """Return the parsed columns of a take, cached by column names."""
    if isinstance(columns, Mapping):
        return project_parts(snapshot.schema, columns)
    return snapshot.version_cache.get_or_make(
        ("parts", columns), lambda: project_parts(snapshot.schema, columns)
    )
