"""Run a column plan: write a file for every fragment, and add them in one commit.

    version read    fragments             written
    5               0, 1                  files for 0 and 1; the commit conflicts with an append
    6               0, 1, 2               a file for 2; the commit succeeds

A file can be reused while the other files of its fragment are unchanged. Concurrent deletions do
not matter, since files include deleted rows. The files of a failed commit are deleted, except for
those in a checkpoint.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Final

from lancelet.change.columns.column_file import write_column_file
from lancelet.change.columns.plan import ColumnPlan
from lancelet.change.columns.rows import expand
from lancelet.change.dry_run import ChangeReport, DryRun
from lancelet.change.progress import counted
from lancelet.change.publish import CommitProperties, Retries, publish, with_retries
from lancelet.errors import CommitConflictError, CommitContentionError, StorageError
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_json import data_file_from_json, data_file_to_json
from lancelet.format.operation import Merge
from lancelet.format.paths import DATA, blob_folder
from lancelet.format.schema import Schema
from lancelet.io.store import Store
from lancelet.scan.nodes.source import waits_for_storage
from lancelet.table.apply.state import column_ids, with_column_file, without_unknown_files
from lancelet.table.commit import CommitOptions, check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_TINY_BYTES: Final = 256 * 1024
_CONCURRENT_FRAGMENTS: Final = 4
_CONCURRENT_FRAGMENTS_REMOTE: Final = 16
"""The number of concurrent fragments; each needs memory for a few batches."""

Planner = Callable[[Snapshot], ColumnPlan]


@dataclass(frozen=True, slots=True)
class Committing:
    """The commit options and description of a change."""

    retries: Retries = field(default_factory=Retries)
    options: CommitOptions = field(default_factory=CommitOptions)
    properties: CommitProperties = field(default_factory=CommitProperties)


@dataclass(frozen=True, slots=True)
class Written:
    """A file, with the state of the fragment that it was written for."""

    fragment: Fragment
    file: DataFile

    def serves(self, fragment: Fragment) -> bool:
        """Return whether the file can be added to the current fragment."""
        return self.fragment.files == fragment.files


class ColumnJob:
    """The files that a change of columns has written in all commit attempts."""

    def __init__(self, store: Store, planner: Planner) -> None:
        """Create a job; `planner` is called with the latest version in each attempt."""
        self._store = store
        self._lazy = store.with_deferred_sync()
        self._planner = planner
        self._schema: Schema | None = None
        self._plan: ColumnPlan | None = None
        self._written: dict[int, Written] = {}

    def commit(self, snapshot: Snapshot, committing: Committing) -> Snapshot:
        """Write the files and commit them, retrying after conflicts."""
        options = replace(committing.options, sync=self._lazy.flush)
        try:
            published = with_retries(
                snapshot,
                lambda current: publish(
                    current, self.operation(current), options, committing.properties
                ),
                committing.retries,
                can_redo=self._can_redo,
            )
        except (CommitConflictError, CommitContentionError):
            # After these errors nothing was published; after others the commit may have succeeded.
            self._discard(self._written)
            raise
        if self._plan is not None and self._plan.checkpoint is not None:
            self._plan.checkpoint.cleanup()
        return published

    def operation(self, snapshot: Snapshot) -> Merge:
        """Write the missing files, and return the operation that adds all of them."""
        plan = self._planned(snapshot)
        fragments = list(snapshot.fragments)
        self._complete(plan, snapshot, fragments)
        remaining = column_ids(plan.schema)
        changed = (without_unknown_files(self._changed(each), remaining) for each in fragments)
        return Merge(tuple(changed), plan.schema, plan.keeps_nullability)

    def one_fragment(self, snapshot: Snapshot, fragment: Fragment) -> tuple[Fragment, Schema]:
        """Write the file of one fragment; return the fragment and schema to commit."""
        check_table_exists(snapshot)
        plan = self._planned(snapshot)
        self._complete(plan, snapshot, [fragment])
        self._lazy.flush()
        return self._changed(fragment), plan.schema

    def _changed(self, fragment: Fragment) -> Fragment:
        written = self._written.get(fragment.id)
        return fragment if written is None else with_column_file(fragment, written.file)

    def _planned(self, snapshot: Snapshot) -> ColumnPlan:
        plan = self._plan
        if plan is None or self._schema != snapshot.schema:
            plan = self._planner(snapshot)
            if self._plan is not None and plan.stored != self._plan.stored:
                self._discard(self._written)
            self._plan, self._schema = plan, snapshot.schema
        return plan

    def _can_redo(self, latest: Snapshot) -> bool:
        if self._plan is None or self._plan.is_repeatable:
            return True
        same = self._schema == latest.schema
        return same and all(self._serves(fragment) for fragment in latest.fragments)

    def _serves(self, fragment: Fragment) -> bool:
        written = self._written.get(fragment.id)
        return written is not None and written.serves(fragment)

    def _complete(self, plan: ColumnPlan, snapshot: Snapshot, fragments: list[Fragment]) -> None:
        """Write the missing files of fragments; delete them on failure."""
        missing = [fragment for fragment in fragments if not self._serves(fragment)]
        if plan.checkpoint is None:  # checkpoints must only list flushed files
            snapshot = snapshot.with_location(replace(snapshot.location, store=self._lazy))
        try:
            if plan.stored.fields:
                self._write(plan, snapshot, missing)
            plan.check_ended()
        except BaseException:
            self._discard(self._written)
            raise

    def _write(self, plan: ColumnPlan, snapshot: Snapshot, fragments: list[Fragment]) -> None:
        outdated = {each.id for each in fragments} & self._written.keys()
        self._discard({fragment_id: self._written[fragment_id] for fragment_id in outdated})
        task = partial(self._write_fragment, plan, snapshot)
        waits = waits_for_storage(snapshot)
        if plan.is_sequential or (not waits and all(map(_is_tiny, fragments))):
            for fragment in counted("write columns", fragments, len(fragments)):
                task(fragment)
            return
        # Finishing a file waits for I/O, which overlaps with the work on other fragments.
        window = _CONCURRENT_FRAGMENTS_REMOTE if waits else _CONCURRENT_FRAGMENTS
        written = map_ordered(task, fragments, waits=True, window=window)
        for _ in counted("write columns", written, len(fragments)):
            pass

    def _write_fragment(self, plan: ColumnPlan, snapshot: Snapshot, fragment: Fragment) -> None:
        if not snapshot.live_rows(fragment):
            return
        file = _checkpointed_file(plan, snapshot, fragment)
        if file is None:
            values = expand(
                snapshot, fragment, plan.stored, plan.guides, plan.values(snapshot, fragment)
            )
            file = write_column_file(snapshot, fragment, plan.stored, values)
            if plan.checkpoint is not None:
                plan.checkpoint.insert_fragment(fragment.id, _entry(fragment, file))
        self._written[fragment.id] = Written(fragment, file)

    def _discard(self, written: Mapping[int, Written]) -> None:
        """Delete unused files, ignoring storage errors."""
        if self._plan is not None and self._plan.checkpoint is not None:
            return
        for fragment_id, each in list(written.items()):
            with contextlib.suppress(StorageError):
                self._store.delete(f"{DATA}/{each.file.path}")
            with contextlib.suppress(StorageError):
                self._store.delete_folder(blob_folder(f"{DATA}/{each.file.path}"))
            del self._written[fragment_id]


def _is_tiny(fragment: Fragment) -> bool:
    """Return whether reading a fragment is cheaper than starting a thread."""
    return sum(file.size_bytes or _TINY_BYTES for file in fragment.files) < _TINY_BYTES


def report_merge(snapshot: Snapshot, planner: Planner) -> ChangeReport:
    """Return the effect of a plan, using a store that discards writes."""
    dry_run = DryRun.of(snapshot)
    job = ColumnJob(dry_run.snapshot.location.store, planner)
    operation = job.operation(dry_run.snapshot)
    return dry_run.report(operation, snapshot.num_rows)


def _entry(fragment: Fragment, file: DataFile) -> str:
    """Return the checkpoint entry of a fragment: its files and the new file."""
    files = [data_file_to_json(each) for each in fragment.files]
    return json.dumps({"files": files, "new": data_file_to_json(file)})


def _checkpointed_file(plan: ColumnPlan, snapshot: Snapshot, fragment: Fragment) -> DataFile | None:
    """Return the file in the checkpoint for a fragment, if it can be reused."""
    saved = None if plan.checkpoint is None else plan.checkpoint.get_fragment(fragment.id)
    if saved is None:
        return None
    entry = json.loads(saved)
    file = data_file_from_json(entry["new"])
    is_same = entry["files"] == [data_file_to_json(each) for each in fragment.files]
    if not is_same or not set(file.fields) <= {field.id for field in plan.stored.walk()}:
        return None
    return file if snapshot.location.store.exists(f"{DATA}/{file.path}") else None
