"""Reading byte ranges of an object by requests, with coalescing of adjacent ranges.

A request to an object store takes as long as reading about 100 kB, so ranges with small gaps are
fetched together and the gaps discarded. A single connection is slow, so large ranges are split into
several requests. Both are computed here on columns of numbers, without I/O.

    ranges    [0, 10) [12, 20)            [90, 95)     gap 4, request at most 16
    blocks    [0, 20)                     [90, 95)     coalesced ranges
    buffer    0..................19       20....24     the concatenated blocks
    requests  [0, 16) [16, 20)            [90, 95)
    slices    at 0, 12                    at 20

Ranges may be unordered, overlap and repeat; each byte is fetched once.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Final

import numpy as np

from lancelet.buffers import NO_RANGES, ByteRanges, Bytes, ByteSlices, Int64s
from lancelet.errors import CorruptDataError
from lancelet.io.pool import run_requests
from lancelet.io.store import ObjectReader, Store, check_path, check_ranges
from lancelet.values import dataclass

GAP_BYTES: Final = 64 << 10
"""Maximum gap in bytes between two ranges that are fetched together."""

REQUEST_BYTES: Final = 8 << 20
"""Maximum size of a request in bytes."""


class RangedReader(ObjectReader):
    """Fetches ranges of an object; holds no resources."""

    def __init__(self, store: Store, path: str, size: int | None) -> None:
        """Create a reader of the object at `path`; passing its `size` saves a request."""
        self._object_store = store
        self._path = check_path(path)
        self._size = size

    @property
    def path(self) -> str:
        """The path of the object in the store."""
        return self._path

    @property
    def size(self) -> int:
        """The size of the object in bytes."""
        if self._size is None:
            self._size = self._object_store.info(self._path).size
        return self._size

    @abstractmethod
    def get(self, position: int, size: int) -> object:
        """Return a buffer with the bytes of a range, shorter if the object ends within it."""

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        """Fetch ranges into one buffer, concurrently and with coalesced requests."""
        check_ranges(ranges, path=self._path, size=self.size)
        plan = plan_fetch(ranges)
        columns = (plan.requests.position, plan.requests.size, plan.target)
        requests = list(zip(*(column.tolist() for column in columns), strict=True))
        if len(requests) == 1:
            position, size, _ = requests[0]
            return ByteSlices(self._fetch(position, size), plan.slice_position, ranges.size)
        buffer = np.empty(plan.buffer_bytes, np.uint8)

        def fill(position: int, size: int, target: int) -> None:
            buffer[target : target + size] = self._fetch(position, size)

        run_requests([partial(fill, *request) for request in requests])
        return ByteSlices(buffer, plan.slice_position, ranges.size)

    def read_tail(self, size: int) -> Bytes:
        """Fetch the last `size` bytes."""
        size = min(max(size, 0), self.size)
        return self._fetch(self.size - size, size) if size else np.empty(0, np.uint8)

    def close(self) -> None:
        """Do nothing; the reader holds no resources."""

    def _fetch(self, position: int, size: int) -> Bytes:
        fetched: Bytes = np.frombuffer(self.get(position, size), np.uint8)  # type: ignore[call-overload]  # any buffer
        if fetched.nbytes != size:
            raise CorruptDataError(
                "the object is shorter than expected; was it truncated by a copy?",
                path=self._path,
                position=position,
                size=size,
                found=fetched.nbytes,
            )
        return fetched


@dataclass(frozen=True, slots=True, eq=False)
class FetchPlan:
    """Requests, their offsets in one buffer, and the offset of each range in the buffer."""

    requests: ByteRanges
    target: Int64s
    buffer_bytes: int
    slice_position: Int64s


def plan_fetch(
    ranges: ByteRanges, *, gap_bytes: int = GAP_BYTES, request_bytes: int = REQUEST_BYTES
) -> FetchPlan:
    """Merge ranges with gaps of at most `gap_bytes`, and split those over `request_bytes`.

    >>> plan = plan_fetch(ByteRanges.of((12, 8), (90, 5), (0, 10)), gap_bytes=4, request_bytes=16)
    >>> plan.requests.position.tolist(), plan.requests.size.tolist(), plan.target.tolist()
    ([0, 16, 90], [16, 4, 5], [0, 16, 20])
    >>> plan.slice_position.tolist()
    [12, 20, 0]
    """
    slice_position = np.zeros(len(ranges), np.int64)
    # Empty ranges must not cause requests.
    index = np.flatnonzero(ranges.size > 0)
    if not len(index):
        return FetchPlan(NO_RANGES, NO_RANGES.position, 0, slice_position)
    index = index[np.argsort(ranges.position[index], kind="stable")]
    start = ranges.position[index]
    # A range may lie within an earlier, longer one, so the block end is a running maximum.
    end = np.maximum.accumulate(start + ranges.size[index])
    is_first = np.ones(len(index), np.bool_)
    is_first[1:] = start[1:] - end[:-1] > gap_bytes
    first = np.flatnonzero(is_first)
    block_start = start[first]
    block_size = end[np.append(first[1:], len(index)) - 1] - block_start
    block_target = np.cumsum(block_size) - block_size
    block = np.cumsum(is_first) - 1
    slice_position[index] = block_target[block] + start - block_start[block]
    requests, target = _split(ByteRanges(block_start, block_size), block_target, request_bytes)
    return FetchPlan(requests, target, int(block_size.sum()), slice_position)


def _split(blocks: ByteRanges, target: Int64s, request_bytes: int) -> tuple[ByteRanges, Int64s]:
    """Split blocks into requests of at most `request_bytes`."""
    num_requests = -(-blocks.size // request_bytes)
    if len(num_requests) == int(num_requests.sum()):
        return blocks, target
    block = np.repeat(np.arange(len(blocks)), num_requests)
    # The index of a request within its block, times the request size.
    skipped = (
        np.arange(len(block)) - (np.cumsum(num_requests) - num_requests)[block]
    ) * request_bytes
    size = np.minimum(blocks.size[block] - skipped, request_bytes)
    return ByteRanges(blocks.position[block] + skipped, size), target[block] + skipped
