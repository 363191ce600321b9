"""Byte ranges and byte slices: the interface between storage, kernels and encodings.

A reader requests byte ranges (`ByteRanges`: positions and sizes in a file). Storage returns their
locations in memory (`ByteSlices`: positions and sizes in one buffer), and a kernel processes all
slices in one call. Both types are columns of numbers instead of lists of objects, so ten thousand
rows take one call instead of ten thousand.

    file          ....AAAA......BB....
    ByteRanges    position [4, 14]  size [4, 2]
    ByteSlices    source "AAAABB"   position [0, 4]  size [4, 2]      (fetched)
    ByteSlices    source = the whole map of the file, position [4, 14]  (mapped: nothing was copied)

A decoder never does I/O. It is a generator that yields the `ByteRanges` it needs, receives the
`ByteSlices`, and returns its result. The caller merges the requests of many decoders into one batch
(`run_together`), so the number of batches is the length of the longest chain of dependent reads,
independent of the number of columns.
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
class ByteRanges:
    """Byte ranges of one file, in any order; they may touch or overlap."""

    position: Int64s
    size: Int64s

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.position)

    @staticmethod
    def of(*ranges: tuple[int, int]) -> ByteRanges:
        """Make ranges from `(position, size)` pairs.

        >>> len(ByteRanges.of((0, 4), (14, 2)))
        2
        """
        pairs = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        return ByteRanges(np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))

    @staticmethod
    def concat(parts: Sequence[ByteRanges]) -> ByteRanges:
        """Join ranges end to end.

        >>> ByteRanges.concat([ByteRanges.of((0, 4)), ByteRanges.of((9, 1))]).position.tolist()
        [0, 9]
        """
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return NO_RANGES
        return ByteRanges(
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.size for part in parts]),
        )


NO_RANGES = ByteRanges(np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class ByteSlices:
    """Byte slices of one buffer in memory: the result of reading `ByteRanges`, in the same order.

    The creator of a `ByteSlices` guarantees that every slice lies within `source`.
    """

    source: Bytes
    position: Int64s
    size: Int64s

    def __len__(self) -> int:
        """Return the number of slices."""
        return len(self.position)

    def __getitem__(self, selection: slice) -> ByteSlices:
        """Return a selection of the slices, over the same source."""
        return ByteSlices(self.source, self.position[selection], self.size[selection])

    def slice_bytes(self, index: int) -> Bytes:
        """Return one slice as a view of the source.

        >>> ByteSlices.whole(np.frombuffer(b"abc", np.uint8)).slice_bytes(0).tobytes()
        b'abc'
        """
        start = int(self.position[index])
        return self.source[start : start + int(self.size[index])]

    @staticmethod
    def whole(source: Bytes) -> ByteSlices:
        """Return one slice that covers all of `source`."""
        return ByteSlices(source, np.zeros(1, np.int64), np.array([source.nbytes], np.int64))

    @staticmethod
    def repeated(source: Bytes, count: int) -> ByteSlices:
        """Return slices that each cover all of `source`."""
        return ByteSlices(source, np.zeros(count, np.int64), np.full(count, source.nbytes))


ReadCoroutine: TypeAlias = Generator[ByteRanges, ByteSlices, T]
"""A suspended decoder: yields ranges to read, receives their slices, returns `T`."""

Fetch: TypeAlias = Callable[[ByteRanges], ByteSlices]
"""Reads ranges of one file."""


def run(coroutine: ReadCoroutine[T], fetch: Fetch) -> T:
    """Run one decoder to completion."""
    try:
        ranges = next(coroutine)
        while True:
            ranges = coroutine.send(fetch(ranges))
    except StopIteration as stop:
        result: T = stop.value
        return result


def run_together(coroutines: Sequence[ReadCoroutine[T]], fetch: Fetch) -> list[T]:
    """Run decoders of one file concurrently, with one merged request per step.

    >>> def read(position):
    ...     slices = yield ByteRanges.of((position, 1))
    ...     return slices.slice_bytes(0).tobytes()
    >>> data = np.frombuffer(b"abc", np.uint8)
    >>> run_together([read(0), read(2)], lambda r: ByteSlices(data, r.position, r.size))
    [b'a', b'c']
    """
    return (
        run(read_together(coroutines), fetch)
        if len(coroutines) != 1
        else [run(coroutines[0], fetch)]
    )


def read_together(coroutines: Sequence[ReadCoroutine[T]]) -> ReadCoroutine[list[T]]:
    """Combine decoders into one, which merges their requests in every step."""
    if len(coroutines) == 1:
        return [(yield from coroutines[0])]
    results: dict[int, T] = {}
    pending: list[tuple[int, ReadCoroutine[T], ByteRanges]] = []
    for index, coroutine in enumerate(coroutines):
        try:
            pending.append((index, coroutine, next(coroutine)))
        except StopIteration as stop:
            results[index] = stop.value
    while pending:
        slices = yield ByteRanges.concat([ranges for _, _, ranges in pending])
        still_pending: list[tuple[int, ReadCoroutine[T], ByteRanges]] = []
        start = 0
        for index, coroutine, ranges in pending:
            stop_at = start + len(ranges)
            try:
                requested = coroutine.send(slices[start:stop_at])
                still_pending.append((index, coroutine, requested))
            except StopIteration as stop:
                results[index] = stop.value
            start = stop_at
        pending = still_pending
    return [results[index] for index in range(len(coroutines))]
