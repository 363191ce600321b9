"""The methods of a dataset that read and change config and metadata."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lancelet.errors import UnsupportedError
from lancelet.file.arguments import mapping
from lancelet.ops import settings

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle


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

    def update_config(
        self, values: Mapping[str, str | None], *, replace: bool = False
    ) -> dict[str, str]:
        """Change the config; None takes a key away, and `replace` all that are not given."""
        mapping("values", values)
        handle = self._handle
        handle.snapshot = settings.update_config(handle.snapshot, values, replace=replace)
        return self.config()

    def delete_config_keys(self, keys: Sequence[str]) -> None:
        """Take keys of the config away."""
        self.update_config(dict.fromkeys(keys))

    def update_metadata(
        self, values: Mapping[str, str | None], *, replace: bool = False
    ) -> dict[str, str]:
        """Change the metadata of the table; see `update_config`."""
        mapping("values", values)
        handle = self._handle
        handle.snapshot = settings.update_table_metadata(handle.snapshot, values, replace=replace)
        return self.metadata

    def update_schema_metadata(
        self, values: Mapping[str, str | None], *, replace: bool = False
    ) -> dict[str, str]:
        """Change the metadata of the schema; see `update_config`."""
        mapping("values", values)
        handle = self._handle
        handle.snapshot = settings.update_schema_metadata(handle.snapshot, values, replace=replace)
        return self.schema_metadata

    def update_field_metadata(
        self, field_updates: Mapping[str, Mapping[str, str | None]], *, replace: bool = False
    ) -> None:
        """Change the metadata of fields, given by their paths; see `update_config`."""
        handle = self._handle
        handle.snapshot = settings.update_field_metadata(
            handle.snapshot, field_updates, replace=replace
        )

    def replace_schema(self, schema: pa.Schema) -> None:
        """Refuse: fields change by adding, altering and dropping columns."""
        raise UnsupportedError(
            "the schema of a dataset cannot be replaced as a whole; use add_columns, "
            "alter_columns, drop_columns, or the methods for metadata",
            fields=schema.names[:100],
        )

    def replace_schema_metadata(self, new_metadata: Mapping[str, str]) -> None:
        """Set the metadata of the schema."""
        warnings.warn(
            "replace_schema_metadata is deprecated. "
            "Use update_schema_metadata(metadata, replace=True) instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.update_schema_metadata(new_metadata, replace=True)

    def replace_field_metadata(self, field_name: str, new_metadata: Mapping[str, str]) -> None:
        """Set the metadata of a field."""
        warnings.warn(
            "replace_field_metadata is deprecated. "
            "Use update_field_metadata with field paths and replace=True instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        self.update_field_metadata({field_name: new_metadata}, replace=True)
