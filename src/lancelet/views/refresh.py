"""Create views, and refresh them from the changes of their source.

    plan      source at 7, view at 4: 3 rows inserted, 1 updated      incremental
              source at 7, view at 4, version 5 was cleaned up        full
    rows      compute the rows of the view for the changed rows
    commit    the rows, and `lancelet.stream.view = 7`, in one version

The recorded source version is checked in the commit: of two concurrent refreshes, one starts again.
A refresh that stops at any point changes nothing, or is complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.delete import delete_rows
from lancelet.change.merge.execute import merge_rows
from lancelet.change.merge.spec import Matched, MergeSpec
from lancelet.change.publish import publish
from lancelet.change.rows import RowStream
from lancelet.change.write_table import WriteMode, WriteOptions, write_table
from lancelet.errors import CommitConflictError, UnsupportedError, VersionNotFoundError
from lancelet.expr import expression as ex
from lancelet.format.operation import UpdateConfig, UpdateMap
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan, projection_of
from lancelet.scan.projection import scan_schema
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.commit import CommitOptions, check_same_identity, refresh_snapshot
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.upkeep.changes.between import check_trackable
from lancelet.upkeep.changes.rows import ChangedRows, ChangeKind, rows_changed
from lancelet.values import dataclass, replace
from lancelet.views.definition import (
    CONFIG_KEY,
    GROUP_KEY,
    ROW_KEY,
    SEQUENCE,
    Query,
    ViewDefinition,
)
from lancelet.views.groups import GroupView
from lancelet.views.rows import Functions, RowView

View: TypeAlias = RowView | GroupView

_FULL_SHARE: Final = 0.5
"""If more of the rows changed, computing all of them is faster."""

_ATTEMPTS: Final = 10
_POSITIONS: Final = frozenset({RowColumn.ADDRESS.value, RowColumn.OFFSET.value})


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """What a refresh does.

    Attributes:
        kind: "none" if the view is up to date, "incremental" or "full".
        begin: The source version that the view shows.
        end: The source version after the refresh.
        inserted: The number of inserted rows of the source; None if unknown.
        updated: The number of updated rows of the source; None if unknown.
        deleted: The number of deleted rows of the source; None if unknown.
        reason: Why all rows are computed; None if they are not.
    """

    kind: str
    begin: int
    end: int
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Refreshed:
    """The version of the view after a refresh, and the plan that was executed."""

    snapshot: Snapshot
    plan: RefreshPlan


def view_of(definition: ViewDefinition, functions: Functions) -> View:
    """Return the view of a definition."""
    if definition.query.groups is None:
        return RowView(definition.query, functions)
    return GroupView(definition.query)


def definition_of(view: Snapshot) -> ViewDefinition:
    """Return the definition of a view; its source has the version that the view shows."""
    return ViewDefinition.of_config(view.manifest.config, uri=view.location.uri)


def create_view(
    location: TableLocation, definition: ViewDefinition, source: Snapshot, functions: Functions
) -> Snapshot:
    """Create the table of a view with the rows of its query."""
    shown = _shown(definition, source, after=None)
    commit = CommitOptions(must_create=True, stable_row_ids=True, watermark=shown)
    options = WriteOptions(commit=commit)
    stream = _all_rows(view_of(definition, functions), source)
    return write_table(location, stream, WriteMode.CREATE, options)


def _shown(definition: ViewDefinition, source: Snapshot, *, after: int | None) -> BatchWatermark:
    """Return the record of the source version that a view shows."""
    shown = replace(definition.source, version=source.version, identity=source.identity)
    entry = CONFIG_KEY, replace(definition, source=shown).to_config()
    return BatchWatermark(SEQUENCE, source.version, after, (entry,))


def plan_refresh(view: Snapshot, source: Snapshot, *, full: bool = False) -> RefreshPlan:
    """Return what a refresh to a version of the source does; reads no values."""
    return _planned(view, source, full=full)[0]


def _planned(
    view: Snapshot, source: Snapshot, *, full: bool
) -> tuple[RefreshPlan, Sequence[ChangedRows]]:
    """Return the plan of a refresh, and the changed rows of an incremental one."""
    shown = definition_of(view).source
    begin, end = shown.version, source.version
    try:
        check_same_identity(begin, shown.identity, source)
    except VersionNotFoundError:
        return RefreshPlan("full", begin, end, reason="the source table was created again"), ()
    if full:
        return RefreshPlan("full", begin, end, reason="requested"), ()
    query = definition_of(view).query
    if not _names_of(query) <= set(view.schema.names):
        return RefreshPlan("full", begin, end, reason="columns of the view were removed"), ()
    if begin == end:
        return RefreshPlan("none", begin, end, 0, 0, 0), ()
    if begin > end:
        return RefreshPlan("full", begin, end, reason="the view shows a later source version"), ()
    try:
        before = open_snapshot(source.location, begin)
        check_trackable(before, source)
    except (VersionNotFoundError, UnsupportedError) as error:
        return RefreshPlan("full", begin, end, reason=error.message), ()
    reason = _replaced(query, before, source)
    if reason is not None:
        return RefreshPlan("full", begin, end, reason=reason), ()
    counts = dict.fromkeys(ChangeKind, 0)
    changes = list(rows_changed(before, source))
    for change in changes:
        counts[change.kind] += len(change)
    inserted, updated, deleted = (counts[kind] for kind in ChangeKind)
    if sum(counts.values()) > _FULL_SHARE * max(source.num_rows, 1):
        reason = "more than half of the rows changed"
        return RefreshPlan("full", begin, end, inserted, updated, deleted, reason), ()
    return RefreshPlan("incremental", begin, end, inserted, updated, deleted), changes


def _names_of(query: Query) -> set[str]:
    """Return the names of the columns of the table of a view."""
    stored = (ROW_KEY,) if query.groups is None else GroupView(query).stored_names
    return {*(each.name for each in query.columns), *stored}


def _replaced(query: Query, before: Snapshot, source: Snapshot) -> str | None:
    """Return why values of the query change in rows that do not, or None if they do not change."""
    expressions = {f"_{number}": text for number, text in enumerate(query.expressions)}
    after = projection_of(source, expressions)
    if not _POSITIONS.isdisjoint(after.row_columns):
        return "the query contains the positions of rows"
    then, now = (
        {
            (int(node.id), node.name, node.logical_type)
            for field in projection_of(each, expressions).fields
            for node in field.walk()
        }
        for each in (before, source)
    )
    return None if then == now else "columns of the query were replaced"


def refresh(
    view: Snapshot,
    source: Snapshot,
    functions: Functions,
    *,
    full: bool = False,
) -> Refreshed:
    """Refresh a view to a version of its source."""
    for attempt in range(_ATTEMPTS):
        latest = refresh_snapshot(view)
        plan, changes = _planned(latest, source, full=full)
        try:
            return Refreshed(_execute(latest, source, functions, plan, changes), plan)
        except CommitConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _execute(
    view: Snapshot,
    source: Snapshot,
    functions: Functions,
    plan: RefreshPlan,
    changes: Sequence[ChangedRows],
) -> Snapshot:
    if plan.kind == "none":
        return view
    definition = definition_of(view)
    queried = view_of(definition, functions)
    if isinstance(queried, RowView):
        types = {each.name: each.type for each in scan_schema(view.schema)}
        queried = replace(queried, types=types)
    options = CommitOptions(watermark=_shown(definition, source, after=plan.begin))
    if plan.kind == "full":
        writing = WriteOptions(commit=options)
        stream = _all_rows(queried, source)
        return write_table(view.location, stream, WriteMode.OVERWRITE, writing, base=view)
    if isinstance(queried, RowView):
        removed = queried.removed_ids(source, changes)
        schema = queried.without_rows(source).schema
        rows = RowStream(schema, queried.changed_rows(source, changes))
        only_new = plan.updated == 0 and plan.deleted == 0
        return _put(view, rows, ROW_KEY, _ids(removed), options, only_new=only_new)
    before = open_snapshot(source.location, plan.begin)
    table, gone = _groups(queried, view, before, source, changes)
    rows = RowStream(table.schema, iter(table.to_batches()), is_in_memory=True)
    return _put(view, rows, GROUP_KEY, gone, options, is_empty=not len(table))


def _all_rows(view: View, source: Snapshot) -> RowStream:
    if isinstance(view, GroupView):
        table = view.all_rows(source)
        return RowStream(table.schema, iter(table.to_batches()), is_in_memory=True)
    # The first rows determine the types of the results of functions.
    batches = view.all_rows(source)
    first = next(batches, None)
    if first is None:
        return RowStream(view.without_rows(source).schema, iter(()))
    typed = replace(view, types={each.name: each.type for each in first.schema})
    return RowStream(first.schema, typed.all_rows(source))


def _groups(
    queried: GroupView,
    view: Snapshot,
    before: Snapshot,
    source: Snapshot,
    changes: Sequence[ChangedRows],
) -> tuple[pa.Table, pa.Array]:
    """Return the new rows of changed groups, and the keys of groups that have no rows left."""
    difference = queried.difference(before, source, changes)
    keys = queried.keys_of(difference)
    stored = execute_to_table(plan_scan(view, ScanOptions(filter=_is_in(GROUP_KEY, keys))))
    updated = queried.updated(difference, stored)
    found = queried.to_rows(updated.determined)
    if len(updated.undetermined):
        computed = queried.rows_of(source, updated.undetermined)
        found = pa.concat_tables([found, computed.cast(found.schema)])
    has_rows = pc.is_in(keys, value_set=found.column(GROUP_KEY).combine_chunks())
    gone = keys.filter(pc.invert(has_rows))
    was_stored = pc.is_in(gone, value_set=stored.column(GROUP_KEY).combine_chunks())
    return found, gone.filter(was_stored)


def _put(
    view: Snapshot,
    rows: RowStream,
    key: str,
    removed: pa.Array,
    options: CommitOptions,
    *,
    only_new: bool = False,
    is_empty: bool = False,
) -> Snapshot:
    """Insert or replace rows by key, and delete keys, in one commit."""
    if only_new and not len(removed):
        first = next(rows.batches, None)
        if first is None:
            return _record(view, options)
        stream = RowStream(rows.schema, _chained(first, rows.batches))
        return write_table(
            view.location, stream, WriteMode.APPEND, WriteOptions(commit=options), base=view
        )
    if is_empty and not len(removed):
        return _record(view, options)
    if is_empty:
        return delete_rows(view, _is_in(key, removed), options=options).snapshot
    spec = MergeSpec(
        on=(key,),
        matched=Matched.UPDATE,
        inserts=True,
        deletes_unmatched=len(removed) > 0,
        delete_condition=_is_in(key, removed) if len(removed) else None,
    )
    return merge_rows(view, rows, spec, options=options).snapshot


def _record(view: Snapshot, options: CommitOptions) -> Snapshot:
    """Record the source version; no row changed."""
    assert options.watermark is not None
    entry = {options.watermark.key: str(options.watermark.number)}
    return publish(view, UpdateConfig(config=UpdateMap(entry)), options)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _ids(ids: UInt64s) -> pa.Array:
    return pa.array(np.asarray(ids), pa.uint64())


def _is_in(key: str, values: pa.Array) -> ex.Expression:
    return ex.In(ex.Column((key,)), values)
