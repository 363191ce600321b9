"""Byte ranges and byte slices: the currency between storage, kernels and encodings.

A reader first says which bytes it wants (`Ranges`: positions and sizes in a file), storage
answers with where they are now (`Slices`: positions and sizes in one buffer in memory), and a
kernel walks the slices in one call. Both are columns of numbers, not lists of objects, so that
ten thousand rows cost one call and not ten thousand.

    file      ....AAAA......BB....
    Ranges    position [4, 14]  size [4, 2]
    Slices    source "AAAABB"   position [0, 4]  size [4, 2]      (fetched)
    Slices    source = the whole map of the file, position [4, 14]  (mapped: nothing was copied)

A decoder never does I/O. It is a generator that yields the `Ranges` it needs, is sent the
`Slices`, and returns its result; whoever drives it may merge the requests of many decoders into
one round (`run_together`), so the number of rounds is the depth of the longest chain of
dependent reads, whatever the number of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lancelet.values import dataclass

Bytes: TypeAlias = npt.NDArray[np.uint8]
Int64s: TypeAlias = npt.NDArray[np.int64]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Byte ranges of one file, in any order; they may touch or overlap."""

    position: Int64s
    size: Int64s

    def __len__(self) -> int:
        """Return how many ranges there are."""
        return len(self.position)

    @staticmethod
    def of(*ranges: tuple[int, int]) -> Ranges:
        """Make ranges from `(position, size)` pairs.

        >>> len(Ranges.of((0, 4), (14, 2)))
        2
        """
        pairs = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return Ranges(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))

    @staticmethod
    def concat(parts: Sequence[Ranges]) -> Ranges:
        """Join ranges end to end.

        >>> Ranges.concat([Ranges.of((0, 4)), Ranges.of((9, 1))]).position.tolist()
        [0, 9]
        """
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return NO_RANGES
        return Ranges(
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.size for part in parts]),
        )


NO_RANGES = Ranges(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """Byte slices of one buffer in memory: the answer to `Ranges`, in the same order.

    Whoever makes a `Slices` guarantees that every slice lies within `source`.
    """

    source: Bytes
    position: Int64s
    size: Int64s

    def __len__(self) -> int:
        """Return how many slices there are."""
        return len(self.position)

    def __getitem__(self, which: slice) -> Slices:
        """Return some of the slices, over the same source."""
        return Slices(self.source, self.position[which], self.size[which])

    def slice_bytes(self, index: int) -> Bytes:
        """Return one slice as a view of the source.

        >>> Slices.whole(np.frombuffer(b"abc", np.uint8)).slice_bytes(0).tobytes()
        b'abc'
        """
        start = int(self.position[index])
        return self.source[start : start + int(self.size[index])]

    @staticmethod
    def whole(source: Bytes) -> Slices:
        """Return one slice that is all of `source`."""
        return Slices(source, np.zeros(1, np.int64), np.array([source.nbytes], np.int64))

    @staticmethod
    def repeated(source: Bytes, count: int) -> Slices:
        """Return slices each of which is all of `source`."""
        return Slices(source, np.zeros(count, np.int64), np.full(count, source.nbytes))


Reading: TypeAlias = Generator[Ranges, Slices, T]
"""A decoder in progress: yields what it must read, is sent what was read, returns `T`."""

Fetch: TypeAlias = Callable[[Ranges], Slices]
"""Reads ranges of one file."""


def run(reading: Reading[T], fetch: Fetch) -> T:
    """Drive one decoder to its result."""
    try:
        wanted = next(reading)
        while True:
            wanted = reading.send(fetch(wanted))
    except StopIteration as stop:
        result: T = stop.value
        return result


def run_together(readings: Sequence[Reading[T]], fetch: Fetch) -> list[T]:
    """Drive decoders of one file side by side, one merged request a round.

    >>> def read(position):
    ...     slices = yield Ranges.of((position, 1))
    ...     return slices.slice_bytes(0).tobytes()
    >>> data = np.frombuffer(b"abc", np.uint8)
    >>> run_together([read(0), read(2)], lambda r: Slices(data, r.position, r.size))
    [b'a', b'c']
    """
    return run(read_together(readings), fetch) if len(readings) != 1 else [run(readings[0], fetch)]


def read_together(readings: Sequence[Reading[T]]) -> Reading[list[T]]:
    """Make one decoder of several: it asks for what they all want, round by round."""
    if len(readings) == 1:
        return [(yield from readings[0])]
    results: dict[int, T] = {}
    waiting: list[tuple[int, Reading[T], Ranges]] = []
    for index, reading in enumerate(readings):
        try:
            waiting.append((index, reading, next(reading)))
        except StopIteration as stop:
            results[index] = stop.value
    while waiting:
        slices = yield Ranges.concat([ranges for _, _, ranges in waiting])
        still_waiting: list[tuple[int, Reading[T], Ranges]] = []
        start = 0
        for index, reading, ranges in waiting:
            stop_at = start + len(ranges)
            try:
                wanted = reading.send(slices[start:stop_at])
                still_waiting.append((index, reading, wanted))
            except StopIteration as stop:
                results[index] = stop.value
            start = stop_at
        waiting = still_waiting
    return [results[index] for index in range(len(readings))]
