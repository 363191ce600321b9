"""Reading an object by requests for ranges of it, as every store does that is not a disk."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

import numpy as np

from lancelet.buffers import Bytes, Ranges, Slices
from lancelet.errors import CorruptDataError
from lancelet.io.coalesce import plan_fetch
from lancelet.io.pool import run_requests
from lancelet.io.store import ObjectReader, Store, check_path, check_ranges


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
