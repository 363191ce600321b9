"""A scan whose rows are not returned but measured, as `ScannerBuilder.substrait_aggregate` asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from lancelet.dataset.scanner import LanceScanner
from lancelet.query.aggregate import Aggregate
from lancelet.query.execute import execute_to_table
from lancelet.query.plan import ScanPlan

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


class AggregatedScanner(LanceScanner):
    """Returns the measures of the rows that a plan reads."""

    def __init__(self, scanner: ScanPlan, dataset: LanceDataset, aggregate: Aggregate) -> None:
        """Measure the rows of a plan, which reads the columns that are needed."""
        super().__init__(scanner, dataset)
        self._aggregate = aggregate

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the measures."""
        return self._aggregate.of(self._plan.schema.empty_table()).schema

    def to_table(self) -> pa.Table:
        """Return the measures."""
        return self._aggregate.of(execute_to_table(self._plan))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the measures in batches."""
        yield from self.to_table().to_batches()
