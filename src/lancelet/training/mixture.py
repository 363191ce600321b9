"""Mixtures of plans, windows or packed sequences; each sample is drawn from one source by weight.

    weights {a: 2, b: 1}    a b a a b a ...    first of a, first of b, second of a, ...

The samples of a run are divided into blocks with a fixed number of samples per source, in random
order. The sources of a block and the samples before it follow from its number, so a run resumes at
any sample without computing earlier ones. A change of weights starts a new sequence of blocks.

An exhausted plan continues with its next epoch, independent of ranks and batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.training.arguments import ArgumentTypeError, check_integers
from lancelet.training.loader import Loader, Source
from lancelet.training.packing import PackedPlan
from lancelet.training.plan import Plan
from lancelet.training.shuffle import Positions, mixed_key, permuted
from lancelet.training.windows import WindowPlan
from lancelet.values import dataclass

_BLOCK: Final = 1 << 16
"""The number of samples of a block; shares are multiples of its inverse."""


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive samples of a run with the same weights.

    Attributes:
        start: The first sample, counted over all epochs.
        counts: The samples per block of each plan.
        before: The samples of each plan before the phase.
        key: The key of the random order.
    """

    start: int
    counts: tuple[int, ...]
    before: tuple[int, ...]
    key: int

    def assign(self, samples: Positions) -> tuple[npt.NDArray[np.int8], Positions]:
        """Return the plan of each sample, and the number of earlier samples of that plan."""
        blocks: Positions = (samples - self.start) // _BLOCK
        within = samples - self.start - blocks * _BLOCK
        plans, ranks = np.empty(len(samples), np.int8), np.empty(len(samples), np.int64)
        for block in np.unique(blocks).tolist():
            is_block = blocks == block
            plan_of, rank_of = _order_of_block(self.counts, mixed_key(self.key, block))
            plans[is_block], ranks[is_block] = plan_of[within[is_block]], rank_of[within[is_block]]
        per_block, before = np.array(self.counts, np.int64), np.array(self.before, np.int64)
        positions: Positions = before[plans] + blocks * per_block[plans] + ranks
        return plans, positions

    def totals(self, end: int) -> tuple[int, ...]:
        """Return the samples of each plan before a later sample."""
        blocks, within = divmod(end - self.start, _BLOCK)
        plan_of, _ = _order_of_block(self.counts, mixed_key(self.key, blocks))
        partial = np.bincount(plan_of[:within], minlength=len(self.counts)).tolist()
        parts = zip(self.before, self.counts, partial, strict=True)
        return tuple(before + blocks * count + extra for before, count, extra in parts)


@lru_cache(maxsize=8)
def _order_of_block(counts: tuple[int, ...], key: int) -> tuple[npt.NDArray[np.int8], Positions]:
    """Return the plan of each sample of a block, and the earlier samples of the plan in it."""
    slots = permuted(np.arange(_BLOCK), _BLOCK, key)
    ends = np.cumsum(counts)
    plans = np.searchsorted(ends, slots, "right").astype(np.int8)
    by_plan = np.argsort(plans, kind="stable")
    ranks = np.empty(_BLOCK, np.int64)
    ranks[by_plan] = np.arange(_BLOCK) - np.repeat(ends - counts, counts)
    return plans, ranks


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Samples of several sources; created by `mix`."""

    plans: tuple[Source, ...]
    phases: tuple[Phase, ...]
    samples: int
    seed: int

    def __len__(self) -> int:
        """Return the number of samples per epoch."""
        return self.samples

    @property
    def version(self) -> list[int]:
        """The versions of the datasets."""
        return [plan.version for plan in self.plans]

    @property
    def table(self) -> str:
        """A digest of the identifiers of the versions."""
        identifiers = json.dumps([plan.table for plan in self.plans])
        return hashlib.blake2b(identifiers.encode(), digest_size=16).hexdigest()

    @property
    def name(self) -> str:
        """A description of the parameters of the order."""
        shares = [(phase.start, phase.counts) for phase in self.phases]
        return repr(("mix", self.samples, shares, [(plan.seed, plan.name) for plan in self.plans]))

    @property
    def layout(self) -> Any:
        """The structure of samples; equal for all sources."""
        return self.plans[0].layout

    def read(self, positions: Positions, epoch: int) -> Any:
        """Return the samples at positions of an epoch, in order."""
        plan_indices, positions_in_plans = self._assign(positions, epoch)
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

    def locate(self, position: int, epoch: int) -> dict[str, Any]:
        """Return the plan and the row of a sample, for error messages."""
        plans, positions = self._assign(np.array([position]), epoch)
        plan = self.plans[plans[0]]
        epoch_of_plan, position_in_plan = divmod(int(positions[0]), len(plan))
        return {"plan": int(plans[0]), **plan.locate(position_in_plan, epoch_of_plan)}

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the mixture for one rank."""
        return Loader(self, batch_size, **options)

    def _assign(self, positions: Positions, epoch: int) -> tuple[npt.NDArray[np.int8], Positions]:
        """Return the plan of each sample, and its position in all epochs of that plan."""
        samples = positions + epoch * self.samples
        starts = [phase.start for phase in self.phases]
        phase_of = np.searchsorted(starts, samples, "right") - 1
        plans, ranks = np.empty(len(samples), np.int8), np.empty(len(samples), np.int64)
        for index in np.unique(phase_of).tolist():
            is_phase = phase_of == index
            plans[is_phase], ranks[is_phase] = self.phases[index].assign(samples[is_phase])
        return plans, ranks


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
    weights: Sequence[float] | Mapping[int, Sequence[float]] | None = None,
    *,
    samples: int | None = None,
    seed: int = 0,
) -> Mixture:
    """Combine the samples of several plans.

    Args:
        plans: Plans, or results of `pack` or `windows`, with the same columns.
        weights: The relative frequency of each plan; its number of samples by default. A mapping
            gives the weights from a sample of the run on, counted over all epochs, such as
            `{0: [3, 1], 100_000: [1, 1]}`.
        samples: The number of samples per epoch; the sum over all plans by default.
        seed: The seed of the order.

    Raises:
        InvalidInputError: The weights are invalid, or the columns of plans differ.
    """
    if not 0 < len(plans) <= 100:
        raise InvalidInputError("a mixture must have 1 to 100 plans", found=len(plans))
    for each in plans:
        if not isinstance(each, Plan | PackedPlan | WindowPlan | Mixture):
            raise ArgumentTypeError(
                "a mixture consists of results of `plan`, `pack`, `windows` or `mix`",
                found=type(each).__name__,
            )
    if weights is None:
        weights = [float(len(plan)) for plan in plans]
    schedule = dict(weights) if isinstance(weights, Mapping) else {0: weights}
    check_integers(seed=seed)
    check_integers(allow_none=True, samples=samples)
    for start in schedule:
        check_integers(start=start)
    if not schedule or min(schedule) != 0:
        raise InvalidInputError(
            "a schedule of weights must start at sample 0", starts=list(schedule)
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
    phases: list[Phase] = []
    for number, start in enumerate(sorted(schedule)):
        before = phases[-1].totals(start) if phases else (0,) * len(plans)
        counts = _counts(schedule[start], len(plans))
        phases.append(Phase(start, counts, before, mixed_key(seed, number)))
    return Mixture(tuple(plans), tuple(phases), count, seed)


def _counts(weights: Sequence[float], plans: int) -> tuple[int, ...]:
    """Return the samples of each plan in a block; at least one for positive weights."""
    shares = np.asarray(weights)
    if shares.ndim != 1 or shares.dtype.kind not in "iuf":
        raise ArgumentTypeError("weights must be numbers, one per plan", weights=weights)
    shares = shares.astype(np.float64)
    if len(shares) != plans or not (np.isfinite(shares).all() and shares.min() >= 0 < shares.sum()):
        raise InvalidInputError(
            "weights must be non-negative numbers, one per plan", weights=shares.tolist()
        )
    ends = np.round(np.cumsum(shares) / shares.sum() * _BLOCK).astype(np.int64)
    counts = np.maximum(np.diff(ends, prepend=0), shares > 0)
    counts[np.argmax(counts)] -= counts.sum() - _BLOCK
    return tuple(counts.tolist())
