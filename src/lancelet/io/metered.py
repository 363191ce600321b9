"""Metering of requests and bytes for scans, dataset handles and the process.

    process         read_iops 12   read_bytes 9000
      handle        read_iops  7   read_bytes 5000
        scan        read_iops  3   read_bytes 1200

A scope also counts in its parents, so the counts of a handle are the sum over its scans and its own
reads. Counts do not depend on the machine, so tests can assert them. A read of several ranges
counts once per range; a store may merge adjacent ranges.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from lancelet.io.fork import reset_after_fork
from lancelet.io.store import Store
from lancelet.io.wrapped import CHANGES, Request, WrappedStore, result_bytes
from lancelet.values import dataclass

T = TypeVar("T")

_UNCOUNTED: Final = frozenset({"open_reader", "open_writer", "flush"})
"""Operations that read no data."""


@dataclass(frozen=True, slots=True)
class IoCounts:
    """Storage request counts, with the names of pylance where it has them."""

    read_iops: int = 0
    read_bytes: int = 0
    write_iops: int = 0
    written_bytes: int = 0

    def __add__(self, other: IoCounts) -> IoCounts:
        """Return the sum of two counts."""
        return IoCounts(
            self.read_iops + other.read_iops,
            self.read_bytes + other.read_bytes,
            self.write_iops + other.write_iops,
            self.written_bytes + other.written_bytes,
        )


class IoMeter:
    """Counts requests of a scope and its parents.

    >>> process = IoMeter()
    >>> scan = process.scope()
    >>> scan.add(read_iops=2, read_bytes=10)
    >>> process.counts
    IoCounts(read_iops=2, read_bytes=10, write_iops=0, written_bytes=0)
    """

    def __init__(self, outer: IoMeter | None = None) -> None:
        """Create a meter with zero counts within `outer`."""
        self._outer = outer
        self._lock = threading.Lock()
        self._read_iops = self._read_bytes = self._write_iops = self._written_bytes = 0
        reset_after_fork(self, IoMeter._reset)

    @property
    def counts(self) -> IoCounts:
        """The current counts."""
        with self._lock:
            return IoCounts(
                self._read_iops, self._read_bytes, self._write_iops, self._written_bytes
            )

    def scope(self) -> IoMeter:
        """Create a meter with zero counts that also adds to this one."""
        return IoMeter(self)

    def add(
        self,
        read_iops: int = 0,
        read_bytes: int = 0,
        write_iops: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Add to the counts of this scope and its parents."""
        # This runs for every request in each scope, so it avoids creating objects.
        with self._lock:
            self._read_iops += read_iops
            self._read_bytes += read_bytes
            self._write_iops += write_iops
            self._written_bytes += written_bytes
        if self._outer is not None:
            self._outer.add(read_iops, read_bytes, write_iops, written_bytes)

    def count_reads(self, num_ranges: int, num_bytes: int) -> None:
        """Count reads from a memory map, which sends no requests."""
        with self._lock:
            self._read_iops += num_ranges
            self._read_bytes += num_bytes
        if self._outer is not None:
            self._outer.count_reads(num_ranges, num_bytes)

    def take(self) -> IoCounts:
        """Return the counts and reset them; parents are not reset."""
        with self._lock:
            counts = IoCounts(
                self._read_iops, self._read_bytes, self._write_iops, self._written_bytes
            )
            self._read_iops = self._read_bytes = self._write_iops = self._written_bytes = 0
        return counts

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request and count it if it succeeds."""
        result = action()
        if request.operation in CHANGES:
            self.add(write_iops=1, written_bytes=request.written_bytes)
        elif request.operation not in _UNCOUNTED:
            self.add(request.reads, result_bytes(result))
        return result

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as a meter with zero counts; each process counts its own requests."""
        return (IoMeter, ())

    def _reset(self) -> None:
        self._lock = threading.Lock()


PROCESS_METER: Final = IoMeter()
"""Counts the requests of this process to all metered stores."""


def metered(store: Store, meter: IoMeter) -> Store:
    """Return a store with counted requests.

    The meter of a store that is already metered is replaced; use a scope of the old meter to count
    in both.
    """
    if isinstance(store, WrappedStore) and isinstance(store.interceptor, IoMeter):
        store = store.inner
    return WrappedStore(store, meter)
