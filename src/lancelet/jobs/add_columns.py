"""Backfill columns in distributed tasks: one new data file per fragment, and one commit.

    plan     fragments without a new file, in parts of about the same size
    tasks    a file with the new columns for each fragment; an entry in the checkpoint
    commit   all fragments with their new files, including fragments added concurrently

A job that is restarted with the same checkpoint skips completed fragments. A checkpoint is a folder
of small objects in any store:

    <folder>/<job>/12.json     fragment 12: its files, and the file that was written for it

A task writes an entry after each file. Entries are ignored if the files of the fragment have
changed, or if the written file no longer exists. A job is identified by its description.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import partial

from lancelet.change.columns.add import add_columns_to_fragment, plan_new_columns
from lancelet.change.columns.computed import adding_columns
from lancelet.change.columns.plan import ColumnPlan
from lancelet.change.columns.sources import NewColumns
from lancelet.change.publish import CommitProperties, Retries, publish, with_retries
from lancelet.errors import ObjectNotFoundError
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_json import data_file_from_json, data_file_to_json
from lancelet.format.operation import Merge
from lancelet.format.paths import DATA
from lancelet.io import Store, open_folder
from lancelet.jobs.engine import Done, Job
from lancelet.jobs.part import Part, plan_parts
from lancelet.jobs.table_ref import TableRef
from lancelet.table.apply.state import with_column_file
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a task wrote for a fragment, and the files that the fragment had."""

    fragment_id: int
    existing_files: tuple[DataFile, ...]
    file: DataFile


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """The options for tasks, checkpoints and the commit of a backfill."""

    checkpoint: FolderCheckpoint | None = None
    bytes_per_task: int | None = None
    retries: Retries = field(default_factory=lambda: Retries(seconds=3600.0))
    properties: CommitProperties = field(default_factory=CommitProperties)


def add_columns(
    job: Job, table: TableRef, source: NewColumns, options: BackfillOptions | None = None
) -> Snapshot:
    """Add columns to all rows of the table."""
    chosen = options or BackfillOptions()
    written: dict[int, NewFile] = {}
    run = partial(backfill, source, chosen.checkpoint)

    def attempt(snapshot: Snapshot) -> Snapshot:
        plan = plan_new_columns(snapshot, source)
        adding_columns(snapshot, CommitOptions(), source)  # raises before anything is computed
        missing = [
            int(fragment.id)
            for fragment in snapshot.fragments
            if plan.stored.fields and not _is_valid_for(written.get(int(fragment.id)), fragment)
        ]
        parts = plan_parts(table, snapshot, fragments=missing, bytes_per_task=chosen.bytes_per_task)
        for files in job.run("backfill", run, parts):
            written.update({new_file.fragment_id: new_file for new_file in files})
        return publish_columns(snapshot, plan, written, chosen.properties, source)

    published = with_retries(table.at(None).open(), attempt, chosen.retries)
    if chosen.checkpoint is not None:
        chosen.checkpoint.clear()
    return published


def publish_columns(
    snapshot: Snapshot,
    plan: ColumnPlan,
    written: Mapping[int, NewFile],
    properties: CommitProperties,
    source: NewColumns | None = None,
) -> Snapshot:
    """Commit fragments with their new files; fragments without one have nulls."""
    fragments = tuple(_with_file(fragment, written) for fragment in snapshot.fragments)
    operation = Merge(fragments, plan.schema, plan.keeps_nullability)
    # An earlier attempt or run may have written some of the files, and cleanup may have deleted
    # them.
    options = adding_columns(snapshot, CommitOptions(checks_files=True), source)
    return publish(snapshot, operation, options, properties)


def backfill(
    source: NewColumns, checkpoint: FolderCheckpoint | None, part: Part
) -> Done[tuple[NewFile, ...]]:
    """Write the new columns of the fragments of a part, skipping those in the checkpoint."""
    snapshot = part.table.open()
    fields = [int(node.id) for node in plan_new_columns(snapshot, source).stored.walk()]
    done: list[NewFile] = []
    rows = 0
    for number in part.fragments:
        fragment = snapshot.fragments.by_id(number)
        file = None
        if checkpoint is not None:
            file = checkpoint.find(snapshot.location.store, fragment, fields)
        if file is None:
            changed, _ = add_columns_to_fragment(snapshot, fragment, source)
            file = changed.files[-1]
            rows += snapshot.live_rows(fragment)
            if checkpoint is not None:
                checkpoint.store_entry(fragment, file)
        done.append(NewFile(number, fragment.files, file))
    return Done(tuple(done), rows)


def _is_valid_for(new_file: NewFile | None, fragment: Fragment) -> bool:
    return new_file is not None and new_file.existing_files == fragment.files


def _with_file(fragment: Fragment, written: Mapping[int, NewFile]) -> Fragment:
    new_file = written.get(int(fragment.id))
    return fragment if new_file is None else with_column_file(fragment, new_file.file)


@dataclass(frozen=True, slots=True)
class FolderCheckpoint:
    """The checkpoint of one job."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    job: str

    @staticmethod
    def of(uri: str, options: tuple[tuple[str, str], ...], description: str) -> FolderCheckpoint:
        """Return the checkpoint of a job with a description."""
        return FolderCheckpoint(uri, options, hashlib.sha256(description.encode()).hexdigest()[:32])

    def find(self, table: Store, fragment: Fragment, fields: Collection[int]) -> DataFile | None:
        """Return the file written for a fragment, if it is still valid."""
        try:
            entry = json.loads(self._folder().read(self._path(fragment)))
        except ObjectNotFoundError:
            return None
        file = data_file_from_json(entry["new"])
        is_same = entry["files"] == [data_file_to_json(existing) for existing in fragment.files]
        if not is_same or not set(file.fields) <= set(fields):
            return None
        return file if table.exists(f"{DATA}/{file.path}") else None

    def store_entry(self, fragment: Fragment, file: DataFile) -> None:
        """Record the file written for a fragment."""
        files = [data_file_to_json(existing) for existing in fragment.files]
        entry = {"files": files, "new": data_file_to_json(file)}
        self._folder().put(self._path(fragment), json.dumps(entry).encode())

    def clear(self) -> None:
        """Delete the checkpoint of a completed job."""
        self._folder().delete_folder(self.job)

    def _folder(self) -> Store:
        return open_folder(self.uri, dict(self.options))

    def _path(self, fragment: Fragment) -> str:
        return f"{self.job}/{fragment.id}.json"
