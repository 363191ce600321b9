"""The methods of a dataset that measure what its indices of vectors find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lancelet import ops
from lancelet.dataset.handle import Handle

if TYPE_CHECKING:
    from lancelet.ops.indexing.recall import RecallReport, TunedSearch


class RecallMethods:
    """Measures indices of vectors against exact search."""

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
        """Return how much of what is nearest the index on a column finds.

        Args:
            column: The path of the column.
            k: How many rows are looked for each time.
            sample: How many vectors of the table are looked for.
            nprobes: How many partitions are looked at; by default as a search does by itself.
            refine_factor: How many candidates are compared exactly for each row wanted.
            ef: How many candidates graphs keep in view.
            seed: Which vectors are looked for.
            store: Whether the report is kept in the table's metadata, which is a commit. It is
                compared with what was kept before; a `RecallDriftWarning` says if it has fallen.
        """
        options = {"probes": nprobes, "refine_factor": refine_factor, "ef": ef}
        handle = self._handle
        report = ops.indexing.recall.measure_recall(
            handle.snapshot, column, k=k, sample=sample, seed=seed, options=options
        )
        if store:
            handle.snapshot = ops.indexing.recall.keep_report(handle.snapshot, report)
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
        """Return the least `nprobes`, `refine_factor` and `ef` that reach a recall on a sample.

        Args:
            column: The path of the column.
            k: How many rows are looked for each time.
            target_recall: The part of the nearest rows that is to be found.
            sample: How many vectors of the table are looked for.
            seed: Which vectors are looked for.
        """
        return ops.indexing.recall.tune_search(
            self._handle.snapshot,
            column,
            k=k,
            target_recall=target_recall,
            sample=sample,
            seed=seed,
        )
