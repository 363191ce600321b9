"""The methods that datasets of pyarrow have beside reading.

pyarrow's own would look at a dataset of C++ that is not there, and crash. Those that return a
dataset read the rows they need into memory first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from lancelet.dataset.reading import ReadingMethods
from lancelet.errors import UnsupportedError


class ArrowMethods(ReadingMethods):
    """Takes the place of what pyarrow would do to its own datasets."""

    def filter(self, expression: pc.Expression | str) -> pa.dataset.Dataset:
        """Return the rows for which an expression is true, as a dataset in memory."""
        return pa.dataset.dataset(self.to_table(filter=expression))

    def sort_by(
        self, sorting: str | Sequence[tuple[str, str]], **kwargs: Any
    ) -> pa.dataset.Dataset:
        """Return the rows in an order, as a dataset in memory; see `pyarrow.Table.sort_by`."""
        return pa.dataset.dataset(self.to_table().sort_by(sorting, **kwargs))

    def join(
        self,
        right_dataset: pa.dataset.Dataset,
        keys: str | Sequence[str],
        right_keys: str | Sequence[str] | None = None,
        join_type: str = "left outer",
        left_suffix: str | None = None,
        right_suffix: str | None = None,
        coalesce_keys: bool = True,
        use_threads: bool = True,
    ) -> pa.dataset.Dataset:
        """Return the rows beside those of another dataset, in memory; see `pyarrow.Table.join`."""
        joined = self.to_table().join(
            right_dataset.to_table(),
            keys,
            right_keys,
            join_type,
            left_suffix,
            right_suffix,
            coalesce_keys,
            use_threads,
        )
        return pa.dataset.dataset(joined)

    def join_asof(
        self,
        right_dataset: pa.dataset.Dataset,
        on: str,
        by: str | Sequence[str],
        tolerance: int,
        right_on: str | None = None,
        right_by: str | Sequence[str] | None = None,
    ) -> pa.dataset.Dataset:
        """Return rows beside the nearest of another dataset; see `pyarrow.Table.join_asof`."""
        joined = self.to_table().join_asof(
            right_dataset.to_table(), on, by, tolerance, right_on, right_by
        )
        return pa.dataset.dataset(joined)

    @property
    def partition_expression(self) -> NoReturn:
        """Not available: fragments are not partitions."""
        raise UnsupportedError("partitioning is not part of the format")
