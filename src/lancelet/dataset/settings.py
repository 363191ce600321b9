"""The methods of a dataset that read and change config and metadata."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
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
        """Return the config of the table."""
        return dict(self._handle.snapshot.manifest.config)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of the table."""
        return dict(self._handle.snapshot.manifest.table_metadata)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """The metadata of the schema."""
        return dict(self._handle.snapshot.schema.metadata)

    @overload
    def update_config(
        self, values: Values, *, replace: bool = False, dry_run: Literal[False] = False
    ) -> dict[str, str]: ...

    @overload
    def update_config(
        self, values: Values, *, replace: bool = False, dry_run: Literal[True]
    ) -> ChangeReport: ...

    @checks_kinds
    def update_config(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the config; None takes a key away, and `replace` all that are not given.

        With `dry_run` nothing changes, and what would change is returned.
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
        """Take keys of the config away."""
        values = dict.fromkeys(texts("keys", keys))
        return self._changed(
            lambda current: ops.settings.update_config(current, values),
            dry_run=dry_run,
        )

    @overload
    def update_metadata(
        self, values: Values, *, replace: bool = False, dry_run: Literal[False] = False
    ) -> dict[str, str]: ...

    @overload
    def update_metadata(
        self, values: Values, *, replace: bool = False, dry_run: Literal[True]
    ) -> ChangeReport: ...

    @checks_kinds
    def update_metadata(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the metadata of the table; see `update_config`."""
        values = edits("values", values)
        report = self._changed(
            lambda current: ops.settings.update_table_metadata(current, values, replace=replace),
            dry_run=dry_run,
        )
        return self.metadata if report is None else report

    @overload
    def update_schema_metadata(
        self, values: Values, *, replace: bool = False, dry_run: Literal[False] = False
    ) -> dict[str, str]: ...

    @overload
    def update_schema_metadata(
        self, values: Values, *, replace: bool = False, dry_run: Literal[True]
    ) -> ChangeReport: ...

    @checks_kinds
    def update_schema_metadata(
        self, values: Values, *, replace: bool = False, dry_run: bool = False
    ) -> dict[str, str] | ChangeReport:
        """Change the metadata of the schema; see `update_config`."""
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
        """Change the metadata of fields, given by their paths; see `update_config`."""
        of_fields = mapping("field_updates", field_updates)
        updates = {path: edits("field_updates", values) for path, values in of_fields.items()}
        return self._changed(
            lambda current: ops.settings.update_field_metadata(current, updates, replace=replace),
            dry_run=dry_run,
        )

    def replace_schema_metadata(
        self, new_metadata: Mapping[str, str], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Set the metadata of the schema."""
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
        """Set the metadata of a field."""
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
