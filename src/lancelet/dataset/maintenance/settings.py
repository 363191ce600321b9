"""Methods for table settings: config, metadata, base paths, storage options."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lancelet import change, upkeep
from lancelet.arguments import edits, mapping, texts
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews
from lancelet.dataset.file.session import LanceFileSession
from lancelet.format.base_paths import BasePath
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.dataset.handle import Handle


class StorageMethods:
    """Methods that list files and storage options."""

    _handle: Handle

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """The storage options that the dataset was opened with."""
        options = self._handle.options.storage_options
        return None if options is None else dict(options)

    def latest_storage_options(self) -> dict[str, str] | None:
        """Return the current storage options.

        Returns:
            The storage options, or None.

        Example:
            ```python
            dataset.latest_storage_options()
            ```
        """
        return self.initial_storage_options

    @property
    def storage_options_accessor(self) -> None:
        """None: storage options of namespaces are refreshed internally."""
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
            upkeep.list_files.FILES_SCHEMA, upkeep.list_files.stored_files(self._handle.location)
        )

    def tracked_files(
        self,
        *,
        min_version: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> pa.RecordBatchReader:
        """Return the files referenced by versions.

        Args:
            min_version: The first version to include.
            progress: Called with the number of completed versions and the total.

        Returns:
            A stream of versions and files.

        Example:
            ```python
            dataset.tracked_files().read_all()
            ```
        """
        batches = upkeep.list_files.tracked_files(
            self._handle.location, min_version=min_version, progress=progress
        )
        return pa.RecordBatchReader.from_batches(upkeep.list_files.TRACKED_SCHEMA, batches)


@dataclass(frozen=True)
class DatasetBasePath:
    """A folder outside of the dataset that contains data files.

    Attributes:
        path: The path or URI; registration makes local paths absolute.
        name: The name for `target_bases`.
        is_dataset_root: Whether the data files are in a `data` subfolder.
        id: The id within the dataset; assigned by the commit if it is 0 or None.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None

    def __post_init__(self) -> None:
        """Convert paths to text."""
        object.__setattr__(self, "path", os.fspath(self.path))
        object.__setattr__(self, "id", self.id or 0)


class BaseMethods:
    """Methods that list and register base paths."""

    _handle: Handle

    def base_paths(self) -> dict[int, DatasetBasePath]:
        """Return the base paths of the dataset, by id.

        Returns:
            The `DatasetBasePath` of each id; empty if the dataset has no base paths.

        Example:
            ```python
            dataset.base_paths()  # {}
            ```
        """
        bases = self._handle.snapshot.manifest.bases
        return {base_id: base_to_user(base) for base_id, base in bases.items()}

    def add_bases(
        self,
        new_bases: Sequence[DatasetBasePath],
        transaction_properties: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> Any:
        """Register base paths: other folders or buckets for data files.

        Args:
            new_bases: The bases; the commit assigns missing ids.
            transaction_properties: Properties to record with the transaction.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            AlreadyExistsError: If the name already exists.

        Example:
            ```python
            dataset.add_bases([lance.DatasetBasePath("memory://cold", "cold")])
            dataset.base_paths()
            ```
        """
        properties = change.publish.CommitProperties(properties=dict(transaction_properties or {}))
        bases = bases_from_user(new_bases)
        report = self._handle.change(
            lambda now: change.bases.add_bases(now, bases, properties), dry_run=dry_run
        )
        return self if report is None else report

    def update_base_paths(
        self,
        paths: Mapping[int | str, str | os.PathLike[str]],
        transaction_properties: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> Any:
        """Change the locations of base paths after their files were moved.

        Move the files first; no process may write to the old locations.

        Args:
            paths: The new path of each moved base, by id, name or old path.
            transaction_properties: Properties to record with the transaction.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If no base has the id, name or path.

        Example:
            ```python
            dataset.add_bases([lance.DatasetBasePath("memory://cold", "cold")])
            dataset.update_base_paths({"cold": "memory://colder"})
            ```
        """
        properties = change.publish.CommitProperties(properties=dict(transaction_properties or {}))
        moved = {key: os.fspath(path) for key, path in paths.items()}
        report = self._handle.change(
            lambda now: change.bases.update_base_paths(now, moved, properties), dry_run=dry_run
        )
        return self if report is None else report


def base_to_user(base: BasePath) -> DatasetBasePath:
    """Convert a base path to the public API."""
    return DatasetBasePath(base.path, base.name, base.is_dataset_root, base.id)


def bases_from_user(bases: Sequence[DatasetBasePath] | None) -> tuple[BasePath, ...]:
    """Convert public base paths to their stored form."""
    return tuple(
        BasePath(
            base.id or 0, change.bases.absolute_path(base.path), base.is_dataset_root, base.name
        )
        for base in bases or ()
    )


Values = Mapping[str, "str | None"]


class SettingsMethods:
    """Methods that read and change the config and metadata of a table."""

    _handle: Handle

    def config(self) -> dict[str, str]:
        """Return the config of the table.

        Returns:
            The values by key.

        Example:
            ```python
            dataset.config()
            ```
        """
        return dict(self._handle.snapshot.manifest.config)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the table."""
        return dict(self._handle.snapshot.manifest.table_metadata)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """The metadata of the schema."""
        return dict(self._handle.snapshot.schema.metadata)

    @previews
    @checks_types
    def update_config(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the config of the table.

        Args:
            values: New values by key; None removes a key.
            replace: Whether to remove all other keys.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The new config; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.update_config({"lance.compaction.num_threads": "4"})
            ```
        """
        values = edits("values", values)
        report = self._handle.change(
            lambda current: change.settings.update_config(current, values, replace=replace),
            dry_run=dry_run,
        )
        return self.config() if report is None else report

    def delete_config_keys(
        self, keys: Sequence[str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Remove keys from the config.

        Args:
            keys: The keys.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.update_config({"owner": "ann"})
            dataset.delete_config_keys(["owner"])
            ```
        """
        values = dict.fromkeys(texts("keys", keys))
        return self._handle.change(
            lambda current: change.settings.update_config(current, values),
            dry_run=dry_run,
        )

    @previews
    @checks_types
    def update_metadata(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the metadata of the table.

        Args:
            values: New values by key; None removes a key.
            replace: Whether to remove all other keys.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The new metadata; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.update_metadata({"owner": "ann"})  # {"owner": "ann"}
            ```
        """
        values = edits("values", values)
        report = self._handle.change(
            lambda current: change.settings.update_table_metadata(current, values, replace=replace),
            dry_run=dry_run,
        )
        return self.metadata if report is None else report

    @previews
    @checks_types
    def update_schema_metadata(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the metadata of the schema.

        Args:
            values: New values by key; None removes a key.
            replace: Whether to remove all other keys.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The new metadata; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.update_schema_metadata({"source": "import"})
            ```
        """
        values = edits("values", values)
        report = self._handle.change(
            lambda current: change.settings.update_schema_metadata(
                current, values, replace=replace
            ),
            dry_run=dry_run,
        )
        return self.schema_metadata if report is None else report

    @checks_types
    def update_field_metadata(
        self,
        field_updates: Mapping[str, Values],
        *,
        replace: bool = False,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Change the metadata of fields.

        Args:
            field_updates: New values by key, by field path; None removes a key.
            replace: Whether to remove all other keys.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.update_field_metadata({"price": {"unit": "EUR"}})
            ```
        """
        of_fields = mapping("field_updates", field_updates)
        updates = {path: edits("field_updates", values) for path, values in of_fields.items()}
        return self._handle.change(
            lambda current: change.settings.update_field_metadata(
                current, updates, replace=replace
            ),
            dry_run=dry_run,
        )

    def replace_schema_metadata(
        self, new_metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Deprecated: use `update_schema_metadata` with `replace=True`.

        Args:
            new_metadata: The new metadata.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.
        """
        warnings.warn(
            "replace_schema_metadata is deprecated. "
            "Use update_schema_metadata(metadata, replace=True) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        values = edits("new_metadata", new_metadata)
        return self._handle.change(
            lambda current: change.settings.update_schema_metadata(current, values, replace=True),
            dry_run=dry_run,
        )

    @checks_types
    def replace_field_metadata(
        self, field_name: str, new_metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Deprecated: use `update_field_metadata` with `replace=True`.

        Args:
            field_name: The path of the field.
            new_metadata: The new metadata.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.
        """
        warnings.warn(
            "replace_field_metadata is deprecated. "
            "Use update_field_metadata with field paths and replace=True instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        updates = {field_name: new_metadata}
        return self.update_field_metadata(updates, replace=True, dry_run=dry_run)
