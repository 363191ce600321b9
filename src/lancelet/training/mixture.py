"""Several plans as one: each sample of an epoch comes from one of them, by weights.

    weights {a: 2, b: 1}    a b a a b a ...    the first of a, the first of b, the second of a, ...

A plan that is used up begins its next epoch, at a position that depends on the sample alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.training.loader import Loader
from lancelet.training.plan import Plan
from lancelet.training.shuffle import Places, fractions, mixed_key
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Samples of several plans; `mix` creates it."""

    plans: tuple[Plan, ...]
    ends: npt.NDArray[np.float64]
    samples: int
    seed: int
    _dealt: dict[int, tuple[npt.NDArray[np.int8], Places]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return self.samples

    @property
    def version(self) -> list[int]:
        """The versions that are read."""
        return [plan.version for plan in self.plans]

    @property
    def name(self) -> str:
        """Everything that the order depends on."""
        shares = np.diff(self.ends, prepend=0.0).tolist()
        return repr((self.samples, shares, [(plan.seed, plan.name) for plan in self.plans]))

    def read(self, places: Places, epoch: int) -> pa.Table:
        """Return the samples at positions of an epoch, in order."""
        chosen, numbers = self._deal(epoch)
        chosen, numbers = chosen[places], numbers[places]
        parts, order = [], []
        for index, plan in enumerate(self.plans):
            mine = np.flatnonzero(chosen == index)
            # The count goes on from epoch to epoch of the mixture, so no epoch begins alike.
            epochs, within = np.divmod(numbers[mine], len(plan))
            for each in np.unique(epochs).tolist():
                now = epochs == each
                parts.append(plan.read(within[now], int(each)))
                order.append(mine[now])
        rows = pa.concat_tables(parts)
        return rows.take(pa.array(np.argsort(np.concatenate(order))))

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the mixture for one rank."""
        return Loader(self, batch_size, **options)

    def _deal(self, epoch: int) -> tuple[npt.NDArray[np.int8], Places]:
        """Return the plan of each sample of an epoch, and its number in that plan."""
        if epoch not in self._dealt:
            before = np.zeros(len(self.plans), np.int64)
            for earlier in range(epoch):
                before += np.bincount(self._chosen(earlier), minlength=len(self.plans))
            chosen = self._chosen(epoch)
            numbers = np.empty(self.samples, np.int64)
            for index in range(len(self.plans)):
                mine = chosen == index
                numbers[mine] = before[index] + np.arange(np.count_nonzero(mine))
            self._dealt.clear()
            self._dealt[epoch] = chosen, numbers
        return self._dealt[epoch]

    def _chosen(self, epoch: int) -> npt.NDArray[np.int8]:
        drawn = fractions(np.arange(self.samples), mixed_key(self.seed, epoch)) * self.ends[-1]
        chosen: npt.NDArray[np.int8] = np.searchsorted(self.ends, drawn, "right").astype(np.int8)
        return chosen


def mix(
    plans: Sequence[Plan],
    weights: Sequence[float] | None = None,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> Mixture:
    """Return samples of several plans as one.

    Args:
        plans: The plans; all read the same columns.
        weights: How often samples of each come; by default as they have rows.
        samples: How many samples an epoch has; by default as many as all plans together.
        seed: Another order.

    Raises:
        InvalidInputError: Weights do not fit the plans, or columns differ.
    """
    if not 0 < len(plans) <= 100:
        raise InvalidInputError("a mixture has 1 to 100 plans", found=len(plans))
    shares = [float(len(plan)) for plan in plans] if weights is None else list(map(float, weights))
    if len(shares) != len(plans) or min(shares) < 0 or not sum(shares) > 0:
        raise InvalidInputError("there is one weight from 0 on for each plan", weights=shares)
    if len({tuple(plan.columns) for plan in plans}) > 1:
        raise InvalidInputError("plans of a mixture read the same columns")
    count = sum(map(len, plans)) if samples is None else samples
    if count < 1:
        raise InvalidInputError("an epoch has at least one sample", samples=count)
    return Mixture(tuple(plans), np.cumsum(shares), count, seed)
