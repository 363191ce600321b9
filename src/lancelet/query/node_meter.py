"""Counting for the nodes of one plan: requests, bytes, rows and time.

    thread of the plan     in Take                requests count for Take
    a thread of a pool     in LanceRead           requests count for LanceRead
    another                in none                requests count for Take, where the plan is

A time is of a node alone, without those within it, and summed over threads. Open indices have
stores of their own, so their requests are those that the handle of the table counts meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lancelet.format.field import Field
from lancelet.io.metered import PROCESS_METER, IoCounts, IoMeter
from lancelet.io.wrapped import WrappedStore
from lancelet.query.expression import Expression
from lancelet.query.traversal import columns_of
from lancelet.table.snapshot import Snapshot

READ: Final = "LanceRead"
TAKE: Final = "Take"
SEARCH: Final = "Search"
REFINE: Final = "Refine"
SORT: Final = "Sort"
INDICES: Final = "indices"
"""What indices read that nobody asked by a question."""
_READERS: Final = frozenset({READ, TAKE, REFINE})
"""The nodes that read columns."""


def index_node(name: str) -> str:
    """Return the node that asks an index."""
    return f"index {name}"


def filter_node(expression: Expression) -> str:
    """Return the node that decides a part of a filter; no other is about the same columns."""
    return f"filter {sorted(columns_of(expression))}"


@dataclass(slots=True)
class Measured:
    """What a node did."""

    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rows: int = 0
    _by_field: dict[int, int] = field(default_factory=dict)

    def saw(self, ids: Sequence[int], num_rows: int) -> None:
        """Count rows of fields; those of a node are the rows of the field with most."""
        for each in ids:
            self._by_field[each] = self._by_field.get(each, 0) + num_rows
        self.rows = max(self._by_field.values(), default=self.rows)

    def plus(self, other: Measured) -> Measured:
        """Return both together, with the rows of this one."""
        requests, size = self.requests + other.requests, self.bytes + other.bytes
        return Measured(requests, size, self.seconds + other.seconds, self.rows)


@dataclass(slots=True)
class _Entered:
    """A node in which a thread is, and how long it was in nodes within."""

    name: str
    inner: float = 0.0


class PlanMeter:
    """What the nodes of a plan say of their work; this one forgets it."""

    is_counting = False
    """Whether to say how many rows there were."""

    def within(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - see `NodeMeter`
        """Work on behalf of a node."""
        return _UNCOUNTED

    def asking(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002 - see `NodeMeter`
        """Work on behalf of a node that asks open indices, as the thread that runs the plan."""
        return _UNCOUNTED

    def reading(self, fields: Sequence[Field], num_rows: int) -> AbstractContextManager[None]:  # noqa: ARG002 - see `NodeMeter`
        """Read rows of columns on behalf of the node of the calling thread."""
        return _UNCOUNTED

    def reading_batches(
        self,
        fields: Sequence[Field],  # noqa: ARG002 - see `NodeMeter`
        batches: Iterator[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        """Return batches of columns, each of which is read when it is asked for."""
        return batches

    def saw(self, name: str, ids: Sequence[int], num_rows: int) -> None:
        """Add rows of fields to those that a node had."""


_UNCOUNTED: Final = nullcontext()
UNMETERED: Final = PlanMeter()
"""The meter of plans that nobody analyses."""


class NodeMeter(IoMeter, PlanMeter):
    """Counts for the nodes of one plan, made by the thread that runs it."""

    is_counting = True

    def __init__(self, outer: IoMeter, indices: IoMeter | None) -> None:
        """Count from zero, within `outer`; `indices` counts what open indices read."""
        super().__init__(outer)
        self._indices = indices
        self._indices_before = IoCounts() if indices is None else indices.counts
        self._told_of_indices = self._of_indices = IoCounts()
        self.nodes: dict[str, Measured] = {}
        self._nodes_lock = threading.Lock()
        self._threads = threading.local()
        self._runner = self._stack()

    @property
    def current(self) -> str:
        """The node on whose behalf the calling thread works."""
        stack = self._stack() or self._runner
        return stack[-1].name if stack else READ

    def add(
        self,
        read_iops: int = 0,
        read_bytes: int = 0,
        write_iops: int = 0,
        written_bytes: int = 0,
    ) -> None:
        """Count for the node of the calling thread, and in every scope around."""
        super().add(read_iops, read_bytes, write_iops, written_bytes)
        self.tell(self.current, IoCounts(read_iops, read_bytes))

    def count_reads(self, num_ranges: int, num_bytes: int) -> None:
        """Count reads from a map for the node of the calling thread, as any others."""
        self.add(num_ranges, num_bytes)

    def tell(self, name: str, counts: IoCounts = IoCounts(), seconds: float = 0.0) -> None:  # noqa: B008 - it never changes
        """Add to what a node did."""
        with self._nodes_lock:
            own = self.nodes.setdefault(name, Measured())
            own.requests += counts.read_iops
            own.bytes += counts.read_bytes
            own.seconds += seconds

    def saw(self, name: str, ids: Sequence[int], num_rows: int) -> None:
        """Add rows of fields to those that a node had."""
        with self._nodes_lock:
            self.nodes.setdefault(name, Measured()).saw(ids, num_rows)

    @contextmanager
    def within(self, name: str) -> Iterator[None]:
        """Work on behalf of a node."""
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
            self.tell(name, seconds=max(0.0, seconds - entered.inner))

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Work on behalf of a node that asks open indices, as the thread that runs the plan."""
        if self._indices is None:
            with self.within(name):
                yield
            return
        before, told = self._indices.counts, self._told_of_indices
        with self.within(name):
            yield
        within = _since(self._told_of_indices, told)
        own = _since(_since(self._indices.counts, before), within)
        self._told_of_indices += own
        self.tell(name, own)

    @property
    def of_indices(self) -> IoCounts:
        """What open indices read while the plan ran."""
        return self._of_indices

    def end(self) -> None:
        """Count for `INDICES` what indices read on behalf of no node."""
        if self._indices is not None:
            read = _since(self._indices.counts, self._indices_before)
            self.tell(INDICES, _since(read, self._told_of_indices))
            self._of_indices = read

    @contextmanager
    def reading(self, fields: Sequence[Field], num_rows: int) -> Iterator[None]:
        """Read rows of columns on behalf of the node of the calling thread."""
        with self._reading() as node:
            yield
        if node is not None:
            self.saw(node, [field.id for field in fields], num_rows)

    def reading_batches(
        self, fields: Sequence[Field], batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches of columns, each of which is read when it is asked for."""
        while True:
            with self._reading() as node:
                batch = next(batches, None)
            if batch is None:
                return
            if node is not None:
                self.saw(node, [field.id for field in fields], batch.num_rows)
            yield batch

    @contextmanager
    def _reading(self) -> Iterator[str | None]:
        """Read on behalf of a node, which is None for a part of another read."""
        if getattr(self._threads, "is_reading", False):
            yield None
            return
        node = self.current if self.current in _READERS else READ
        self._threads.is_reading = True
        try:
            with self.within(node):
                yield node
        finally:
            self._threads.is_reading = False

    def _stack(self) -> list[_Entered]:
        if not hasattr(self._threads, "stack"):
            self._threads.stack = []
        stack: list[_Entered] = self._threads.stack
        return stack


def meter_of(snapshot: Snapshot) -> PlanMeter:
    """Return the meter of the plan that reads a version."""
    around = _meter_around(snapshot)
    return around if isinstance(around, NodeMeter) else UNMETERED


def meter_for(snapshot: Snapshot) -> NodeMeter:
    """Return a meter for the nodes of a plan, whose indices are open with a version."""
    return NodeMeter(PROCESS_METER.scope(), _meter_around(snapshot))


def _meter_around(snapshot: Snapshot) -> IoMeter | None:
    store = snapshot.location.store
    around = store.around if isinstance(store, WrappedStore) else None
    return around if isinstance(around, IoMeter) else None


def _since(counts: IoCounts, before: IoCounts) -> IoCounts:
    return IoCounts(counts.read_iops - before.read_iops, counts.read_bytes - before.read_bytes)
