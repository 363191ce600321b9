"""What tasks of a long backfill have done, kept as small objects in a folder of any store.

    <folder>/<job>/12.json     fragment 12: the files it had, and the file that was written for it

A task leaves its note as soon as a file is written, wherever it runs. A job that is killed and
started again finds the notes and goes on with the other fragments; notes of a fragment that has
other files by now, or whose file is gone, are not used. A job is known by what it computes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import field

from lancelet.errors import ObjectNotFoundError
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.fragment_json import data_file_from_json, data_file_to_json
from lancelet.format.paths import DATA
from lancelet.io import Store, open_folder
from lancelet.values import dataclass


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
