"""Backfilling columns in tasks: files beside those of each fragment, and one commit for all.

    plan     fragments without a file yet, in parts of about the same size
    tasks    a file with the new columns for each fragment; a note in the checkpoint
    commit   every fragment with its new file; where others added fragments first, those too

A job that died is started again with the same checkpoint and does only what was not done.

What tasks of a long backfill have done, kept as small objects in a folder of any store.

    <folder>/<job>/12.json     fragment 12: the files it had, and the file that was written for it

A task leaves its note as soon as a file is written, wherever it runs. A job that is killed and
started again finds the notes and goes on with the other fragments; notes of a fragment that has
other files by now, or whose file is gone, are not used. A job is known by what it computes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import field
from functools import partial

from lancelet.errors import ObjectNotFoundError
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_json import data_file_from_json, data_file_to_json
from lancelet.format.operation import Merge
from lancelet.format.paths import DATA
from lancelet.io import Store, open_folder
from lancelet.ops.columns.add import add_columns_to_fragment, plan_new_columns
from lancelet.ops.columns.plan import ColumnPlan
from lancelet.ops.columns.sources import NewColumns
from lancelet.ops.jobs.engine import Done, Job
from lancelet.ops.jobs.part import Part, plan_parts
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.publish import Remarks, Retries, publish, with_retries
from lancelet.table.apply.state import with_column_file
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a task wrote for a fragment, and the files that the fragment had then."""

    fragment_id: int
    beside: tuple[DataFile, ...]
    file: DataFile


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """How a backfill is cut into tasks, resumed and committed."""

    checkpoint: FolderCheckpoint | None = None
    bytes_per_task: int | None = None
    retries: Retries = field(default_factory=lambda: Retries(seconds=3600.0))
    remarks: Remarks = field(default_factory=Remarks)


def add_columns(
    job: Job, table: TableRef, source: NewColumns, options: BackfillOptions | None = None
) -> Snapshot:
    """Add columns to every row there is when it is committed."""
    chosen = options or BackfillOptions()
    written: dict[int, NewFile] = {}
    run = partial(backfill, source, chosen.checkpoint)

    def attempt(snapshot: Snapshot) -> Snapshot:
        plan = plan_new_columns(snapshot, source)
        missing = [
            int(fragment.id)
            for fragment in snapshot.fragments
            if plan.stored.fields and not _serves(written.get(int(fragment.id)), fragment)
        ]
        parts = plan_parts(table, snapshot, fragments=missing, bytes_per_task=chosen.bytes_per_task)
        for files in job.run("backfill", run, parts):
            written.update({each.fragment_id: each for each in files})
        return publish_columns(snapshot, plan, written, chosen.remarks)

    published = with_retries(table.at(None).open(), attempt, chosen.retries)
    if chosen.checkpoint is not None:
        chosen.checkpoint.forget()
    return published


def publish_columns(
    snapshot: Snapshot, plan: ColumnPlan, written: Mapping[int, NewFile], remarks: Remarks
) -> Snapshot:
    """Publish fragments with the new files of them; those without one have nulls."""
    fragments = tuple(_with_file(fragment, written) for fragment in snapshot.fragments)
    operation = Merge(fragments, plan.schema, plan.keeps_nullability)
    # An earlier attempt or run may have written some of the files.
    return publish(snapshot, operation, CommitOptions(checks_files=True), remarks)


def backfill(
    source: NewColumns, checkpoint: FolderCheckpoint | None, part: Part
) -> Done[tuple[NewFile, ...]]:
    """Write the new columns of the fragments of a part, but for those that were noted as done."""
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
                checkpoint.keep(fragment, file)
        done.append(NewFile(number, fragment.files, file))
    return Done(tuple(done), rows)


def _serves(found: NewFile | None, fragment: Fragment) -> bool:
    return found is not None and found.beside == fragment.files


def _with_file(fragment: Fragment, written: Mapping[int, NewFile]) -> Fragment:
    found = written.get(int(fragment.id))
    return fragment if found is None else with_column_file(fragment, found.file)


@dataclass(frozen=True, slots=True)
class FolderCheckpoint:
    """The notes of one job."""

    uri: str
    options: tuple[tuple[str, str], ...] = field(repr=False)
    job: str

    @staticmethod
    def of(uri: str, options: tuple[tuple[str, str], ...], what: str) -> FolderCheckpoint:
        """Return the notes of a job that is described by a text."""
        return FolderCheckpoint(uri, options, hashlib.sha256(what.encode()).hexdigest()[:32])

    def find(self, table: Store, fragment: Fragment, fields: Collection[int]) -> DataFile | None:
        """Return the file that was written for a fragment, if it still serves."""
        try:
            note = json.loads(self._folder().read(self._path(fragment)))
        except ObjectNotFoundError:
            return None
        file = data_file_from_json(note["new"])
        is_same = note["files"] == [data_file_to_json(each) for each in fragment.files]
        if not is_same or not set(file.fields) <= set(fields):
            return None
        return file if table.exists(f"{DATA}/{file.path}") else None

    def keep(self, fragment: Fragment, file: DataFile) -> None:
        """Note that a file was written for a fragment."""
        files = [data_file_to_json(each) for each in fragment.files]
        note = {"files": files, "new": data_file_to_json(file)}
        self._folder().put(self._path(fragment), json.dumps(note).encode())

    def forget(self) -> None:
        """Delete the notes; the job is done."""
        self._folder().delete_folder(self.job)

    def _folder(self) -> Store:
        return open_folder(self.uri, dict(self.options))

    def _path(self, fragment: Fragment) -> str:
        return f"{self.job}/{fragment.id}.json"
