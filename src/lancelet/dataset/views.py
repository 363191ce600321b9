"""Materialised views: tables with the result of a query over another table.

dataset.create_view("towns", "SELECT city, count(*) AS people FROM source GROUP BY city")
view.refresh()     reads the rows of the source that changed, and commits once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lancelet import views
from lancelet.dataset.handle import Handle, OpenOptions, locate, open_handle, text_of
from lancelet.dataset.show import display
from lancelet.errors import DatasetNotFoundError, InvalidInputError
from lancelet.table.commit import refresh_snapshot
from lancelet.table.refs import main_location
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.views.definition import SourceTable, ViewDefinition
    from lancelet.views.refresh import RefreshPlan
    from lancelet.views.rows import Functions
    from lancelet.views.tasks import Runner


class MaterializedView:
    """A view: the table with its rows, and its source."""

    def __init__(
        self,
        kind: type[LanceDataset],
        handle: Handle,
        source_options: Mapping[str, str] | None = None,
        tables: Mapping[str, str] | None = None,
    ) -> None:
        """Represent a view; use `LanceDataset.create_view` or `open_view`."""
        definition = views.refresh.definition_of(handle.snapshot)
        names = [views.definition.SOURCE, *definition.tables]
        for name in tables or {}:
            if name not in names:
                raise InvalidInputError(
                    "the query of the view has no such table", table=name, tables=", ".join(names)
                )
        self._kind = kind
        self._handle = handle
        self._source_options = source_options or handle.options.storage_options
        self._moved = tables or {}

    def __repr__(self) -> str:
        """Show the location, the query and the source version."""
        return display.line(
            "MaterializedView", uri=self.uri, query=self.query, source_version=self.source_version
        )

    @property
    def uri(self) -> str:
        """The location of the table of the view."""
        return self._handle.location.uri

    @property
    def query(self) -> str:
        """The query of the view."""
        return self._definition.query.text

    @property
    def source_uri(self) -> str:
        """The location of the source."""
        return self._definition.source.uri

    @property
    def source_version(self) -> int:
        """The version of the source that the view shows."""
        return self._definition.source.version

    @property
    def dataset(self) -> LanceDataset:
        """The table of the view, with the columns that refreshes need."""
        return self._kind(self.uri, _handle=self._handle)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the query."""
        names = [each.name for each in self._definition.query.columns]
        schema = self.dataset.schema
        return pa.schema([schema.field(name) for name in names])

    def to_table(self, **options: Any) -> pa.Table:
        """Return the rows of the view, with the columns of the query.

        Args:
            options: The options of `LanceDataset.to_table`.

        Returns:
            A table.

        Example:
            ```python
            view = dataset.create_view("cheap", "SELECT id, price FROM source WHERE price < 10")
            view.to_table(filter="price < 5")
            ```
        """
        if options.get("columns") is None:
            options["columns"] = self.schema.names
        return self.dataset.to_table(**options)

    def explain(self) -> RefreshPlan:
        """Return the plan of a refresh without reading values, except keys of joined tables.

        Returns:
            The kind of refresh, the versions, and the number of rows to compute.

        Example:
            ```python
            view = dataset.create_view("cheap", "SELECT id, price FROM source WHERE price < 10")
            dataset.delete("id = 3")
            view.explain().kind
            ```
        """
        return views.refresh.plan_refresh(self._latest(), self._source(), self._tables())

    def refresh(
        self,
        *,
        full: bool = False,
        dry_run: bool = False,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> RefreshPlan:
        """Show the latest version of the source.

        The rows that changed since the last refresh are read, and the view is changed in one
        commit. If the changes are not known, for example because a version was cleaned up, all rows
        are computed; the result gives the reason.

        Args:
            full: Whether to compute all rows.
            dry_run: Whether to return the plan only.
            functions: The Python functions of the query, by name.

        Returns:
            The plan that was executed.

        Raises:
            ViewFunctionError: If a function is missing.
            CommitConflictError: If other writers changed the view repeatedly.

        Example:
            ```python
            view = dataset.create_view("cheap", "SELECT id, price FROM source WHERE price < 10")
            dataset.delete("id = 3")
            print(view.refresh())
            ```
        """
        if dry_run:
            return views.refresh.plan_refresh(
                self._latest(), self._source(), self._tables(), full=full
            )
        return self.refresh_in_tasks(views.tasks.IN_PROCESS, functions or {}, full=full)

    def refresh_in_tasks(
        self, runner: Runner, functions: Functions, *, full: bool = False
    ) -> RefreshPlan:
        """Refresh the view by the tasks of a runner; `lancelet.spark.refresh_view` calls this.

        Args:
            runner: Runs the tasks.
            functions: The Python functions of the query, by name.
            full: Whether to compute all rows.

        Returns:
            The plan that was executed.
        """
        latest, source = self._latest(), self._source()
        done = views.refresh.refresh(
            latest, source, functions, self._tables(), full=full, runner=runner
        )
        self._handle.snapshot = done.snapshot
        return done.plan

    @property
    def _definition(self) -> ViewDefinition:
        return views.refresh.definition_of(self._handle.snapshot)

    def _latest(self) -> Snapshot:
        """Check out the latest version of the view."""
        self._handle.snapshot = refresh_snapshot(self._handle.snapshot)
        return self._handle.snapshot

    def _source(self) -> Snapshot:
        """Open the latest version of the source."""
        return self._open(views.definition.SOURCE, self._definition.source)

    def _tables(self) -> dict[str, Snapshot]:
        """Open the latest versions of the joined tables."""
        return {name: self._open(name, each) for name, each in self._definition.tables.items()}

    def _open(self, name: str, table: SourceTable) -> Snapshot:
        options = OpenOptions(storage_options=self._source_options)
        uri = self._moved.get(name, table.uri)
        try:
            return open_handle(uri, (table.branch, None), options).snapshot
        except DatasetNotFoundError as error:
            error.add_note(
                f"The view {self.uri} reads this table as {name}. If it was moved, open the view "
                f"with its location: open_view(uri, tables={{{name!r}: ...}})"
            )
            raise


class ViewMethods:
    """Methods that create views of a table."""

    _handle: Handle

    def create_view(
        self,
        uri: str | PathLike[str],
        query: str,
        *,
        tables: Mapping[str, LanceDataset | str | PathLike[str]] | None = None,
        storage_options: Mapping[str, str] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> MaterializedView:
        """Create a materialised view: a table with the result of a query over this table.

        `MaterializedView.refresh` updates the view from the rows that changed. Create the source
        with stable row ids, which identify rows after updates and compactions.

        Args:
            uri: The location of the table of the view.
            query: `SELECT columns FROM source [[LEFT] JOIN t ON source.k = t.id] [WHERE condition]
                [GROUP BY columns]`, with the aggregates `count`, `sum`, `min`, `max` and `avg`. The
                table is called `source`.
            tables: The joined tables by their names in the query: datasets or locations. They have
                distinct keys, and are opened with the storage options of this table by refreshes.
            storage_options: The storage options of the view, by default those of this table.
            functions: Python functions that the query calls, by name. They get an Arrow array for
                each argument and return an array.

        Returns:
            The view.

        Raises:
            AlreadyExistsError: If there is a table at the location.
            ExpressionError: If the query is invalid.
            InvalidInputError: If rows of a joined table have the same key.

        Example:
            ```python
            query = "SELECT price, count(*) AS books FROM source GROUP BY price"
            view = dataset.create_view("by_price", query)
            view.to_table()
            ```
        """
        kind = cast("type[LanceDataset]", type(self))
        written = WrittenView(text_of(uri), query, tables or {}, storage_options, functions or {})
        return create_view(kind, self._handle, written, views.tasks.IN_PROCESS)


@dataclass(frozen=True, slots=True)
class WrittenView:
    """The arguments of `LanceDataset.create_view`."""

    uri: str
    query: str
    tables: Mapping[str, LanceDataset | str | PathLike[str]] = field(default_factory=dict)
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    functions: Functions = field(default_factory=dict)


def create_view(
    kind: type[LanceDataset], source: Handle, written: WrittenView, runner: Runner
) -> MaterializedView:
    """Create a view of a table by the tasks of a runner; see `LanceDataset.create_view`."""
    snapshot, own = source.snapshot, source.options.storage_options
    given = {name: _snapshot_of(each, own) for name, each in written.tables.items()}
    names = {name: each.schema.names for name, each in given.items()}
    query = views.statement.parse_query(
        written.query, snapshot.schema.names, written.functions, names
    )
    joined = {each.name: given[each.table] for each in query.joins}
    options = OpenOptions(
        storage_options=own if written.storage_options is None else written.storage_options
    )
    location, meter = locate(written.uri, options)
    definition = views.definition.ViewDefinition(
        query, _source_of(snapshot), {name: _source_of(each) for name, each in joined.items()}
    )
    sources = views.refresh.Sources(snapshot, joined)
    created = views.refresh.create_view(
        location, definition, sources, written.functions, runner=runner
    )
    return MaterializedView(kind, Handle(created, meter, options), own)


def _snapshot_of(
    table: LanceDataset | str | PathLike[str], storage_options: Mapping[str, str] | None
) -> Snapshot:
    """Return the version of a dataset, or the latest one at a location."""
    if isinstance(table, str | PathLike):
        options = OpenOptions(storage_options=storage_options)
        return open_handle(text_of(table), None, options).snapshot
    return table.snapshot


def _source_of(snapshot: Snapshot) -> SourceTable:
    return views.definition.SourceTable(
        main_location(snapshot).uri, snapshot.manifest.branch, snapshot.version, snapshot.identity
    )
