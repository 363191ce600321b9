"""Counting requests and bytes: for a scan, for a handle and for the process at once.

    process         read_iops 12   read_bytes 9000
      handle        read_iops  7   read_bytes 5000
        scan        read_iops  3   read_bytes 1200

A scope adds to those around it, so the numbers of a handle are the sum of its scans and of what
it read by itself. Counts do not depend on the machine, which makes them good for tests.

A read of ranges counts as many reads as there are ranges; a store may merge near ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from lancelet.io.fork import renew_after_fork
from lancelet.io.store import Store
from lancelet.io.wrapped import CHANGES, Request, WrappedStore, answer_bytes
from lancelet.values import dataclass

T = TypeVar("T")

_UNCOUNTED: Final = frozenset({"open_reader", "open_writer", "settle"})
"""What reads nothing by itself."""


@dataclass(frozen=True, slots=True)
class IoCounts:
    """What was asked of storage; names are those of pylance where it has them."""

    read_iops: int = 0
    read_bytes: int = 0
    write_iops: int = 0
    written_bytes: int = 0

    def __add__(self, other: IoCounts) -> IoCounts:
        """Return both together."""
        return IoCounts(
            self.read_iops + other.read_iops,
            self.read_bytes + other.read_bytes,
            self.write_iops + other.write_iops,
            self.written_bytes + other.written_bytes,
        )


class IoMeter:
    """Counts for one scope, and for the scopes around it.

    >>> process = IoMeter()
    >>> scan = process.scope()
    >>> scan.add(read_iops=2, read_bytes=10)
    >>> process.counts
    IoCounts(read_iops=2, read_bytes=10, write_iops=0, written_bytes=0)
    """

    def __init__(self, outer: IoMeter | None = None) -> None:
        """Count from zero, within `outer`."""
        self._outer = outer
        self._lock = threading.Lock()
        self._read_iops = self._read_bytes = self._write_iops = self._written_bytes = 0
        renew_after_fork(self, IoMeter._renew)

    @property
    def counts(self) -> IoCounts:
        """What was counted so far."""
        with self._lock:
            return IoCounts(
                self._read_iops, self._read_bytes, self._write_iops, self._written_bytes
            )

    def scope(self) -> IoMeter:
        """Return a meter that starts at zero and adds to this one too."""
        return IoMeter(self)

    def add(
        self,
        read_iops: int = 0,
        read_bytes: int = 0,
        write_iops: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Count here and in every scope around."""
        # Every request passes here, in each scope, so numbers are added and no values made.
        with self._lock:
            self._read_iops += read_iops
            self._read_bytes += read_bytes
            self._write_iops += write_iops
            self._written_bytes += written_bytes
        if self._outer is not None:
            self._outer.add(read_iops, read_bytes, write_iops, written_bytes)

    def count_reads(self, num_ranges: int, num_bytes: int) -> None:
        """Count reads that were not asked for, from a map of an object."""
        with self._lock:
            self._read_iops += num_ranges
            self._read_bytes += num_bytes
        if self._outer is not None:
            self._outer.count_reads(num_ranges, num_bytes)

    def take(self) -> IoCounts:
        """Return what was counted and start again from zero; scopes around go on."""
        with self._lock:
            counts = IoCounts(
                self._read_iops, self._read_bytes, self._write_iops, self._written_bytes
            )
            self._read_iops = self._read_bytes = self._write_iops = self._written_bytes = 0
        return counts

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request and count it when it succeeded."""
        answer = action()
        if request.operation in CHANGES:
            self.add(write_iops=1, written_bytes=request.written_bytes)
        elif request.operation not in _UNCOUNTED:
            self.add(request.reads, answer_bytes(answer))
        return answer

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as a meter at zero: what another process does is for that process to count."""
        return (IoMeter, ())

    def _renew(self) -> None:
        self._lock = threading.Lock()


PROCESS_METER: Final = IoMeter()
"""What this process asked of every metered store."""


def metered(store: Store, meter: IoMeter) -> Store:
    """Return a store whose requests are counted.

    A store that is metered already is counted by the new meter only; make that a scope of the
    old one to count in both.
    """
    if isinstance(store, WrappedStore) and isinstance(store.around, IoMeter):
        store = store.inner
    return WrappedStore(store, meter)
