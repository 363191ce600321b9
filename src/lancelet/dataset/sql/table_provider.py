"""Datasets as tables of DataFusion's Python package.

    context.register_table("t", FFILanceTableProvider(dataset, with_row_id=True))
    context.sql("SELECT * FROM t WHERE a > 3")

DataFusion reads datasets of pyarrow: it asks for the columns that a query needs and hands down what
it can of the conditions. All rows are one fragment to it, so they come in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class FFILanceTableProvider(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset that DataFusion can register as a table."""

    def __init__(
        self, dataset: LanceDataset, *, with_row_id: bool = False, with_row_addr: bool = False
    ) -> None:
        """Offer a dataset, with columns `_rowid` and `_rowaddr` if they are asked for."""
        self._dataset = dataset
        shown = dataset.scanner(with_row_id=with_row_id, with_row_address=with_row_addr)
        self._columns = shown.projected_schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._columns

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:  # noqa: A002 - pyarrow's name
        """Yield the table itself, as the one fragment it has."""
        del filter
        yield self

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        batch_size: int | None = None,
        **options: Any,
    ) -> pyarrow.dataset.Scanner:
        """Return a scanner of columns, by default of all.

        Args:
            schema: Has no effect: the columns have the types that they have.
            columns: The names of the columns.
            filter: The condition that rows have to meet.
            batch_size: The most rows of a batch.
            **options: Have no effect: memory and threads are those of the process.
        """
        del schema, options
        names = self.schema.names if columns is None else list(columns)
        return self._dataset.scanner(columns=names, filter=filter, batch_size=batch_size)
