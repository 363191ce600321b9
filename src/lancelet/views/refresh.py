"""Create views, and refresh them from the changes of their source.

    plan      source at 7, view at 4: 3 rows inserted, 1 updated      incremental
              source at 7, view at 4, version 5 was cleaned up        full
    rows      compute the rows of the view for the changed rows
    commit    the rows, and `lancelet.stream.view = 7`, in one version

The recorded source version is checked in the commit: of two concurrent refreshes, one starts again.
A refresh that stops at any point changes nothing, or is complete. If tables are joined, refreshes
are numbered, since a later version of a joined table does not change the source version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.change.bases import absolute_path
from lancelet.change.delete import write_deletions
from lancelet.change.moved_rows import rows_by_fragment
from lancelet.change.publish import commit_transaction, new_transaction, publish
from lancelet.change.rows import RowStream
from lancelet.change.write_table import WriteMode, WriteOptions, write_table
from lancelet.encodings.arrow import to_numpy
from lancelet.errors import (
    AlreadyExistsError,
    CommitConflictError,
    UnsupportedError,
    VersionNotFoundError,
)
from lancelet.expr import expression as ex
from lancelet.expr.compile import is_repeatable
from lancelet.format.field import BLOB_KEY
from lancelet.format.operation import Append, Overwrite, Update, UpdateConfig, UpdateMap, UpdateMode
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.projection import scan_schema
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.commit import CommitOptions, check_same_identity, refresh_snapshot
from lancelet.table.lineage import row_id_index_of
from lancelet.table.location import TableLocation
from lancelet.table.refs import main_location
from lancelet.table.snapshot import Snapshot, latest_snapshot, open_snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.upkeep.changes.between import check_trackable
from lancelet.upkeep.changes.rows import ChangedRows, ChangeKind, rows_changed
from lancelet.values import dataclass, replace
from lancelet.views.definition import (
    CONFIG_KEY,
    GROUP_KEY,
    ROW_KEY,
    SEQUENCE,
    SOURCE,
    Query,
    SourceTable,
    ViewDefinition,
)
from lancelet.views.groups import GroupView
from lancelet.views.relation import JoinedRows, Relation, relation_of, rows_that_refer
from lancelet.views.rows import Functions, RowChanges, RowView
from lancelet.views.stored import WrittenRows, write_replacing
from lancelet.views.tasks import (
    IN_PROCESS,
    Aggregate,
    AggregateChanged,
    Runner,
    Tables,
    WriteAll,
    WriteChanged,
)

View: TypeAlias = RowView | GroupView

_FULL_SHARE: Final = 0.5
"""If more of the rows changed, computing all of them is faster."""

_MOST_GROUPS: Final = 0.25
"""If more of the groups changed, all of them are read."""

_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class RefreshPlan:
    """The kind of a refresh, its versions, and its number of rows.

    Attributes:
        kind: "none" if the view is up to date, "incremental" or "full".
        begin: The source version that the view shows.
        end: The source version after the refresh.
        inserted: The number of inserted rows of the source; None if unknown.
        updated: The number of updated rows of the source, and of other rows that refer to changed
            rows of joined tables; None if unknown.
        deleted: The number of deleted rows of the source; None if unknown.
        reason: Why all rows are computed; None if they are not.
        tables: The versions of the joined tables that the view shows, and those after the refresh.
    """

    kind: str
    begin: int
    end: int
    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    reason: str | None = None
    tables: Mapping[str, tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The versions of the source and of the joined tables that a view reads."""

    source: Snapshot
    tables: Mapping[str, Snapshot]

    def relation(self, query: Query) -> Relation:
        """Return the rows that a query reads."""
        return relation_of(query, self.source, self.tables)


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A plan, and the changed rows of an incremental refresh."""

    plan: RefreshPlan
    changes: Sequence[ChangedRows] = ()
    before: Sources | None = None


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
    location: TableLocation,
    definition: ViewDefinition,
    sources: Sources,
    functions: Functions,
    *,
    runner: Runner = IN_PROCESS,
) -> Snapshot:
    """Create the table of a view with the rows of its query."""
    shown = _shown(definition, sources, None)
    options = CommitOptions(must_create=True, stable_row_ids=True, watermark=shown)
    return _write_all(location, None, view_of(definition, functions), sources, options, runner)


def _shown(definition: ViewDefinition, sources: Sources, view: Snapshot | None) -> BatchWatermark:
    """Return the record of the versions that a view shows."""
    shown = replace(
        definition,
        source=_at(definition.source, sources.source),
        tables={name: _at(each, sources.tables[name]) for name, each in definition.tables.items()},
    )
    entries = ((CONFIG_KEY, shown.to_config()),)
    number, after = sources.source.version, None
    if view is not None and definition.tables:
        after = int(view.manifest.config[BatchWatermark(SEQUENCE, 0).key])
        number = after + 1
    elif view is not None:
        after = definition.source.version
    return BatchWatermark(SEQUENCE, number, after, entries)


def _at(table: SourceTable, snapshot: Snapshot) -> SourceTable:
    uri = absolute_path(main_location(snapshot).uri)
    return replace(table, uri=uri, version=snapshot.version, identity=snapshot.identity)


def plan_refresh(
    view: Snapshot,
    source: Snapshot,
    tables: Mapping[str, Snapshot] | None = None,
    *,
    full: bool = False,
) -> RefreshPlan:
    """Return the plan of a refresh; reads no values except keys of joined tables."""
    return _planned(view, Sources(source, tables or {}), full=full).plan


def _planned(view: Snapshot, sources: Sources, *, full: bool) -> Planned:
    """Return the plan of a refresh, and the changed rows of an incremental one."""
    definition = definition_of(view)
    query, shown = definition.query, {SOURCE: definition.source, **definition.tables}
    ends = {SOURCE: sources.source, **sources.tables}
    begin, end = definition.source.version, sources.source.version
    versions = {name: (shown[name].version, ends[name].version) for name in definition.tables}
    plan = RefreshPlan("full", begin, end, tables=versions or None)
    for name, table in shown.items():
        try:
            check_same_identity(table.version, table.identity, ends[name])
        except VersionNotFoundError:
            reason = f"{_title(name)} was created again"
            return Planned(replace(plan, reason=reason))
    if full:
        return Planned(replace(plan, reason="requested"))
    if not _names_of(query) <= set(view.schema.names):
        return Planned(replace(plan, reason="columns of the view were removed"))
    if all(table.version == ends[name].version for name, table in shown.items()):
        return Planned(replace(plan, kind="none", inserted=0, updated=0, deleted=0))
    for name, table in shown.items():
        if table.version > ends[name].version:
            title = "source" if name == SOURCE else name
            return Planned(replace(plan, reason=f"the view shows a later {title} version"))
    before = dict[str, Snapshot]()
    try:
        for name, table in shown.items():
            before[name] = open_snapshot(ends[name].location, table.version)
            check_trackable(before[name], ends[name])
    except (VersionNotFoundError, UnsupportedError) as error:
        return Planned(replace(plan, reason=error.message))
    begins = Sources(before[SOURCE], {name: before[name] for name in definition.tables})
    relations = begins.relation(query), sources.relation(query)
    replaced = _replaced(query, *relations)
    if replaced is not None:
        return Planned(replace(plan, reason=replaced))
    changes = _changes(*relations)
    counts = dict.fromkeys(ChangeKind, 0)
    for change in changes:
        counts[change.kind] += len(change)
    inserted, updated, deleted = (counts[kind] for kind in ChangeKind)
    plan = replace(plan, inserted=inserted, updated=updated, deleted=deleted)
    is_most = sum(counts.values()) > _FULL_SHARE * max(sources.source.num_rows, 1)
    if is_most and not _has_additions(view, query):
        return Planned(replace(plan, reason="more than half of the rows changed"))
    return Planned(replace(plan, kind="incremental"), changes, begins)


def _has_additions(view: Snapshot, query: Query) -> bool:
    """Return whether a view has indices or columns that a full refresh would drop."""
    return bool(view.indices.indices) or set(view.schema.names) != _names_of(query)


def _title(name: str) -> str:
    return "the source table" if name == SOURCE else f"the joined table {name}"


def _changes(begin: Relation, end: Relation) -> list[ChangedRows]:
    """Return the changed rows of the source, and those that refer to changed rows of a table."""
    changes = list(rows_changed(begin.source, end.source))
    if not isinstance(begin, JoinedRows) or not isinstance(end, JoinedRows):
        return changes
    listed = [each.after for each in changes if each.after is not None]
    for position, (then, now) in enumerate(zip(begin.tables, end.tables, strict=True)):
        if then.snapshot.version == now.snapshot.version:
            continue
        table_changes = list(rows_changed(then.snapshot, now.snapshot))
        for ids, addresses in rows_that_refer(begin, end, position, table_changes):
            is_new = np.ones(len(ids), np.bool_)
            for each in listed:
                is_new &= ~np.isin(addresses, each)
            if is_new.any():
                own_ids, after = ids[is_new], addresses[is_new]
                before = _addresses_before(begin.source, own_ids, after)
                changes.append(ChangedRows(ChangeKind.UPDATE, own_ids, before, after))
        listed = [each.after for each in changes if each.after is not None]
    return changes


def _addresses_before(begin: Snapshot, ids: UInt64s, after: UInt64s) -> UInt64s:
    """Return the earlier addresses of rows that did not change."""
    if not begin.manifest.uses_stable_row_ids:
        return after
    before = row_id_index_of(begin).addresses(ids)
    assert not (before == NO_ADDRESS).any(), "a row that did not change has an address before"
    return before


def _names_of(query: Query) -> set[str]:
    """Return the names of the columns of the table of a view."""
    stored = (ROW_KEY,) if query.groups is None else GroupView(query).stored_names
    return {*(each.name for each in query.columns), *stored}


def _replaced(query: Query, before: Relation, after: Relation) -> str | None:
    """Return why values of the query change in rows that do not, or None if they do not change."""
    if after.reads_positions(query.expressions):
        return "the query contains the positions of rows"
    if not all(map(is_repeatable, query.expressions)):
        return "the query contains the current time or random values"
    is_same = before.fields_of(query.expressions) == after.fields_of(query.expressions)
    return None if is_same else "columns of the query were replaced"


def refresh(
    view: Snapshot,
    source: Snapshot,
    functions: Functions,
    tables: Mapping[str, Snapshot] | None = None,
    *,
    full: bool = False,
    runner: Runner = IN_PROCESS,
) -> Refreshed:
    """Refresh a view to versions of its source and of its joined tables."""
    sources = Sources(source, tables or {})
    for attempt in range(_ATTEMPTS):
        latest = refresh_snapshot(view)
        planned = _planned(latest, sources, full=full)
        try:
            return Refreshed(_execute(latest, sources, functions, planned, runner), planned.plan)
        except CommitConflictError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _execute(
    view: Snapshot, sources: Sources, functions: Functions, planned: Planned, runner: Runner
) -> Snapshot:
    if planned.plan.kind == "none":
        return view
    definition = definition_of(view)
    queried = view_of(definition, functions)
    if isinstance(queried, RowView):
        types = {each.name: each.type for each in scan_schema(view.schema)}
        queried = replace(queried, types=types)
    options = CommitOptions(watermark=_shown(definition, sources, view))
    if planned.before is None:
        return _write_all(view.location, view, queried, sources, options, runner)
    relation = sources.relation(definition.query)
    if isinstance(relation, JoinedRows) and not planned.changes:
        relation.check_keys()  # tasks check the keys otherwise
    if isinstance(queried, RowView):
        return _put_rows(view, queried, sources, planned.changes, options, runner)
    return _put_groups(view, queried, (planned.before, sources), planned.changes, options, runner)


def _write_all(
    location: TableLocation,
    view: Snapshot | None,
    queried: View,
    sources: Sources,
    options: CommitOptions,
    runner: Runner,
) -> Snapshot:
    """Write all rows of a view as one version; without `view`, as the first one."""
    if view is None and latest_snapshot(location) is not None:
        raise AlreadyExistsError(
            "there is a table at the location of the view; choose another one", uri=location.uri
        )
    tables = Tables.of(runner, queried.query, sources.source, sources.tables)
    parts = runner.parts_of(sources.source)
    mode = WriteMode.CREATE if view is None else WriteMode.OVERWRITE
    if isinstance(queried, GroupView):
        tasks = [Aggregate(queried, tables, part) for part in parts]
        table = queried.to_rows(queried.merge(runner.run("aggregate", Aggregate.run, tasks)))
        stream = RowStream(table.schema, iter(table.to_batches()), is_in_memory=True)
        return write_table(location, stream, mode, WriteOptions(commit=options), base=view)
    relation = sources.relation(queried.query)
    if not queried.types and queried.calls_functions:
        # The first rows determine the types of the results of functions.
        first = next(queried.all_rows(relation), None)
        if first is not None:
            queried = replace(queried, types={each.name: each.type for each in first.schema})
    schema = queried.without_rows(relation).schema
    _check_no_blobs(schema)
    deferred = runner.deferred(location)
    latest = None if view is None else view.with_location(deferred)
    target = runner.target(deferred, latest)
    writes = [WriteAll(queried, tables, target, schema, part) for part in parts]
    written = runner.run("write", WriteAll.run, writes)
    fragments = tuple(fragment for each in written for fragment in each.operation.fragments)
    operation = Overwrite(fragments, written[0].operation.schema)
    committing = replace(
        options,
        data_version=written[0].version,
        must_create=view is None,
        snapshot=view,
        checks_files=runner.is_remote,
        sync=deferred.store.flush,
    )
    transaction = new_transaction(0 if view is None else view.version, operation)
    return commit_transaction(location, transaction, committing)


def _check_no_blobs(schema: pa.Schema) -> None:
    for field in schema:
        if BLOB_KEY.encode() in (field.metadata or {}):
            raise UnsupportedError(
                "views have no blob columns; leave the column out, and read blobs from the source",
                column=field.name,
            )


def _put_rows(
    view: Snapshot,
    queried: RowView,
    sources: Sources,
    changes: Sequence[ChangedRows],
    options: CommitOptions,
    runner: Runner,
) -> Snapshot:
    """Replace the rows of the view for changed rows of the source, in one version."""
    deferred = view.with_location(runner.deferred(view.location))
    tables = Tables.of(runner, queried.query, sources.source, sources.tables)
    target = runner.target(deferred.location, deferred)
    changed = RowChanges.of(changes, view)
    tasks = [
        WriteChanged(queried, tables, target, part) for part in changed.blocks(runner.task_rows)
    ]
    written = runner.run("write", WriteChanged.run, tasks)
    fragments = tuple(fragment for each in written for fragment in each.fragments)
    replaced = np.concatenate([np.empty(0, np.uint64), *(each.replaced for each in written)])
    done = WrittenRows(fragments, replaced)
    return _publish(view, deferred, done, replace(options, checks_files=runner.is_remote))


def _put_groups(
    view: Snapshot,
    queried: GroupView,
    versions: tuple[Sources, Sources],
    changes: Sequence[ChangedRows],
    options: CommitOptions,
    runner: Runner,
) -> Snapshot:
    """Replace the rows of changed groups, and delete those of groups without rows."""
    before, after = (
        Tables.of(runner, queried.query, each.source, each.tables) for each in versions
    )
    tasks = [
        AggregateChanged(queried, tables, part)
        for tables, addresses in (
            (before, [each.before for each in changes if each.before is not None]),
            (after, [each.after for each in changes if each.after is not None]),
        )
        for part in _parts(addresses, runner.task_rows)
    ]
    found = runner.run("aggregate", AggregateChanged.run, tasks)
    removed, added = (
        [each for each, task in zip(found, tasks, strict=True) if task.tables is tables]
        for tables in (before, after)
    )
    difference = queried.difference(added, removed)
    keys = queried.keys_of(difference)
    is_most = len(keys) > _MOST_GROUPS * view.num_rows
    condition = None if is_most else ex.In(ex.Column((GROUP_KEY,)), keys)
    scan = ScanOptions(filter=condition, with_row_address=True)
    stored = execute_to_table(plan_scan(view, scan))
    updated = queried.updated(difference, stored)
    table = queried.to_rows(updated.determined)
    if len(updated.undetermined):
        again = [
            Aggregate(queried, after, part, updated.undetermined)
            for part in runner.parts_of(versions[1].source)
        ]
        computed = queried.merge(runner.run("aggregate again", Aggregate.run, again))
        table = pa.concat_tables([table, queried.to_rows(computed).cast(table.schema)])
    stored_keys = stored.column(GROUP_KEY).combine_chunks()
    addresses = to_numpy(stored.column(RowColumn.ADDRESS.value).combine_chunks())
    found_rows = _rows_of(keys, stored_keys)
    rows = _rows_of(table.column(GROUP_KEY).combine_chunks(), stored_keys)
    shown = np.append(addresses, NO_ADDRESS)[rows]
    order = np.argsort(shown, kind="stable")
    deferred = view.with_deferred_sync()
    batches = table.take(pa.array(order)).to_batches()
    starts = np.cumsum([0, *(each.num_rows for each in batches)])
    parts = [
        (batch, shown[order[start : start + batch.num_rows]])
        for batch, start in zip(batches, starts, strict=False)
    ]
    fragments = write_replacing(deferred, parts) if parts else ()
    replaced = addresses[found_rows[found_rows >= 0]]
    return _publish(view, deferred, WrittenRows(fragments, replaced), options)


def _rows_of(keys: pa.Array, stored: pa.Array) -> Int64s:
    """Return the index of each key among the stored ones, or -1."""
    found: Int64s = pc.fill_null(pc.index_in(keys, stored), -1).to_numpy().astype(np.int64)
    return found


def _parts(addresses: Sequence[UInt64s], rows: int) -> Iterator[UInt64s]:
    """Yield slices of addresses, at least one."""
    together = np.concatenate([np.empty(0, np.uint64), *addresses])
    for start in range(0, max(len(together), 1), rows):
        yield together[start : start + rows]


def _publish(
    view: Snapshot, deferred: Snapshot, written: WrittenRows, options: CommitOptions
) -> Snapshot:
    """Publish written rows; files of `deferred`, the same view, are flushed before the commit."""
    options = replace(options, sync=deferred.location.store.flush)
    if not len(written.replaced):
        if not written.fragments:
            return _record(view, options)
        return publish(view, Append(written.fragments), options)
    affected = rows_by_fragment(written.replaced)
    removal = write_deletions(deferred, affected)
    operation = Update(
        removed_fragment_ids=removal.removed,
        updated_fragments=removal.updated,
        new_fragments=written.fragments,
        fields_for_preserving_bitmap=tuple(int(each.id) for each in view.schema.walk()),
        mode=UpdateMode.REWRITE_ROWS,
    )
    return publish(view, operation, replace(options, affected=affected))


def _record(view: Snapshot, options: CommitOptions) -> Snapshot:
    """Record the source version; no row changed."""
    assert options.watermark is not None
    entry = {options.watermark.key: str(options.watermark.number)}
    return publish(view, UpdateConfig(config=UpdateMap(entry)), options)
