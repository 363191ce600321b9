"""Plots of a table with matplotlib: `dataset.plot.sizes()`. Requires the extra `plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lancelet.dataset.show import display
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.table.snapshot import open_entries

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset

_MIB = 2**20


class Plots:
    """Plots of a dataset. Each method returns matplotlib axes."""

    def __init__(self, dataset: LanceDataset) -> None:
        """Plot `dataset`."""
        self._dataset = dataset

    def __repr__(self) -> str:
        """Show the dataset."""
        return display.line("Plots", self._dataset.uri, version=self._dataset.version)

    def sizes(self, ax: Any = None) -> Any:
        """Plot the size of each column on disk, largest first.

        Args:
            ax: The axes to draw on; by default new axes.
        """
        schema = self._dataset.snapshot.schema
        stored = {each.id: each.bytes_on_disk for each in self._dataset.stats.data_stats().fields}
        tops = {
            field.name: sum(stored[int(each.id)] for each in field.walk())
            for field in schema.fields
        }
        names = sorted(tops, key=lambda name: tops[name])
        axes = _axes(ax)
        axes.barh(names, [tops[name] / _MIB for name in names])
        axes.set_xlabel("MiB on disk")
        axes.set_title("Columns by size")
        return axes

    def history(self, ax: Any = None) -> Any:
        """Plot the number of rows of each version.

        Args:
            ax: The axes to draw on; by default new axes.
        """
        location = self._dataset.snapshot.location
        entries = location.handler.list_versions(location.store)
        snapshots = list(open_entries(location, entries))
        axes = _axes(ax)
        axes.step(
            [snapshot.version for snapshot in snapshots],
            [snapshot.num_rows for snapshot in snapshots],
            where="post",
            marker="o",
        )
        axes.set_xlabel("version")
        axes.set_ylabel("rows")
        axes.set_ylim(bottom=0)
        axes.set_title("Rows by version")
        return axes

    def fragments(self, ax: Any = None) -> Any:
        """Plot the number of rows and deleted rows of each fragment.

        Args:
            ax: The axes to draw on; by default new axes.
        """
        snapshot = self._dataset.snapshot
        ids = np.asarray(snapshot.fragments.ids)
        live = snapshot.rows_by_fragment
        axes = _axes(ax)
        axes.bar(ids, live, label="rows")
        axes.bar(ids, snapshot.deleted_by_fragment, bottom=live, label="deleted", color="tab:red")
        axes.set_xlabel("fragment")
        axes.set_ylabel("rows")
        axes.legend()
        axes.set_title("Rows by fragment")
        return axes

    def recall(
        self,
        column: str | None = None,
        ax: Any = None,
        *,
        k: int = 10,
        sample: int = 50,
        nprobes: tuple[int, ...] = (1, 2, 4, 8, 16),
    ) -> Any:
        """Plot the recall of a vector index against the search time.

        Args:
            column: The vector column; required if several have an index.
            ax: The axes to draw on; by default new axes.
            k: The number of rows per query.
            sample: The number of vectors of the table used as queries.
            nprobes: The numbers of partitions to probe.
        """
        name = column or self._indexed_vector()
        reports = [
            self._dataset.recall_report(name, k, sample, nprobes=probes, store=False)
            for probes in nprobes
        ]
        axes = _axes(ax)
        times = [report.milliseconds for report in reports]
        axes.plot(times, [report.recall for report in reports], marker="o")
        for probes, time, report in zip(nprobes, times, reports, strict=True):
            axes.annotate(f"nprobes={probes}", (time, report.recall), fontsize="small")
        axes.set_xlabel("milliseconds per search")
        axes.set_ylabel(f"recall at {k}")
        axes.set_title(f"Recall of the index on {name}")
        return axes

    def _indexed_vector(self) -> str:
        names = [
            index.field_names[0]
            for index in self._dataset.describe_indices()
            if index.index_type.startswith("IVF")
        ]
        if len(names) != 1:
            raise InvalidInputError("column is required to select a vector index", indexed=names)
        return names[0]


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            "plots require the extra `plot`: pip install 'lancelet[plot]'", missing=error.name
        ) from error
    return plt.subplots()[1]
