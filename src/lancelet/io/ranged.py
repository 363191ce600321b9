"""Reading an object by requests for ranges of it, as every store does that is not a disk.

From the ranges that are wanted to the requests that are sent, and back to slices.

A request to an object store costs as much as reading about a hundred kilobytes, so ranges that
nearly touch are fetched together and what lies between is thrown away. A single connection is
slow, so what is very large is fetched in several requests. Both are decided here, as arithmetic
on columns of numbers; nothing is fetched.

    wanted    [0, 10) [12, 20)            [90, 95)     gap 4, request at most 16
    blocks    [0, 20)                     [90, 95)     ranges that nearly touch
    buffer    0..................19       20....24     the blocks, back to back
    requests  [0, 16) [16, 20)            [90, 95)
    slices    at 0, 12                    at 20

Ranges may come in any order, overlap, and repeat; each byte is fetched once.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Final

import numpy as np

from lancelet.buffers import NO_RANGES, Bytes, Int64s, Ranges, Slices
from lancelet.errors import CorruptDataError
from lancelet.io.pool import run_requests
from lancelet.io.store import ObjectReader, Store, check_path, check_ranges
from lancelet.values import dataclass

GAP_BYTES: Final = 64 << 10
"""What lies between two ranges is fetched and thrown away when it is at most this."""

REQUEST_BYTES: Final = 8 << 20
"""Requests ask for at most this much."""


class RangedReader(ObjectReader):
    """Fetches ranges of an object; holds nothing but its size."""

    def __init__(self, store: Store, path: str, size: int | None) -> None:
        """Read the object at `path`; a `size` that is known saves a request."""
        self._of = store
        self._path = check_path(path)
        self._size = size

    @property
    def path(self) -> str:
        """The path of the object in its store."""
        return self._path

    @property
    def size(self) -> int:
        """How many bytes the object has."""
        if self._size is None:
            self._size = self._of.info(self._path).size
        return self._size

    @abstractmethod
    def get(self, position: int, size: int) -> object:
        """Return a buffer with the bytes of one range, or with fewer where there are no more."""

    def read_ranges(self, ranges: Ranges) -> Slices:
        """Fetch the ranges into one buffer, near ones together, all at once."""
        check_ranges(ranges, path=self._path, size=self.size)
        plan = plan_fetch(ranges)
        columns = (plan.requests.position, plan.requests.size, plan.target)
        requests = list(zip(*(column.tolist() for column in columns), strict=True))
        if len(requests) == 1:
            position, size, _ = requests[0]
            return Slices(self._fetch(position, size), plan.slice_position, ranges.size)
        buffer = np.empty(plan.buffer_bytes, np.uint8)

        def fill(position: int, size: int, target: int) -> None:
            buffer[target : target + size] = self._fetch(position, size)

        run_requests([partial(fill, *request) for request in requests])
        return Slices(buffer, plan.slice_position, ranges.size)

    def read_tail(self, size: int) -> Bytes:
        """Fetch the last bytes."""
        size = min(max(size, 0), self.size)
        return self._fetch(self.size - size, size) if size else np.empty(0, np.uint8)

    def close(self) -> None:
        """Hold on to nothing."""

    def _fetch(self, position: int, size: int) -> Bytes:
        fetched: Bytes = np.frombuffer(self.get(position, size), np.uint8)  # type: ignore[call-overload]  # any buffer
        if fetched.nbytes != size:
            raise CorruptDataError(
                "the object is shorter than it should be; was it cut short by a copy?",
                path=self._path,
                position=position,
                size=size,
                found=fetched.nbytes,
            )
        return fetched


@dataclass(frozen=True, slots=True, eq=False)
class FetchPlan:
    """Requests, where their answers go in one buffer, and where each wanted range is then."""

    requests: Ranges
    target: Int64s
    buffer_bytes: int
    slice_position: Int64s


def plan_fetch(
    wanted: Ranges, *, gap_bytes: int = GAP_BYTES, request_bytes: int = REQUEST_BYTES
) -> FetchPlan:
    """Merge ranges that are at most `gap_bytes` apart and split what exceeds `request_bytes`.

    >>> plan = plan_fetch(Ranges.of((12, 8), (90, 5), (0, 10)), gap_bytes=4, request_bytes=16)
    >>> plan.requests.position.tolist(), plan.requests.size.tolist(), plan.target.tolist()
    ([0, 16, 90], [16, 4, 5], [0, 16, 20])
    >>> plan.slice_position.tolist()
    [12, 20, 0]
    """
    slice_position = np.zeros(len(wanted), np.int64)
    # Empty ranges want nothing, and must not make requests.
    index = np.flatnonzero(wanted.size > 0)
    if not len(index):
        return FetchPlan(NO_RANGES, NO_RANGES.position, 0, slice_position)
    index = index[np.argsort(wanted.position[index], kind="stable")]
    start = wanted.position[index]
    # A range may lie within an earlier, longer one, so the end so far is a running maximum.
    end = np.maximum.accumulate(start + wanted.size[index])
    is_first = np.ones(len(index), np.bool_)
    is_first[1:] = start[1:] - end[:-1] > gap_bytes
    first = np.flatnonzero(is_first)
    block_start = start[first]
    block_size = end[np.append(first[1:], len(index)) - 1] - block_start
    block_target = np.cumsum(block_size) - block_size
    block = np.cumsum(is_first) - 1
    slice_position[index] = block_target[block] + start - block_start[block]
    requests, target = _split(Ranges(block_start, block_size), block_target, request_bytes)
    return FetchPlan(requests, target, int(block_size.sum()), slice_position)


def _split(blocks: Ranges, target: Int64s, request_bytes: int) -> tuple[Ranges, Int64s]:
    """Cut blocks into requests of at most `request_bytes`."""
    pieces = -(-blocks.size // request_bytes)
    if len(pieces) == int(pieces.sum()):
        return blocks, target
    block = np.repeat(np.arange(len(blocks)), pieces)
    # The number of a piece within its block, times the size of a piece.
    skipped = (np.arange(len(block)) - (np.cumsum(pieces) - pieces)[block]) * request_bytes
    size = np.minimum(blocks.size[block] - skipped, request_bytes)
    return Ranges(blocks.position[block] + skipped, size), target[block] + skipped
