"""Packing of token sequences to samples of equal length without padding.

The sequences of an epoch are concatenated in the order of the plan and split every `length` tokens.

    length 4    [1 2 3] [4 5] [6 7 8 9]    ->    1 2 3 4 | 5 6 7 8 | (9)
    segments                                     0 0 0 1 | 0 1 1 1

The position of samples depends only on the lengths of sequences, which are read once: from a column
of lengths, or by a scan of the sequences.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.take import is_list_of_numbers
from lancelet.errors import InvalidInputError
from lancelet.training.arguments import check_integers
from lancelet.training.loader import Loader
from lancelet.training.plan import Plan
from lancelet.training.shuffle import Positions
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PackedPlan:
    """Samples of `length` tokens each; created by `pack`."""

    plan: Plan
    column: str
    length: int
    lengths: Positions
    _ends: dict[int, Positions] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """Return the number of samples per epoch."""
        return int(self.lengths.sum()) // self.length

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
        return repr(("packed", self.column, self.length, self.plan.name))

    @property
    def layout(self) -> Any:
        """The column and the length of samples."""
        return [self.column, self.length]

    def read(self, positions: Positions, epoch: int) -> dict[str, npt.NDArray[Any]]:
        """Return the tokens of samples, and the index of the sequence of each token."""
        ends = self._ends_of(epoch)
        begin = positions * self.length
        first = np.searchsorted(ends, begin, "right")
        last = np.searchsorted(ends, begin + self.length, "left")
        counts = last - first + 1
        sequences = _ranges(first, counts)
        needed, inverse = np.unique(sequences, return_inverse=True)
        rows = self.plan.read(needed, epoch)[self.column].combine_chunks()
        offsets = np.asarray(rows.offsets).astype(np.int64)
        self._check_lengths(needed, np.diff(offsets), epoch)
        if rows.flatten().null_count:
            raise InvalidInputError("a sequence contains null", column=self.column)
        tokens = rows.values.to_numpy(zero_copy_only=False)
        starts = ends[sequences] - self.lengths_at(sequences, epoch)
        sample = np.repeat(np.arange(len(positions)), counts)
        low = np.maximum(starts, begin[sample])
        high = np.minimum(ends[sequences], begin[sample] + self.length)
        taken = high - low
        source = _ranges(offsets[:-1][inverse] + (low - starts), taken)
        segment = np.repeat(sequences - first[sample], taken)
        shape = (len(positions), self.length)
        return {
            self.column: tokens[source].reshape(shape),
            "segment": segment.astype(np.int32).reshape(shape),
        }

    def locate(self, position: int, epoch: int) -> dict[str, Any]:
        """Return the position of a sample, for error messages."""
        return {"position": position, "epoch": epoch}

    def lengths_at(self, positions: Positions, epoch: int) -> Positions:
        """Return the lengths of the sequences at positions of the plan."""
        result: Positions = self.lengths[self.plan.order.at(positions, epoch)]
        return result

    def _check_lengths(self, positions: Positions, found: Positions, epoch: int) -> None:
        """Raise if sequences do not have the length that a column gives."""
        expected = self.lengths_at(positions, epoch)
        if (found != expected).any():
            at = int(np.flatnonzero(found != expected)[0])
            raise InvalidInputError(
                "a sequence does not have the length in the column of lengths",
                column=self.column,
                **self.plan.locate(int(positions[at]), epoch),
                found=int(found[at]),
                expected=int(expected[at]),
            )

    def loader(self, batch_size: int, **options: Any) -> Loader:
        """Return a loader of the samples for one rank."""
        return Loader(self, batch_size, **options)

    def _ends_of(self, epoch: int) -> Positions:
        result = self._ends.get(epoch)
        if result is None:
            result = np.cumsum(self.lengths_at(np.arange(len(self.plan)), epoch))
            self._ends.clear()
            self._ends[epoch] = result
        return result


def pack(plan: Plan, column: str, length: int, *, lengths: str | None = None) -> PackedPlan:
    """Pack the sequences of a column to samples of `length` tokens.

    Args:
        plan: The plan of the sequences; each is used once per epoch.
        column: A column of lists of numbers.
        length: The number of tokens per sample. Remaining tokens of an epoch are dropped.
        lengths: An integer column with the number of tokens of each sequence. Without it, the
            column of sequences is scanned once.

    Raises:
        InvalidInputError: The column does not contain lists of numbers or is not read by the plan,
            or has too few tokens for a sample.
    """
    check_integers(length=length)
    schema = plan.dataset.schema
    if column not in schema.names or not is_list_of_numbers(schema.field(column).type):
        raise InvalidInputError("the column must contain lists of numbers", column=column)
    if column not in plan.columns:
        raise InvalidInputError(
            "the plan does not read the column; add it to the columns of the plan",
            column=column,
            columns=list(plan.columns),
        )
    if length < 1:
        raise InvalidInputError("a sample must have at least one token", length=length)
    if lengths is not None and not (
        lengths in schema.names and pa.types.is_integer(schema.field(lengths).type)
    ):
        raise InvalidInputError("lengths must name a column of integers", lengths=lengths)
    counts = _lengths(plan, column, lengths)
    if counts.sum() < length:
        raise InvalidInputError(
            "too few tokens for a sample", tokens=int(counts.sum()), length=length
        )
    return PackedPlan(plan, column, length, counts)


def _lengths(plan: Plan, column: str, lengths: str | None) -> Positions:
    """Return the number of tokens of each sequence of a plan."""
    parts = []
    for batch in plan.dataset.to_batches(columns=[lengths or column]):
        values = batch.column(0)
        counted = pc.fill_null(values if lengths else pc.list_value_length(values), 0)
        parts.append(counted.to_numpy(zero_copy_only=False).astype(np.int64))
    counts: Positions = np.concatenate(parts)
    if counts.min() < 0:
        raise InvalidInputError(
            "lengths of sequences must be at least 0", column=lengths, found=int(counts.min())
        )
    return counts if plan.rows is None else counts[plan.rows]


def _ranges(starts: Positions, counts: Positions) -> Positions:
    """Return the concatenated ranges `start .. start + count`."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    result: Positions = (
        np.arange(total) - np.repeat(ends - counts, counts) + np.repeat(starts, counts)
    )
    return result
