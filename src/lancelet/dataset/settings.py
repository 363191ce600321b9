"""The methods of a dataset that read and change config and metadata."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.signatures import previews
from lancelet.file.arguments import edits, mapping, texts

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle
    from lancelet.ops.dry_run import ChangeReport
    from lancelet.table.snapshot import Snapshot

Values = Mapping[str, "str | None"]


class SettingsMethods:
    """Reads and changes what a table says of itself."""

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
    @checks_kinds
    def update_config(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the config of the table.

        Args:
            values: New values by key; None removes a key.
            replace: Whether to remove all keys that are not given.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            The new config; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.update_config({"lance.compaction.num_threads": "4"})
            ```
        """
        values = edits("values", values)
        report = self._changed(
            lambda current: ops.settings.update_config(current, values, replace=replace),
            dry_run=dry_run,
        )
        return self.config() if report is None else report

    def delete_config_keys(
        self, keys: Sequence[str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Remove keys from the config.

        Args:
            keys: The keys.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.update_config({"owner": "ann"})
            dataset.delete_config_keys(["owner"])
            ```
        """
        values = dict.fromkeys(texts("keys", keys))
        return self._changed(
            lambda current: ops.settings.update_config(current, values),
            dry_run=dry_run,
        )

    @previews
    @checks_kinds
    def update_metadata(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the metadata of the table.

        Args:
            values: New values by key; None removes a key.
            replace: Whether to remove all keys that are not given.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            The new metadata; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.update_metadata({"owner": "ann"})  # {"owner": "ann"}
            ```
        """
        values = edits("values", values)
        report = self._changed(
            lambda current: ops.settings.update_table_metadata(current, values, replace=replace),
            dry_run=dry_run,
        )
        return self.metadata if report is None else report

    @previews
    @checks_kinds
    def update_schema_metadata(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the metadata of the schema.

        Args:
            values: New values by key; None removes a key.
            replace: Whether to remove all keys that are not given.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            The new metadata; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.update_schema_metadata({"source": "import"})
            ```
        """
        values = edits("values", values)
        report = self._changed(
            lambda current: ops.settings.update_schema_metadata(current, values, replace=replace),
            dry_run=dry_run,
        )
        return self.schema_metadata if report is None else report

    @checks_kinds
    def update_field_metadata(
        self,
        field_updates: Mapping[str, Values],
        *,
        replace: bool = False,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Change the metadata of fields.

        Args:
            field_updates: New values by key, by the path of the field; None removes a key.
            replace: Whether to remove all keys that are not given.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If there is no such column.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.update_field_metadata({"price": {"unit": "EUR"}})
            ```
        """
        of_fields = mapping("field_updates", field_updates)
        updates = {path: edits("field_updates", values) for path, values in of_fields.items()}
        return self._changed(
            lambda current: ops.settings.update_field_metadata(current, updates, replace=replace),
            dry_run=dry_run,
        )

    def replace_schema_metadata(
        self, new_metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Deprecated: use `update_schema_metadata` with `replace=True`.

        Args:
            new_metadata: The new metadata.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same thing first.
        """
        warnings.warn(
            "replace_schema_metadata is deprecated. "
            "Use update_schema_metadata(metadata, replace=True) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        values = edits("new_metadata", new_metadata)
        return self._changed(
            lambda current: ops.settings.update_schema_metadata(current, values, replace=True),
            dry_run=dry_run,
        )

    @checks_kinds
    def replace_field_metadata(
        self, field_name: str, new_metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Deprecated: use `update_field_metadata` with `replace=True`.

        Args:
            field_name: The path of the field.
            new_metadata: The new metadata.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If there is no such column.
            CommitConflictError: If a concurrent commit changed the same thing first.
        """
        warnings.warn(
            "replace_field_metadata is deprecated. "
            "Use update_field_metadata with field paths and replace=True instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        updates = {field_name: new_metadata}
        return self.update_field_metadata(updates, replace=True, dry_run=dry_run)

    def _changed(
        self, change: Callable[[Snapshot], Snapshot], *, dry_run: bool
    ) -> ChangeReport | None:
        """Change what the table says of itself and look at that, or say what that would do."""
        handle = self._handle
        if dry_run:
            return ops.dry_run.rehearse(handle.snapshot, change, 0)
        handle.snapshot = change(handle.snapshot)
        return None
