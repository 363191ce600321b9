"""Methods that measure the recall of vector indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancelet import upkeep
from lancelet.dataset.handle import Handle

if TYPE_CHECKING:
    from lancelet.upkeep.indexing.recall import RecallReport, TunedSearch


class RecallMethods:
    """Methods that compare vector indices with exact search."""

    _handle: Handle

    def recall_report(
        self,
        column: str,
        k: int = 10,
        sample: int = 100,
        *,
        nprobes: int | None = None,
        refine_factor: int | None = None,
        ef: int | None = None,
        seed: int = 0,
        store: bool = True,
    ) -> RecallReport:
        """Measure the recall of the vector index on a column.

        Args:
            column: The path of the column.
            k: The number of rows per query.
            sample: The number of vectors of the table used as queries.
            nprobes: The number of partitions to probe; by default that of a search.
            refine_factor: The number of candidates to re-rank per row.
            ef: The number of candidates of graph searches.
            seed: The seed of the random selection of queries.
            store: Whether to store the report in the table metadata, which is a commit. It is
                compared with stored reports; a lower recall issues a `RecallDriftWarning`.

        Returns:
            The report.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If the column has no vector index.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            print(dataset.recall_report("vector", k=3, sample=5, store=False).recall)
            ```
        """
        options = {"probes": nprobes, "refine_factor": refine_factor, "ef": ef}
        handle = self._handle
        report = upkeep.indexing.recall.measure_recall(
            handle.snapshot, column, k=k, sample=sample, seed=seed, options=options
        )
        if store:
            handle.snapshot = upkeep.indexing.recall.store_report(handle.snapshot, report)
        return report

    def tune(
        self,
        column: str,
        k: int = 10,
        target_recall: float = 0.95,
        sample: int = 100,
        *,
        seed: int = 0,
    ) -> TunedSearch:
        """Find the cheapest search parameters that reach a recall.

        Args:
            column: The path of the column.
            k: The number of rows per query.
            target_recall: The minimum fraction of nearest rows to find, from 0 to 1.
            sample: The number of vectors of the table used as queries.
            seed: The seed of the random selection of queries.

        Returns:
            The parameters, for `nearest` of a scan.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If the column has no vector index.

        Example:
            ```python
            dataset.create_index("vector", "IVF_FLAT", num_partitions=2)
            print(dataset.tune("vector", k=3, target_recall=0.9, sample=5))
            ```
        """
        return upkeep.indexing.recall.tune_search(
            self._handle.snapshot,
            column,
            k=k,
            target_recall=target_recall,
            sample=sample,
            seed=seed,
        )
