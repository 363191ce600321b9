"""Carrying out a plan: files for every fragment, then one commit that adds them all.

    read version 5   fragments 0, 1       files for 0 and 1
    6                others appended 2    the commit is refused
    again from 6     fragments 0, 1, 2    a file for 2 alone

A file serves as long as its fragment has the same files otherwise; that rows were deleted
meanwhile does not matter, as every file has the deleted rows too. What was written for a commit
that is given up is deleted again, unless a checkpoint is to find it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Final

from lancelet.errors import CommitConflictError, CommitContentionError, StorageError
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_json import data_file_from_json, data_file_to_json
from lancelet.format.operation import Merge
from lancelet.format.paths import DATA, blob_folder
from lancelet.format.schema import Schema
from lancelet.io.store import Store
from lancelet.ops.columns.column_file import write_column_file
from lancelet.ops.columns.plan import ColumnPlan
from lancelet.ops.columns.rows import spread
from lancelet.ops.dry_run import ChangeReport, DryRun
from lancelet.ops.progress import counted
from lancelet.ops.publish import CommitProperties, Retries, publish, with_retries
from lancelet.query.nodes.source import waits_for_storage
from lancelet.table.apply.state import column_ids, with_column_file, without_unknown_files
from lancelet.table.commit import CommitOptions, check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_TINY_BYTES: Final = 256 * 1024
_AT_ONCE: Final = 4
_AT_ONCE_REMOTE: Final = 16
"""Fragments that are worked on at a time; each needs the memory of a few batches."""

Planner = Callable[[Snapshot], ColumnPlan]


@dataclass(frozen=True, slots=True)
class Committing:
    """How a change is committed, and what is said of it."""

    retries: Retries = field(default_factory=Retries)
    options: CommitOptions = field(default_factory=CommitOptions)
    remarks: CommitProperties = field(default_factory=CommitProperties)


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written for a fragment as it was then."""

    fragment: Fragment
    file: DataFile

    def serves(self, fragment: Fragment) -> bool:
        """Whether the file fits the fragment as it is now."""
        return self.fragment.files == fragment.files


class ColumnJob:
    """The files that one change of columns has written so far, over all its attempts."""

    def __init__(self, store: Store, planner: Planner) -> None:
        """Do what `planner` says for the version that is the latest then."""
        self._store = store
        self._lazy = store.with_deferred_sync()
        self._planner = planner
        self._schema: Schema | None = None
        self._plan: ColumnPlan | None = None
        self._written: dict[int, Written] = {}

    def commit(self, snapshot: Snapshot, committing: Committing) -> Snapshot:
        """Write the files and commit them, again where others were first."""
        options = replace(committing.options, sync=self._lazy.flush)
        try:
            published = with_retries(
                snapshot,
                lambda current: publish(
                    current, self.operation(current), options, committing.remarks
                ),
                committing.retries,
                can_redo=self._can_redo,
            )
        except (CommitConflictError, CommitContentionError):
            # These say that nothing was published. After other errors something may have been.
            self._discard(self._written)
            raise
        if self._plan is not None and self._plan.checkpoint is not None:
            self._plan.checkpoint.cleanup()
        return published

    def operation(self, snapshot: Snapshot) -> Merge:
        """Write the files that a version lacks, and return what adds them to it."""
        plan = self._planned(snapshot)
        fragments = list(snapshot.fragments)
        self._complete(plan, snapshot, fragments)
        remaining = column_ids(plan.schema)
        changed = (without_unknown_files(self._changed(each), remaining) for each in fragments)
        return Merge(tuple(changed), plan.schema, plan.keeps_nullability)

    def one_fragment(self, snapshot: Snapshot, fragment: Fragment) -> tuple[Fragment, Schema]:
        """Write the file of one fragment, and return it with that and the schema to commit."""
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
        """Write the files that fragments lack; leave none behind if that fails."""
        missing = [fragment for fragment in fragments if not self._serves(fragment)]
        if plan.checkpoint is None:  # which may say that files are there only once they surely are
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
        # Writing a file ends with waiting for the disk or the network, which others can use.
        window = _AT_ONCE_REMOTE if waits else _AT_ONCE
        written = map_ordered(task, fragments, waits=True, window=window)
        for _ in counted("write columns", written, len(fragments)):
            pass

    def _write_fragment(self, plan: ColumnPlan, snapshot: Snapshot, fragment: Fragment) -> None:
        if not snapshot.live_rows(fragment):
            return
        file = _kept_file(plan, snapshot, fragment)
        if file is None:
            values = spread(
                snapshot, fragment, plan.stored, plan.guides, plan.values(snapshot, fragment)
            )
            file = write_column_file(snapshot, fragment, plan.stored, values)
            if plan.checkpoint is not None:
                plan.checkpoint.insert_fragment(fragment.id, _entry(fragment, file))
        self._written[fragment.id] = Written(fragment, file)

    def _discard(self, written: Mapping[int, Written]) -> None:
        """Delete files that no version will have, as far as the store lets us."""
        if self._plan is not None and self._plan.checkpoint is not None:
            return
        for fragment_id, each in list(written.items()):
            with contextlib.suppress(StorageError):
                self._store.delete(f"{DATA}/{each.file.path}")
            with contextlib.suppress(StorageError):
                self._store.delete_folder(blob_folder(f"{DATA}/{each.file.path}"))
            del self._written[fragment_id]


def _is_tiny(fragment: Fragment) -> bool:
    """Say whether handing a fragment to a thread takes longer than reading it."""
    return sum(file.size_bytes or _TINY_BYTES for file in fragment.files) < _TINY_BYTES


def report_merge(snapshot: Snapshot, planner: Planner) -> ChangeReport:
    """Return what a plan would do to a version, having done it without keeping anything."""
    dry_run = DryRun.of(snapshot)
    job = ColumnJob(dry_run.snapshot.location.store, planner)
    operation = job.operation(dry_run.snapshot)
    return dry_run.report(operation, snapshot.num_rows)


def _entry(fragment: Fragment, file: DataFile) -> str:
    """Return what a checkpoint keeps of a fragment: its files, and the new one."""
    files = [data_file_to_json(each) for each in fragment.files]
    return json.dumps({"files": files, "new": data_file_to_json(file)})


def _kept_file(plan: ColumnPlan, snapshot: Snapshot, fragment: Fragment) -> DataFile | None:
    """Return the file that an earlier run wrote for a fragment, if it still serves."""
    kept = None if plan.checkpoint is None else plan.checkpoint.get_fragment(fragment.id)
    if kept is None:
        return None
    entry = json.loads(kept)
    file = data_file_from_json(entry["new"])
    is_same = entry["files"] == [data_file_to_json(each) for each in fragment.files]
    if not is_same or not set(file.fields) <= {field.id for field in plan.stored.walk()}:
        return None
    return file if snapshot.location.store.exists(f"{DATA}/{file.path}") else None
