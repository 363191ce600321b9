"""Count requests, bytes, rows and time for each node of a plan.

    thread of the plan     in Take                requests count for Take
    a thread of a pool     in LanceRead           requests count for LanceRead
    another                outside of nodes       requests count for the node of the plan's thread

The time of a node excludes nested nodes and is summed over threads. Open indices have separate
stores, so their requests are measured as the difference of the counters of the table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lancelet.expr.expression import Expression
from lancelet.expr.traversal import columns_of
from lancelet.format.field import Field
from lancelet.io.metered import PROCESS_METER, IoCounts, IoMeter
from lancelet.io.wrapped import WrappedStore
from lancelet.table.snapshot import Snapshot

READ: Final = "LanceRead"
TAKE: Final = "Take"
SEARCH: Final = "Search"
REFINE: Final = "Refine"
SORT: Final = "Sort"
INDICES: Final = "indices"
"""Node for index reads that no lookup caused."""
_READERS: Final = frozenset({READ, TAKE, REFINE})
"""The nodes that read columns."""


def index_node(name: str) -> str:
    """Return the node of lookups in an index."""
    return f"index {name}"


def filter_node(expression: Expression) -> str:
    """Return the node of a part of a filter, identified by its columns."""
    return f"filter {sorted(columns_of(expression))}"


@dataclass(slots=True)
class Measured:
    """The measurements of a node."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rows: int = 0
    _by_field: dict[int, int] = field(default_factory=dict)

    def count_rows(self, ids: Sequence[int], num_rows: int) -> None:
        """Count rows of fields; the rows of the node are those of the most frequent field."""
        for each in ids:
            self._by_field[each] = self._by_field.get(each, 0) + num_rows
        self.rows = max(self._by_field.values(), default=self.rows)

    def plus(self, other: Measured) -> Measured:
        """Return the sum of both, with the rows of this one."""
        requests, size = self.requests + other.requests, self.bytes + other.bytes
        return Measured(requests, size, self.seconds + other.seconds, self.rows)


@dataclass(slots=True)
class _Entered:
    """An active node of a thread, and the seconds spent in nested nodes."""

    name: str
    inner: float = 0.0


class PlanMeter:
    """Receives the measurements of plan nodes; this base class discards them."""

    is_counting = False
    """Whether rows are counted."""

    def within(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - see `NodeMeter`
        """Attribute the reads of the calling thread to a node."""
        return _UNCOUNTED

    def within_index(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - see `NodeMeter`
        """Attribute reads of open indices to a node, in the thread of the plan."""
        return _UNCOUNTED

    def counting_read(self, fields: Sequence[Field], num_rows: int) -> AbstractContextManager[None]:  # noqa: ARG002 - see `NodeMeter`
        """Attribute a read of rows to the node of the calling thread."""
        return _UNCOUNTED

    def counting_batches(
        self,
        fields: Sequence[Field],  # noqa: ARG002 - see `NodeMeter`
        batches: Iterator[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        """Attribute the lazy reads of batches to the node of the calling thread."""
        return batches

    def count_rows(self, name: str, ids: Sequence[int], num_rows: int) -> None:
        """Add rows of fields to a node."""


_UNCOUNTED: Final = nullcontext()
UNMETERED: Final = PlanMeter()
"""The meter of plans that are not analyzed."""


class NodeMeter(IoMeter, PlanMeter):
    """Counts by node of one plan; created in the thread of the plan."""

    is_counting = True

    def __init__(self, outer: IoMeter, indices: IoMeter | None) -> None:
        """Create a meter within `outer`; `indices` counts the reads of open indices."""
        super().__init__(outer)
        self._indices = indices
        self._indices_before = IoCounts() if indices is None else indices.counts
        self._recorded_of_indices = self._of_indices = IoCounts()
        self.nodes: dict[str, Measured] = {}
        self._nodes_lock = threading.Lock()
        self._threads = threading.local()
        self._runner = self._stack()

    @property
    def current(self) -> str:
        """The node of the calling thread."""
        stack = self._stack() or self._runner
        return stack[-1].name if stack else READ

    def add(
        self,
        read_iops: int = 0,
        read_bytes: int = 0,
        write_iops: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Count for the node of the calling thread and all enclosing scopes."""
        super().add(read_iops, read_bytes, write_iops, written_bytes)
        self.record(self.current, IoCounts(read_iops, read_bytes))

    def count_reads(self, num_ranges: int, num_bytes: int) -> None:
        """Count memory-mapped reads like other reads."""
        self.add(num_ranges, num_bytes)

    def record(self, name: str, counts: IoCounts = IoCounts(), seconds: float = 0.0) -> None:  # noqa: B008 - it never changes
        """Add measurements to a node."""
        with self._nodes_lock:
            node = self.nodes.setdefault(name, Measured())
            node.requests += counts.read_iops
            node.bytes += counts.read_bytes
            node.seconds += seconds

    def count_rows(self, name: str, ids: Sequence[int], num_rows: int) -> None:
        """Add rows of fields to a node."""
        with self._nodes_lock:
            self.nodes.setdefault(name, Measured()).count_rows(ids, num_rows)

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Attribute the reads of the calling thread to a node."""
        stack, entered = self._stack(), _Entered(name)
        stack.append(entered)
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            stack.pop()
            if stack:
                stack[-1].inner += seconds
            self.record(name, seconds=max(0.0, seconds - entered.inner))

    @contextmanager
    def within_index(self, name: str) -> Iterator[None]:
        """Attribute reads of open indices to a node, in the thread of the plan."""
        if self._indices is None:
            with self.within(name):
                yield
            return
        before, recorded = self._indices.counts, self._recorded_of_indices
        with self.within(name):
            yield
        within = _difference(self._recorded_of_indices, recorded)
        reads = _difference(_difference(self._indices.counts, before), within)
        self._recorded_of_indices += reads
        self.record(name, reads)

    @property
    def of_indices(self) -> IoCounts:
        """The reads of open indices while the plan ran."""
        return self._of_indices

    def end(self) -> None:
        """Assign the remaining reads of indices to the node `INDICES`."""
        if self._indices is not None:
            read = _difference(self._indices.counts, self._indices_before)
            self.record(INDICES, _difference(read, self._recorded_of_indices))
            self._of_indices = read

    @contextmanager
    def counting_read(self, fields: Sequence[Field], num_rows: int) -> Iterator[None]:
        """Attribute a read of rows to the node of the calling thread."""
        with self._read_node() as node:
            yield
        if node is not None:
            self.count_rows(node, [field.id for field in fields], num_rows)

    def counting_batches(
        self, fields: Sequence[Field], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Attribute the lazy reads of batches to the node of the calling thread."""
        while True:
            with self._read_node() as node:
                batch = next(batches, None)
            if batch is None:
                return
            if node is not None:
                self.count_rows(node, [field.id for field in fields], batch.num_rows)
            yield batch

    @contextmanager
    def _read_node(self) -> Iterator[str | None]:
        """Enter the read node; yields None within an outer read."""
        if getattr(self._threads, "is_in_read", False):
            yield None
            return
        node = self.current if self.current in _READERS else READ
        self._threads.is_in_read = True
        try:
            with self.within(node):
                yield node
        finally:
            self._threads.is_in_read = False

    def _stack(self) -> list[_Entered]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        stack: list[_Entered] = self._threads.stack
        return stack


def plan_meter(snapshot: Snapshot) -> PlanMeter:
    """Return the meter of the plan that reads a snapshot."""
    meter = _store_meter(snapshot)
    return meter if isinstance(meter, NodeMeter) else UNMETERED


def new_meter(snapshot: Snapshot) -> NodeMeter:
    """Create a meter for a plan over a snapshot with open indices."""
    return NodeMeter(PROCESS_METER.scope(), _store_meter(snapshot))


def _store_meter(snapshot: Snapshot) -> IoMeter | None:
    store = snapshot.location.store
    interceptor = store.interceptor if isinstance(store, WrappedStore) else None
    return interceptor if isinstance(interceptor, IoMeter) else None


def _difference(counts: IoCounts, before: IoCounts) -> IoCounts:
    return IoCounts(counts.read_iops - before.read_iops, counts.read_bytes - before.read_bytes)
