"""Orders of rows, computed as functions from positions to rows.

A permutation of n rows is computed by a Feistel network over the smallest power of four that is at
least n. Each round XORs half of the bits with a hash of the rest. Rounds are invertible, so the
network is a permutation. Results of n or more are mapped again until they are less than n (cycle
walking), which yields a permutation of n.

    n = 5, domain 16:    2 -> 11 (too large) -> 3        3 -> 0        ...

Orders occupy no memory, a run can resume at any position, and orders do not depend on the NumPy
version.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.values import dataclass

Positions = npt.NDArray[np.int64]
_FEISTEL_ROUNDS: Final = 5
_GOLDEN: Final = 0x9E3779B97F4A7C15
_BLOCK: Final = 8192
"""The number of consecutive positions that are permuted and cached together."""
_U64: Final = (1 << 64) - 1


def mixed(values: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each value and a key (the finalizer of SplitMix64)."""
    bits = values + np.uint64((key * _GOLDEN + _GOLDEN) & _U64)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def mixed_key(*parts: int) -> int:
    """Combine several numbers to a key.

    >>> mixed_key(1, 2) == mixed_key(1, 2), mixed_key(1, 2) == mixed_key(2, 1)
    (True, False)
    """
    key = 0
    for part in parts:
        key = int(mixed(np.array([part & _U64], np.uint64), key)[0])
    return key


def fractions(positions: Positions, key: int) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each position."""
    bits = mixed(positions.astype(np.uint64), key) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def permuted(positions: Positions, count: int, key: int) -> Positions:
    """Permute positions below `count` by the permutation of a key.

    >>> sorted(permuted(np.arange(5), 5, key=3).tolist())
    [0, 1, 2, 3, 4]
    """
    if count < 2:
        return positions.copy()
    half = np.uint64(((count - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    mapped = positions.astype(np.uint64)
    beyond = np.arange(len(mapped))
    while len(beyond):
        left, right = mapped[beyond] >> half, mapped[beyond] & mask
        for round_index in range(_FEISTEL_ROUNDS):
            left, right = right, left ^ (mixed(right, key + round_index) & mask)
        mapped[beyond] = (left << half) | right
        beyond = beyond[mapped[beyond] >= count]
    return mapped.astype(np.int64)


@lru_cache(maxsize=16)
def _permuted_block(block: int, count: int, key: int) -> Positions:
    """Return the permuted positions of a block; cached, as batches are smaller than blocks."""
    return permuted(np.arange(block * _BLOCK, min((block + 1) * _BLOCK, count)), count, key)


class Order(Protocol):
    """Maps positions of an epoch to rows."""

    def at(self, positions: Positions, epoch: int) -> Positions:
        """Return the rows at positions."""

    def __len__(self) -> int:
        """Return the number of positions per epoch."""


@dataclass(frozen=True, slots=True)
class InOrder:
    """Rows in the order of the dataset."""

    count: int

    def at(self, positions: Positions, epoch: int) -> Positions:
        """Return the positions unchanged."""
        del epoch
        return positions

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count


@dataclass(frozen=True, slots=True)
class ByRows:
    """All rows in random order."""

    count: int
    seed: int

    def at(self, positions: Positions, epoch: int) -> Positions:
        """Return the permuted positions."""
        key = mixed_key(self.seed, epoch)
        block = int(positions[0]) // _BLOCK if len(positions) else 0
        within = positions - block * _BLOCK
        if ((within < 0) | (within >= _BLOCK)).any():
            return permuted(positions, self.count, key)
        rows: Positions = _permuted_block(block, self.count, key)[within]
        return rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count


@dataclass(frozen=True, slots=True, eq=False)
class ByClumps:
    """Runs of consecutive rows in random order; needs fewer reads than shuffled rows."""

    starts: Positions
    seed: int

    def at(self, positions: Positions, epoch: int) -> Positions:
        """Return the rows of the permuted runs."""
        count = len(self.starts) - 1
        order = permuted(np.arange(count), count, mixed_key(self.seed, epoch))
        ends = np.cumsum(np.diff(self.starts)[order])
        clump = np.searchsorted(ends, positions, "right")
        within = positions - np.concatenate(([0], ends))[clump]
        rows: Positions = self.starts[order[clump]] + within
        return rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.starts[-1])


@dataclass(frozen=True, slots=True)
class WithReplacement:
    """Independent uniform draws with replacement."""

    count: int
    rows: int
    seed: int

    def at(self, positions: Positions, epoch: int) -> Positions:
        """Return the drawn rows."""
        drawn = fractions(positions, mixed_key(self.seed, epoch)) * self.rows
        return drawn.astype(np.int64)

    def __len__(self) -> int:
        """Return the number of draws per epoch."""
        return self.count


@dataclass(frozen=True, slots=True, eq=False)
class ByWeights:
    """Independent weighted draws with replacement."""

    count: int
    ends: npt.NDArray[np.float64]
    seed: int

    def at(self, positions: Positions, epoch: int) -> Positions:
        """Return the drawn rows."""
        drawn = fractions(positions, mixed_key(self.seed, epoch)) * self.ends[-1]
        rows: Positions = np.searchsorted(self.ends, drawn, "right").astype(np.int64)
        return rows

    def __len__(self) -> int:
        """Return the number of draws per epoch."""
        return self.count
