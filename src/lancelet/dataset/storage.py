"""The methods of a dataset that show its files and how they are reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from lancelet import ops
from lancelet.file.session import LanceFileSession

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle


class StorageMethods:
    """Shows files and storage options."""

    _handle: Handle

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """The storage options that the dataset was opened with."""
        options = self._handle.options.storage_options
        return None if options is None else dict(options)

    def latest_storage_options(self) -> dict[str, str] | None:
        """Return the storage options in use.

        Returns:
            The options, or None.

        Example:
            ```python
            dataset.latest_storage_options()
            ```
        """
        return self.initial_storage_options

    @property
    def storage_options_accessor(self) -> None:
        """None: no namespace hands out storage options."""
        return

    def new_file_session(self) -> LanceFileSession:
        """Return a session for data files in the folder of the dataset.

        Returns:
            The session.

        Example:
            ```python
            session = dataset.new_file_session()
            session.list("data")
            ```
        """
        return LanceFileSession(self._handle.location.uri, self.initial_storage_options)

    def all_files(self) -> pa.RecordBatchReader:
        """Return all files in the folder of the dataset, as a stream.

        Returns:
            A stream of paths, sizes and times.

        Example:
            ```python
            dataset.all_files().read_all()["path"]
            ```
        """
        return pa.RecordBatchReader.from_batches(
            ops.list_files.FILES_SCHEMA, ops.list_files.stored_files(self._handle.location)
        )

    def tracked_files(
        self,
        *,
        min_version: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the files that versions refer to.

        Args:
            min_version: The first version.
            progress: Called with the number of versions done and their total.

        Returns:
            A stream of versions and files.

        Example:
            ```python
            dataset.tracked_files().read_all()
            ```
        """
        batches = ops.list_files.tracked_files(
            self._handle.location, min_version=min_version, progress=progress
        )
        return pa.RecordBatchReader.from_batches(ops.list_files.TRACKED_SCHEMA, batches)
