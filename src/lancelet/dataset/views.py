"""Materialised views: tables with the result of a query over another table.

dataset.create_view("towns", "SELECT city, count(*) AS people FROM source GROUP BY city")
view.refresh()     reads the rows of the source that changed, and commits once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from lancelet import views
from lancelet.dataset.handle import Handle, OpenOptions, locate, open_handle, text_of
from lancelet.dataset.show import display
from lancelet.table.commit import refresh_snapshot
from lancelet.table.refs import main_location
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.views.definition import ViewDefinition
    from lancelet.views.refresh import RefreshPlan


class MaterializedView:
    """A view: the table with its rows, and its source."""

    def __init__(
        self,
        kind: type[LanceDataset],
        handle: Handle,
        source_options: Mapping[str, str] | None = None,
    ) -> None:
        """Represent a view; use `LanceDataset.create_view` or `open_view`."""
        views.refresh.definition_of(handle.snapshot)
        self._kind = kind
        self._handle = handle
        self._source_options = source_options or handle.options.storage_options

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
        """Return what a refresh would do, without reading values.

        Returns:
            The kind of refresh, the source versions and the number of changed rows.

        Example:
            ```python
            view = dataset.create_view("cheap", "SELECT id, price FROM source WHERE price < 10")
            dataset.delete("id = 3")
            view.explain().kind
            ```
        """
        return views.refresh.plan_refresh(self._latest(), self._source())

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
            What was done.

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
            return views.refresh.plan_refresh(self._latest(), self._source(), full=full)
        done = views.refresh.refresh(self._latest(), self._source(), functions or {}, full=full)
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
        source = self._definition.source
        options = OpenOptions(storage_options=self._source_options)
        return open_handle(source.uri, (source.branch, None), options).snapshot


class ViewMethods:
    """Methods that create views of a table."""

    _handle: Handle

    def create_view(
        self,
        uri: str | PathLike[str],
        query: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> MaterializedView:
        """Create a materialised view: a table with the result of a query over this table.

        `MaterializedView.refresh` updates the view from the rows that changed. Create the source
        with stable row ids, so that changes are known after updates and compactions.

        Args:
            uri: The location of the table of the view.
            query: `SELECT columns FROM source [WHERE condition] [GROUP BY columns]`, with the
                aggregates `count`, `sum`, `min`, `max` and `avg`. The table is called `source`.
            storage_options: The storage options of the view, by default those of this table.
            functions: Python functions that the query calls, by name. They get an Arrow array for
                each argument and return an array.

        Returns:
            The view.

        Raises:
            AlreadyExistsError: If there is a table at the location.
            ExpressionError: If the query is invalid.

        Example:
            ```python
            query = "SELECT price, count(*) AS books FROM source GROUP BY price"
            view = dataset.create_view("by_price", query)
            view.to_table()
            ```
        """
        snapshot, own = self._handle.snapshot, self._handle.options.storage_options
        parsed = views.statement.parse_query(query, snapshot.schema.names, functions or {})
        source = views.definition.SourceTable(
            main_location(snapshot).uri,
            snapshot.manifest.branch,
            snapshot.version,
            snapshot.identity,
        )
        options = OpenOptions(storage_options=own if storage_options is None else storage_options)
        location, meter = locate(text_of(uri), options)
        definition = views.definition.ViewDefinition(parsed, source)
        created = views.refresh.create_view(location, definition, snapshot, functions or {})
        kind = cast("type[LanceDataset]", type(self))
        return MaterializedView(kind, Handle(created, meter, options), own)
