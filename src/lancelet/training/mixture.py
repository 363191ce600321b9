"""Mixtures of plans, windows or packed sequences; each sample is drawn from one source by weight.

    weights {a: 2, b: 1}    a b a a b a ...    first of a, first of b, second of a, ...

An exhausted plan continues with its next epoch, independent of ranks and batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.training.loader import Loader, Source
from lancelet.training.shuffle import Positions, fractions, mixed_key
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Samples of several sources; created by `mix`."""

    plans: tuple[Source, ...]
    ends: npt.NDArray[np.float64]
    samples: int
    seed: int
    _assignments: dict[int, tuple[npt.NDArray[np.int8], Positions]] = field(
        default_factory=dict, repr=False
    )

    def __len__(self) -> int:
        """Return the number of samples per epoch."""
        return self.samples

    @property
    def version(self) -> list[int]:
        """The versions of the datasets."""
        return [plan.version for plan in self.plans]

    @property
    def table(self) -> list[Any]:
        """The identifiers of the versions."""
        return [plan.table for plan in self.plans]

    @property
    def name(self) -> str:
        """A description of the parameters of the order."""
        shares = np.diff(self.ends, prepend=0.0).tolist()
        return repr((self.samples, shares, [(plan.seed, plan.name) for plan in self.plans]))

    @property
    def layout(self) -> Any:
        """The structure of samples; equal for all sources."""
        return self.plans[0].layout

    def read(self, positions: Positions, epoch: int) -> Any:
        """Return the samples at positions of an epoch, in order."""
        plan_indices, positions_in_plans = self._assign(epoch)
        plan_indices, positions_in_plans = plan_indices[positions], positions_in_plans[positions]
        parts, order = [], []
        for index, plan in enumerate(self.plans):
            indices = np.flatnonzero(plan_indices == index)
            # The sample count continues across epochs of the mixture, so epochs differ.
            epochs, positions_in_plan = np.divmod(positions_in_plans[indices], len(plan))
            for each in np.unique(epochs).tolist():
                in_epoch = epochs == each
                parts.append(plan.read(positions_in_plan[in_epoch], int(each)))
                order.append(indices[in_epoch])
        return _joined(parts, np.argsort(np.concatenate(order)))

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the mixture for one rank."""
        return Loader(self, batch_size, **options)

    def _assign(self, epoch: int) -> tuple[npt.NDArray[np.int8], Positions]:
        """Return the plan of each sample of an epoch, and its position in that plan."""
        assignment = self._assignments.get(epoch)
        if assignment is None:
            before = np.zeros(len(self.plans), np.int64)
            for earlier_epoch in range(epoch):
                before += np.bincount(self._draw(earlier_epoch), minlength=len(self.plans))
            plan_indices = self._draw(epoch)
            positions_in_plans = np.empty(self.samples, np.int64)
            for index in range(len(self.plans)):
                is_plan = plan_indices == index
                positions_in_plans[is_plan] = before[index] + np.arange(np.count_nonzero(is_plan))
            assignment = plan_indices, positions_in_plans
            self._assignments.clear()
            self._assignments[epoch] = assignment
        return assignment

    def _draw(self, epoch: int) -> npt.NDArray[np.int8]:
        drawn = fractions(np.arange(self.samples), mixed_key(self.seed, epoch)) * self.ends[-1]
        plan_indices: npt.NDArray[np.int8] = np.searchsorted(self.ends, drawn, "right").astype(
            np.int8
        )
        return plan_indices


def _joined(parts: Sequence[Any], order: Positions) -> Any:
    """Concatenate the samples of all parts and reorder them."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts).take(pa.array(order))
    columns: dict[str, Any] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if all(isinstance(each, np.ndarray) for each in values):
            columns[name] = np.concatenate(values)[order]
        else:
            # Columns with nulls or non-numeric values are lists.
            samples = [sample for each in values for sample in each]
            columns[name] = [samples[at] for at in order.tolist()]
    return columns


def mix(
    plans: Sequence[Source],
    weights: Sequence[float] | None = None,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> Mixture:
    """Combine the samples of several plans.

    Args:
        plans: Plans, or results of `pack` or `windows`, with the same columns.
        weights: The relative frequency of each plan; its number of samples by default.
        samples: The number of samples per epoch; the sum over all plans by default.
        seed: The seed of the order.

    Raises:
        InvalidInputError: The weights are invalid, or the columns of plans differ.
    """
    if not 0 < len(plans) <= 100:
        raise InvalidInputError("a mixture must have 1 to 100 plans", found=len(plans))
    shares = [float(len(plan)) for plan in plans] if weights is None else list(map(float, weights))
    if len(shares) != len(plans) or min(shares) < 0 or not sum(shares) > 0:
        raise InvalidInputError(
            "weights must be non-negative numbers, one per plan", weights=shares
        )
    layouts = [plan.layout for plan in plans]
    for layout in layouts:
        if layout != layouts[0]:
            raise InvalidInputError(
                "plans of a mixture must have the same columns and types",
                found=str(layout),
                expected=str(layouts[0]),
            )
    count = sum(map(len, plans)) if samples is None else samples
    if count < 1:
        raise InvalidInputError("an epoch must have at least one sample", samples=count)
    return Mixture(tuple(plans), np.cumsum(shares), count, seed)
