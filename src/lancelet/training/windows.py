"""Windows of consecutive rows, for time series and frames of videos.

size 3, step 2, rows of group a: 0 1 2 3 4, of b: 5 6 7     ->    0 1 2 | 2 3 4 | 5 6 7
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError
from lancelet.torch.tensors import numbers_of
from lancelet.training.loader import Loader
from lancelet.training.plan import Plan
from lancelet.training.shuffle import ByRows, InOrder, Places
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class WindowPlan:
    """Samples of `size` rows each; `windows` creates it."""

    plan: Plan
    size: int
    starts: Places
    order: ByRows | InOrder
    described: str

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    @property
    def version(self) -> int:
        """The version that is read."""
        return self.plan.version

    @property
    def table(self) -> str:
        """The identity of the version."""
        return self.plan.table

    @property
    def seed(self) -> int:
        """The seed of the order."""
        return self.plan.seed

    @property
    def name(self) -> str:
        """Everything else that the order depends on."""
        return repr(("windows", self.size, self.described, self.plan.name))

    @property
    def layout(self) -> Any:
        """The size of windows and their columns."""
        return [self.size, *self.plan.layout]

    def read(self, places: Places, epoch: int) -> dict[str, Any]:
        """Return the windows at positions: for each column, an array of windows by rows."""
        first = self.starts[self.order.at(places, epoch)]
        numbers = (first[:, None] + np.arange(self.size)).ravel()
        rows = self.plan.rows_of(numbers if self.plan.rows is None else self.plan.rows[numbers])
        return {name: _windowed(rows[name], len(places), self.size) for name in rows.schema.names}

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the windows for one rank."""
        return Loader(self, batch_size, **options)


def windows(plan: Plan, size: int, *, step: int = 1, group_by: str | None = None) -> WindowPlan:
    """Return windows of consecutive rows.

    Args:
        plan: Which rows, and whether windows come in order (`shuffle="none"`) or anywhere (`rows`).
        size: How many rows a window has.
        step: How many rows lie between the starts of windows.
        group_by: A column; no window has rows of two of its values.

    Raises:
        InvalidInputError: There is no window, or rows of the plan have an order of another kind.
    """
    if size < 1 or step < 1:
        raise InvalidInputError("size and step must be at least 1", size=size, step=step)
    if not isinstance(plan.order, ByRows | InOrder):
        raise InvalidInputError("windows need shuffle='none' or shuffle='rows'")
    count = len(plan)
    borders = np.array([0, count])
    if group_by is not None:
        rows = np.arange(count) if plan.rows is None else plan.rows
        values = plan.dataset.take(rows, columns=[group_by])[group_by].combine_chunks()
        codes = pc.dictionary_encode(values, null_encoding="encode").indices.to_numpy()
        borders = np.concatenate(([0], np.flatnonzero(np.diff(codes)) + 1, [count]))
    lengths = np.diff(borders)
    counts = np.maximum(0, (lengths - size) // step + 1)
    ends = np.cumsum(counts)
    if not ends[-1]:
        raise InvalidInputError("no window fits: no consecutive rows are that many", size=size)
    within = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    starts = np.repeat(borders[:-1], counts) + within * step
    is_shuffled = isinstance(plan.order, ByRows)
    order = ByRows(len(starts), plan.seed) if is_shuffled else InOrder(len(starts))
    return WindowPlan(plan, size, starts, order, repr((step, group_by)))


def _windowed(values: pa.ChunkedArray, count: int, size: int) -> npt.NDArray[Any] | list[Any]:
    array = values.combine_chunks()
    numbers, is_bfloat16 = numbers_of(array)
    if numbers is None or is_bfloat16 or array.null_count:
        flat = array.to_pylist()
        return [flat[at * size : (at + 1) * size] for at in range(count)]
    found: npt.NDArray[Any] = numbers.reshape(count, size, *numbers.shape[1:])
    return found
