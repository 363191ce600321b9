"""Windows of consecutive rows, for time series and video frames.

For example:

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
from lancelet.training.arguments import check_integers
from lancelet.training.loader import Loader
from lancelet.training.plan import Plan
from lancelet.training.shuffle import ByRows, InOrder, Positions
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class WindowPlan:
    """Samples of `size` rows each; created by `windows`."""

    plan: Plan
    size: int
    starts: Positions
    order: ByRows | InOrder
    described: str

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.starts)

    @property
    def version(self) -> int:
        """The version of the dataset."""
        return self.plan.version

    @property
    def table(self) -> str:
        """The identifier of the version."""
        return self.plan.table

    @property
    def seed(self) -> int:
        """The seed of the order."""
        return self.plan.seed

    @property
    def name(self) -> str:
        """A description of all further parameters of the order."""
        return repr(("windows", self.size, self.described, self.plan.name))

    @property
    def layout(self) -> Any:
        """The window size, and the names and types of columns."""
        return [self.size, *self.plan.layout]

    def read(self, positions: Positions, epoch: int) -> dict[str, Any]:
        """Return the windows at positions, as arrays with the shape (windows, size) by column."""
        first = self.starts[self.order.at(positions, epoch)]
        numbers = (first[:, None] + np.arange(self.size)).ravel()
        rows = self.plan.rows_of(numbers if self.plan.rows is None else self.plan.rows[numbers])
        return {
            name: _windowed(rows[name], len(positions), self.size) for name in rows.schema.names
        }

    def locate(self, position: int, epoch: int) -> dict[str, Any]:
        """Return the index of the first row of a window, for error messages."""
        first = int(self.starts[self.order.at(np.array([position]), epoch)][0])
        return {"first_row": first if self.plan.rows is None else int(self.plan.rows[first])}

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the windows for one rank."""
        return Loader(self, batch_size, **options)


def windows(
    plan: Plan,
    size: int,
    *,
    step: int = 1,
    group_by: str | None = None,
    allow_gaps: bool = False,
) -> WindowPlan:
    """Create windows of consecutive rows.

    Args:
        plan: The plan of the rows, with `shuffle="none"` for ordered windows or `"rows"`.
        size: The number of rows per window.
        step: The number of rows between the starts of windows.
        group_by: A column; all rows of a window have the same value.
        allow_gaps: Whether the rows of a window may be separated by rows that the filter or the
            split of the plan excludes.

    Raises:
        InvalidInputError: No window fits, or the plan has an unsupported order.
    """
    check_integers(size=size, step=step)
    if size < 1 or step < 1:
        raise InvalidInputError("size and step must be at least 1", size=size, step=step)
    if not isinstance(plan.order, ByRows | InOrder):
        raise InvalidInputError("windows require shuffle='none' or shuffle='rows'")
    count = len(plan)
    is_end = np.zeros(max(count - 1, 0), np.bool_)
    if plan.rows is not None and not allow_gaps:
        is_end |= np.diff(plan.rows) != 1
    if group_by is not None:
        rows = np.arange(count) if plan.rows is None else plan.rows
        values = plan.dataset.take(rows, columns=[group_by])[group_by].combine_chunks()
        codes = pc.dictionary_encode(values, null_encoding="encode").indices.to_numpy()
        is_end |= np.diff(codes) != 0
    bounds = np.concatenate(([0], np.flatnonzero(is_end) + 1, [count]))
    lengths = np.diff(bounds)
    counts = np.maximum(0, (lengths - size) // step + 1)
    ends = np.cumsum(counts)
    if not ends[-1]:
        raise InvalidInputError(
            "no run of consecutive rows is long enough for a window; pass allow_gaps=True to skip "
            "rows that the filter or the split excludes",
            size=size,
        )
    within = np.arange(int(ends[-1])) - np.repeat(ends - counts, counts)
    starts = np.repeat(bounds[:-1], counts) + within * step
    is_shuffled = isinstance(plan.order, ByRows)
    order = ByRows(len(starts), plan.seed) if is_shuffled else InOrder(len(starts))
    return WindowPlan(
        plan,
        size,
        starts,
        order,
        repr((step, group_by, allow_gaps) if allow_gaps else (step, group_by)),
    )


def _windowed(values: pa.ChunkedArray, count: int, size: int) -> npt.NDArray[Any] | list[Any]:
    array = values.combine_chunks()
    numbers, is_bfloat16 = numbers_of(array)
    if numbers is None or is_bfloat16 or array.null_count:
        flat = array.to_pylist()
        return [flat[at * size : (at + 1) * size] for at in range(count)]
    windowed: npt.NDArray[Any] = numbers.reshape(count, size, *numbers.shape[1:])
    return windowed
