"""The scanner: results as tables, data frames and streams, and query plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.dataset

from lancelet.dataset.blob import BlobFile
from lancelet.dataset.scan.results import ArrowResult
from lancelet.dataset.scan.search import SearchFilter, with_search_filter
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import Text
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.field import Field
from lancelet.scan.aggregate import Aggregate
from lancelet.scan.blob_scan import (
    blob_columns,
    bytes_schema,
    execute_with_bytes,
    execute_with_files,
)
from lancelet.scan.execute import count_rows, execute, execute_to_table
from lancelet.scan.explain import ScanMetrics, analyze_plan, explain_plan, measure_scan
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

_VALUES_OF: Final = attrgetter(*ScanOptions.__match_args__)
_BLOB_MODES: Final = ("lazy", "bytes", "descriptions")


class LanceScanner(ArrowResult, pa.dataset.Scanner):  # type: ignore[misc]  # pyarrow has no types for it
    """A scan that can be run several times."""

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
        """Wrap a plan; created by `ScannerBuilder` and `LanceDataset.scanner`."""
        del snapshot
        self._unfiltered, self._search_filter = scanner, search_filter
        self._filtered: ScanPlan | None = None
        self._dataset = dataset
        self._scan_stats = scan_stats
        self._blobs = blobs or {}

    @property
    def _plan(self) -> ScanPlan:
        """The plan, restricted to the results of the filtering search when it is first used."""
        plan, filtering = self._unfiltered, self._search_filter
        if filtering is None:
            return plan
        if self._filtered is None:
            options = with_search_filter(plan.snapshot, plan.options, filtering)
            self._filtered = plan_scan(plan.snapshot, options)
        return self._filtered

    def __repr__(self) -> str:
        """Show the dataset and the options."""
        values = zip(*map(_VALUES_OF, (self._unfiltered.options, ScanOptions())), strict=True)
        named = zip(ScanOptions.__match_args__, values, strict=True)
        given = {name: value for name, (value, default) in named if value != default}
        return display.line(
            "LanceScanner", self._dataset.uri, version=self._dataset.version, **given
        )

    def _repr_html_(self) -> str:
        """Render the plan and the first rows for notebooks."""
        facts = {"plan": self.explain_plan(), "columns": self.projected_schema.names}
        return display.card(repr(self), facts)

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the result."""
        return bytes_schema(self._unfiltered, self._blobs)

    @property
    def dataset_schema(self) -> pa.Schema:
        """The schema of the dataset."""
        return self._dataset.schema

    def to_table(self) -> pa.Table:
        """Return all rows as an Arrow table.

        Returns:
            The rows, in memory.

        Example:
            ```python
            dataset.scanner(["id"], filter="price > 3").to_table()
            ```
        """
        if self._scan_stats is not None or self._blobs:
            return self.to_reader().read_all()
        return execute_to_table(self._plan)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Example:
            ```python
            for batch in dataset.scanner(["id"]).to_reader():
                print(batch.num_rows)
            ```
        """
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    stream = to_reader

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches.

        Yields:
            Record batches.

        Example:
            ```python
            for batch in dataset.scanner(["id"], batch_size=5).to_batches():
                print(batch.num_rows)
            ```
        """
        if self._blobs:
            yield from execute_with_bytes(self._plan, self._blobs)
        elif self._scan_stats is None:
            yield from execute(self._plan)
        else:
            yield from measure_scan(self._plan, self._scan_stats)

    def to_pandas(self, *, blob_mode: str = "lazy", **kwargs: Any) -> Any:
        """Return all rows as a pandas data frame.

        Args:
            blob_mode: The representation of blob columns: `lazy` files, `bytes` or `descriptions`.
            **kwargs: Arguments of `pyarrow.Table.to_pandas`.

        Returns:
            A `pandas.DataFrame`.

        Example:
            ```python
            dataset.scanner(["id", "price"]).to_pandas()
            ```
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
        """Return all batches.

        Returns:
            A list of record batches.

        Example:
            ```python
            len(dataset.scanner(["id"]).scan_batches())
            ```
        """
        return list(self.to_batches())

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows.

        Args:
            num_rows: The number of rows.

        Returns:
            At most `num_rows` rows.

        Example:
            ```python
            dataset.scanner(["id"]).head(3)
            ```
        """
        batches: list[pa.RecordBatch] = []
        left = num_rows
        for batch in self.to_batches():
            if left <= 0:
                break
            batches.append(batch.slice(0, left))
            left -= len(batches[-1])
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Return the number of rows.

        Returns:
            The number of rows that the scan returns.

        Example:
            ```python
            dataset.scanner(filter="price > 3").count_rows()
            ```
        """
        return count_rows(self._plan)

    def explain_plan(self, verbose: bool = False) -> str:
        """Return the plan of the scan, with the expected requests and bytes.

        Args:
            verbose: Whether to include details.

        Returns:
            The plan as text.

        Example:
            ```python
            print(dataset.scanner(filter="price > 3").explain_plan())
            ```
        """
        return Text(explain_plan(self._plan, verbose=verbose))

    def analyze_plan(self, count_rows: bool = False) -> str:
        """Run the scan and return its plan with measurements.

        Args:
            count_rows: Whether to count the rows instead of reading them.

        Returns:
            The plan as text.

        Example:
            ```python
            print(dataset.scanner(filter="price > 3").analyze_plan())
            ```
        """
        return Text(analyze_plan(self._plan, count_only=count_rows))

    @staticmethod
    def from_dataset(*_: Any, **__: Any) -> NoReturn:
        """Raise: call `LanceDataset.scanner` instead.

        Raises:
            NotImplementedError: Always.

        Example:
            ```python
            dataset.scanner(["id"], filter="price > 3")  # instead
            ```
        """
        raise UnsupportedError("create a scanner with LanceDataset.scanner")

    from_fragment = from_batches = from_dataset

    def take(self, indices: Any) -> NoReturn:  # noqa: ARG002 - pylance's name
        """Raise: call `LanceDataset.take` instead.

        Args:
            indices: Ignored.

        Raises:
            NotImplementedError: Always.

        Example:
            ```python
            dataset.take([0, 5], ["id"])  # instead
            ```
        """
        raise UnsupportedError("use LanceDataset.take")


class AggregatedScanner(LanceScanner):
    """Computes aggregates, see `ScannerBuilder.substrait_aggregate`."""

    def __init__(self, scanner: ScanPlan, dataset: LanceDataset, aggregate: Aggregate) -> None:
        """Aggregate the rows of a plan that reads the required columns."""
        super().__init__(scanner, dataset)
        self._aggregate = aggregate

    @property
    def projected_schema(self) -> pa.Schema:
        """The schema of the aggregates."""
        return self._aggregate.of(self._plan.schema.empty_table()).schema

    def to_table(self) -> pa.Table:
        """Return the aggregates."""
        return self._aggregate.of(execute_to_table(self._plan))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the aggregates in batches."""
        yield from self.to_table().to_batches()


def _with_files(plan: ScanPlan, blobs: Mapping[str, Field], options: Mapping[str, Any]) -> Any:
    """Return a data frame with blob files."""
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
