"""Conversion of results to Arrow, Polars and other data frame libraries.

All of these convert the result of a scan:

    dataset.to_polars()      polars.DataFrame(scanner)      query.to_pandas()
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet.errors import UnsupportedError

if TYPE_CHECKING:
    import polars as pl


class ArrowResult:
    """Converts rows to tables, data frames and streams of other libraries."""

    __slots__ = ()

    @abstractmethod
    def stream(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Example:
            ```python
            dataset.sql("select id from dataset").build().stream().read_all()
            ```
        """

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        Returns:
            All rows, in memory.

        Example:
            ```python
            dataset.scanner(["id"], limit=3).to_arrow()
            ```
        """
        return self.stream().read_all()

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars data frame that shares the memory of the Arrow columns.

        Returns:
            A `polars.DataFrame`.

        Raises:
            UnsupportedError: If Polars is not installed.

        Example:
            ```python
            dataset.scanner(filter="price > 3").to_polars()
            ```
        """
        try:
            import polars as pl  # noqa: PLC0415 - optional
        except ImportError as error:
            raise UnsupportedError("to_polars requires Polars; install `polars`") from error
        found = pl.from_arrow(self.to_arrow())
        assert isinstance(found, pl.DataFrame), "a table is converted to a data frame"
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Export the rows through the Arrow C stream interface."""
        return self.stream().__arrow_c_stream__(requested_schema)
