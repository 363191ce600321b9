"""Several plans, windows or packed sequences as one, each sample from one of them, by weights.

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
from lancelet.training.loader import Loader, Source
from lancelet.training.shuffle import Places, fractions, mixed_key
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Samples of several sources; `mix` creates it."""

    plans: tuple[Source, ...]
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
    def table(self) -> list[Any]:
        """The identities of the versions."""
        return [plan.table for plan in self.plans]

    @property
    def name(self) -> str:
        """Everything that the order depends on."""
        shares = np.diff(self.ends, prepend=0.0).tolist()
        return repr((self.samples, shares, [(plan.seed, plan.name) for plan in self.plans]))

    @property
    def layout(self) -> Any:
        """What the samples of each source have."""
        return self.plans[0].layout

    def read(self, places: Places, epoch: int) -> Any:
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
        return _joined(parts, np.argsort(np.concatenate(order)))

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the mixture for one rank."""
        return Loader(self, batch_size, **options)

    def _deal(self, epoch: int) -> tuple[npt.NDArray[np.int8], Places]:
        """Return the plan of each sample of an epoch, and its number in that plan."""
        found = self._dealt.get(epoch)
        if found is None:
            before = np.zeros(len(self.plans), np.int64)
            for earlier in range(epoch):
                before += np.bincount(self._chosen(earlier), minlength=len(self.plans))
            chosen = self._chosen(epoch)
            numbers = np.empty(self.samples, np.int64)
            for index in range(len(self.plans)):
                mine = chosen == index
                numbers[mine] = before[index] + np.arange(np.count_nonzero(mine))
            found = chosen, numbers
            self._dealt.clear()
            self._dealt[epoch] = found
        return found

    def _chosen(self, epoch: int) -> npt.NDArray[np.int8]:
        drawn = fractions(np.arange(self.samples), mixed_key(self.seed, epoch)) * self.ends[-1]
        chosen: npt.NDArray[np.int8] = np.searchsorted(self.ends, drawn, "right").astype(np.int8)
        return chosen


def _joined(parts: Sequence[Any], order: Places) -> Any:
    """Return the samples of all parts, in an order of them."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts).take(pa.array(order))
    found: dict[str, Any] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if all(isinstance(each, np.ndarray) for each in values):
            found[name] = np.concatenate(values)[order]
        else:
            # A column with nulls, or of other values than numbers, has lists.
            samples = [sample for each in values for sample in each]
            found[name] = [samples[at] for at in order.tolist()]
    return found


def mix(
    plans: Sequence[Source],
    weights: Sequence[float] | None = None,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> Mixture:
    """Return samples of several plans as one.

    Args:
        plans: The plans, or what `pack` or `windows` makes of them; all have the same columns.
        weights: How often samples of each come; by default as they have samples.
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
    layouts = [plan.layout for plan in plans]
    for layout in layouts:
        if layout != layouts[0]:
            raise InvalidInputError(
                "plans of a mixture read the same columns of the same types",
                found=str(layout),
                expected=str(layouts[0]),
            )
    count = sum(map(len, plans)) if samples is None else samples
    if count < 1:
        raise InvalidInputError("an epoch has at least one sample", samples=count)
    return Mixture(tuple(plans), np.cumsum(shares), count, seed)
