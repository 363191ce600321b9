"""The tasks of a refresh: each reads some rows of the source, and one commit publishes the results.

    changed rows   write      files with the new rows of the view
                   aggregate  counts and sums of the rows before, and of those after the change
    all rows       write      files with the rows of some fragments of the source
                   aggregate  counts and sums of some fragments

Tasks run in this process, or in those of a cluster; they are plain values, which refer to versions
by location. A task that is repeated writes other files; those of one attempt are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from lancelet.change.rows import RowStream
from lancelet.change.write_table import WriteMode, WriteOptions, prepare_write
from lancelet.format.operation import Overwrite
from lancelet.format.version import FileVersion
from lancelet.rowids.address import UInt64s
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass, replace
from lancelet.views.definition import Query
from lancelet.views.groups import GroupView
from lancelet.views.relation import Relation, relation_of
from lancelet.views.rows import RowChanges, RowView
from lancelet.views.stored import WrittenRows

T = TypeVar("T")
R = TypeVar("R")


class Version(Protocol):
    """A version that tasks open."""

    def open(self) -> Snapshot:
        """Return the version."""


class Target(Protocol):
    """The table of a view, which tasks write to."""

    def locate(self) -> TableLocation:
        """Return the location."""

    def latest(self) -> Snapshot | None:
        """Return the version to change; None if the table does not exist."""


class Runner(Protocol):
    """Runs the tasks of a refresh."""

    @property
    def task_rows(self) -> int:
        """The number of changed rows per task."""

    @property
    def is_remote(self) -> bool:
        """Whether tasks may run in other processes."""

    def run(self, phase: str, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Run tasks, and return their results in order."""

    def parts_of(self, source: Snapshot) -> Sequence[tuple[int, ...] | None]:
        """Return the fragments that each task reads to read all rows; None for all."""

    def version(self, snapshot: Snapshot) -> Version:
        """Return a version as part of a task."""

    def target(self, location: TableLocation, latest: Snapshot | None) -> Target:
        """Return the table of a view as part of a task."""

    def deferred(self, location: TableLocation) -> TableLocation:
        """Return the location; if tasks run here, its files are flushed before the commit."""


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    """A version and a table in this process."""

    snapshot: Snapshot | None
    location: TableLocation

    def open(self) -> Snapshot:
        """Return the version."""
        assert self.snapshot is not None, "the version exists"
        return self.snapshot

    def locate(self) -> TableLocation:
        """Return the location."""
        return self.location

    def latest(self) -> Snapshot | None:
        """Return the version to change; None if the table does not exist."""
        return self.snapshot


class InProcess:
    """Runs each phase of a refresh as one task in this process."""

    task_rows: Final = 1 << 62
    is_remote: Final = False

    def run(self, phase: str, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Run tasks, and return their results in order."""
        del phase
        return [function(task) for task in tasks]

    def parts_of(self, source: Snapshot) -> Sequence[tuple[int, ...] | None]:
        """Return the fragments that each task reads to read all rows; None for all."""
        del source
        return [None]

    def version(self, snapshot: Snapshot) -> Version:
        """Return a version as part of a task."""
        return _Opened(snapshot, snapshot.location)

    def target(self, location: TableLocation, latest: Snapshot | None) -> Target:
        """Return the table of a view as part of a task."""
        return _Opened(latest, location)

    def deferred(self, location: TableLocation) -> TableLocation:
        """Return the location; its files are flushed before the commit."""
        return replace(location, store=location.store.with_deferred_sync())


IN_PROCESS: Final = InProcess()


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """The versions that a query reads."""

    query: Query
    source: Version
    tables: Mapping[str, Version]

    @staticmethod
    def of(
        runner: Runner, query: Query, source: Snapshot, tables: Mapping[str, Snapshot]
    ) -> Tables:
        """Return versions as part of a task."""
        others = {name: runner.version(each) for name, each in tables.items()}
        return Tables(query, runner.version(source), others)

    def relation(self) -> Relation:
        """Return the rows that the query reads."""
        tables = {name: each.open() for name, each in self.tables.items()}
        return relation_of(self.query, self.source.open(), tables)


@dataclass(frozen=True, slots=True, eq=False)
class WrittenPart:
    """The fragments that a task wrote for a new version, and their file version."""

    operation: Overwrite
    version: FileVersion | None


@dataclass(frozen=True, slots=True, eq=False)
class WriteAll:
    """Writes the rows of a view for some fragments of the source."""

    view: RowView
    tables: Tables
    target: Target
    schema: pa.Schema
    fragments: tuple[int, ...] | None

    def run(self) -> WrittenPart:
        """Write the rows."""
        stream = RowStream(self.schema, self.view.all_rows(self.tables.relation(), self.fragments))
        latest = self.target.latest()
        mode = WriteMode.CREATE if latest is None else WriteMode.OVERWRITE
        done = prepare_write(self.target.locate(), latest, stream, mode, WriteOptions())
        assert isinstance(done.operation, Overwrite), "all rows are written"
        return WrittenPart(done.operation, done.options.data_version)


@dataclass(frozen=True, slots=True, eq=False)
class WriteChanged:
    """Writes the rows of a view for changed rows of the source."""

    view: RowView
    tables: Tables
    target: Target
    changes: RowChanges

    def run(self) -> WrittenRows:
        """Write the rows."""
        latest = self.target.latest()
        assert latest is not None, "the view exists"
        return self.view.write_changed(self.tables.relation(), latest, self.changes)


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """Aggregates the rows of some fragments of the source, those of all groups by default."""

    view: GroupView
    tables: Tables
    fragments: tuple[int, ...] | None
    groups: pa.Table | None = None

    def run(self) -> pa.Table:
        """Return the aggregates."""
        relation = self.tables.relation()
        if self.groups is None:
            return self.view.all_aggregates(relation, self.fragments)
        return self.view.aggregates_of(relation, self.groups, self.fragments)


@dataclass(frozen=True, slots=True, eq=False)
class AggregateChanged:
    """Aggregates rows of the source, given by address."""

    view: GroupView
    tables: Tables
    addresses: UInt64s

    def run(self) -> pa.Table:
        """Return the aggregates."""
        return self.view.aggregates_at(self.tables.relation(), self.addresses)
