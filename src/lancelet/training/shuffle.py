"""Orders that are computed, not stored: a function from positions to rows.

A permutation of n rows is a Feistel network over the smallest square of a power of two that holds
n: each round mixes one half of the bits into the other, which can be undone whatever the mixing is,
so the network is a permutation of the square. A result beyond n goes through the network again
until it is below, which leaves a permutation of n.

    n = 5, square 16:    2 -> 11 (beyond) -> 3        3 -> 0        ...

So no order is held in memory, a run resumes anywhere at once, and the order is the same in every
release of NumPy.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.values import dataclass

Places = npt.NDArray[np.int64]
_ROUNDS: Final = 5
_GOLDEN: Final = 0x9E3779B97F4A7C15
_BLOCK: Final = 8192
"""The number of consecutive positions that are permuted at once."""
_U64: Final = (1 << 64) - 1


def mixed(values: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """Return 64 pseudo-random bits for each value and a key (the finalizer of SplitMix64)."""
    found = values + np.uint64((key * _GOLDEN + _GOLDEN) & _U64)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def mixed_key(*parts: int) -> int:
    """Return one key made of several numbers.

    >>> mixed_key(1, 2) == mixed_key(1, 2), mixed_key(1, 2) == mixed_key(2, 1)
    (True, False)
    """
    key = 0
    for part in parts:
        key = int(mixed(np.array([part & _U64], np.uint64), key)[0])
    return key


def fractions(places: Places, key: int) -> npt.NDArray[np.float64]:
    """Return a pseudo-random number in [0, 1) for each position."""
    bits = mixed(places.astype(np.uint64), key) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def permuted(places: Places, count: int, key: int) -> Places:
    """Return positions permuted by the permutation of `count` that a key selects.

    >>> sorted(permuted(np.arange(5), 5, key=3).tolist())
    [0, 1, 2, 3, 4]
    """
    if count < 2:
        return places.copy()
    half = np.uint64(((count - 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << int(half)) - 1)
    found = places.astype(np.uint64)
    beyond = np.arange(len(found))
    while len(beyond):
        left, right = found[beyond] >> half, found[beyond] & mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (mixed(right, key + turn) & mask)
        found[beyond] = (left << half) | right
        beyond = beyond[found[beyond] >= count]
    return found.astype(np.int64)


@lru_cache(maxsize=16)
def _permuted_block(block: int, count: int, key: int) -> Places:
    """Return the permuted positions of a block, which costs little more than a few of them."""
    return permuted(np.arange(block * _BLOCK, min((block + 1) * _BLOCK, count)), count, key)


class Order(Protocol):
    """Maps positions of an epoch to rows."""

    def at(self, places: Places, epoch: int) -> Places:
        """Return the rows at positions."""

    def __len__(self) -> int:
        """Return the number of positions of an epoch."""


@dataclass(frozen=True, slots=True)
class InOrder:
    """Rows in the order of the dataset."""

    count: int

    def at(self, places: Places, epoch: int) -> Places:
        """Return the positions themselves."""
        del epoch
        return places

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count


@dataclass(frozen=True, slots=True)
class ByRows:
    """All rows at random."""

    count: int
    seed: int

    def at(self, places: Places, epoch: int) -> Places:
        """Return the permuted positions."""
        key = mixed_key(self.seed, epoch)
        block = int(places[0]) // _BLOCK if len(places) else 0
        within = places - block * _BLOCK
        if ((within < 0) | (within >= _BLOCK)).any():
            return permuted(places, self.count, key)
        rows: Places = _permuted_block(block, self.count, key)[within]
        return rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count


@dataclass(frozen=True, slots=True, eq=False)
class ByClumps:
    """Runs of consecutive rows in a random order: fewer reads than row by row."""

    starts: Places
    seed: int

    def at(self, places: Places, epoch: int) -> Places:
        """Return the rows of the permuted runs."""
        count = len(self.starts) - 1
        order = permuted(np.arange(count), count, mixed_key(self.seed, epoch))
        ends = np.cumsum(np.diff(self.starts)[order])
        clump = np.searchsorted(ends, places, "right")
        within = places - np.concatenate(([0], ends))[clump]
        rows: Places = self.starts[order[clump]] + within
        return rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.starts[-1])


@dataclass(frozen=True, slots=True)
class WithReplacement:
    """Any row at each position, independently of the others."""

    count: int
    rows: int
    seed: int

    def at(self, places: Places, epoch: int) -> Places:
        """Return a row for each position."""
        drawn = fractions(places, mixed_key(self.seed, epoch)) * self.rows
        return drawn.astype(np.int64)

    def __len__(self) -> int:
        """Return the number of rows that an epoch draws."""
        return self.count


@dataclass(frozen=True, slots=True, eq=False)
class ByWeights:
    """Any row at each position, with a probability by weight."""

    count: int
    ends: npt.NDArray[np.float64]
    seed: int

    def at(self, places: Places, epoch: int) -> Places:
        """Return a row for each position."""
        drawn = fractions(places, mixed_key(self.seed, epoch)) * self.ends[-1]
        rows: Places = np.searchsorted(self.ends, drawn, "right").astype(np.int64)
        return rows

    def __len__(self) -> int:
        """Return the number of rows that an epoch draws."""
        return self.count
