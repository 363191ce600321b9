"""Operations of commits with the API of pylance: `LanceOperation` and its classes.

    LanceOperation.Append(fragments)                        adds rows
    LanceOperation.Delete([changed], [gone], "a = 1")       deletes rows
    LanceOperation.Merge(fragments, schema)                 adds columns

These are plain values for programs; `operation_forms` converts them to the operations of tables
and back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lancelet.dataset.index.values import Index
from lancelet.dataset.maintenance.settings import DatasetBasePath
from lancelet.dataset.write.metadata import DataFile, DataOverlayFile, FragmentMetadata
from lancelet.dataset.write.schema import LanceSchema
from lancelet.errors import InvalidInputError
from lancelet.format.key_filter import KeyFilter
from lancelet.format.operation import Operation


class OperationTypeError(InvalidInputError, TypeError):
    """A field of an operation has the wrong type."""


class LanceOperation:
    """The operations of transactions."""

    class BaseOperation:
        """The base class of operations."""

    @dataclass
    class Overwrite(BaseOperation):
        """Replaces the schema and all rows, or creates a dataset.

        Attributes:
            new_schema: The schema of the fragments.
            fragments: All fragments of the new version.
            initial_bases: Base paths of a new dataset.
        """

        new_schema: LanceSchema | pa.Schema
        fragments: list[FragmentMetadata]
        initial_bases: list[DatasetBasePath] | None = None

        def __post_init__(self) -> None:
            """Check the types."""
            _check_fragments(self.fragments)

    @dataclass
    class Append(BaseOperation):
        """Adds fragments; the commit assigns their ids.

        Attributes:
            fragments: The fragments to add.
        """

        fragments: list[FragmentMetadata]

        def __post_init__(self) -> None:
            """Check the types."""
            _check_fragments(self.fragments)

    @dataclass
    class Delete(BaseOperation):
        """Deletes rows.

        Attributes:
            updated_fragments: Fragments with new deletion files.
            deleted_fragment_ids: The ids of removed fragments.
            predicate: The predicate of the deletion, for information only.
        """

        updated_fragments: list[FragmentMetadata]
        deleted_fragment_ids: list[int]
        predicate: str

        def __post_init__(self) -> None:
            """Check the types."""
            _check_fragments(self.updated_fragments)

    @dataclass
    class Update(BaseOperation):
        """Changes rows.

        Attributes:
            removed_fragment_ids: The ids of removed fragments.
            updated_fragments: Fragments with new data files or deletion files.
            new_fragments: Fragments with moved or new rows.
            fields_modified: The ids of fields that were rewritten in place.
            fields_for_preserving_frag_bitmap: The ids of the updated fields; indices on other
                fields still cover the new fragments.
            update_mode: `rewrite_rows`, the default, or `rewrite_columns`.
            updated_fragment_offsets: The updated row offsets by fragment, as Roaring bitmaps.
        """

        removed_fragment_ids: list[int] = field(default_factory=list)
        updated_fragments: list[FragmentMetadata] = field(default_factory=list)
        new_fragments: list[FragmentMetadata] = field(default_factory=list)
        fields_modified: list[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: list[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: dict[int, bytes] | None = None
        inserted_rows: KeyFilter | None = field(default=None, repr=False, compare=False)
        """The keys inserted by a merge, to detect conflicts; not part of pylance."""

        def __post_init__(self) -> None:
            """Check the types."""
            _check_fragments(self.updated_fragments)
            _check_fragments(self.new_fragments)

    @dataclass
    class Merge(BaseOperation):
        """Adds columns or changes types.

        Attributes:
            fragments: All fragments with their new files.
            schema: The new schema.
            preserves_nullability: Whether the nullability of all fields is unchanged.
        """

        fragments: list[FragmentMetadata]
        schema: LanceSchema | pa.Schema
        preserves_nullability: bool = False

        def __post_init__(self) -> None:
            """Check the types."""
            if isinstance(self.schema, pa.Schema):
                warnings.warn(
                    "Passing a pyarrow.Schema to Merge is deprecated. "
                    "Please use a LanceSchema instead.",
                    DeprecationWarning,
                    stacklevel=3,
                )
            _check_fragments(self.fragments)

    @dataclass
    class Restore(BaseOperation):
        """Restores an older version as the latest.

        Attributes:
            version: The version number.
        """

        version: int

    @dataclass
    class Clone(BaseOperation):
        """Created the table from a version of another table; cannot be committed.

        Attributes:
            is_shallow: Whether the table refers to the files of the source.
            ref_name: The branch of the source; None for the main branch.
            ref_version: The version of the source.
            ref_path: The URI of the source.
            branch_name: The name of the new branch, if the clone is a branch.
        """

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None

    @dataclass
    class RewriteGroup:
        """Fragments that were rewritten together.

        Attributes:
            old_fragments: The fragments before.
            new_fragments: The fragments after.
        """

        old_fragments: list[FragmentMetadata]
        new_fragments: list[FragmentMetadata]

    @dataclass
    class RewrittenIndex:
        """An index segment that was remapped.

        Attributes:
            old_id: The id of the old segment.
            new_id: The id of the new segment.
            new_details_type_url: The type URL of the index details.
            new_details_value: The serialized index details.
            new_index_version: The version of the index files.
        """

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

    @dataclass
    class Rewrite(BaseOperation):
        """Replaces fragments by fragments with the same rows.

        Attributes:
            groups: The old and new fragments.
            rewritten_indices: The remapped index segments.
        """

        groups: list[LanceOperation.RewriteGroup]
        rewritten_indices: list[LanceOperation.RewrittenIndex]

        def __post_init__(self) -> None:
            """Check the types."""
            for group in self.groups:
                _check_fragments([*group.old_fragments, *group.new_fragments])

    @dataclass
    class CreateIndex(BaseOperation):
        """Adds and removes index segments.

        Attributes:
            new_indices: The segments to add.
            removed_indices: The segments to remove.
        """

        new_indices: list[Index]
        removed_indices: list[Index]

    @dataclass
    class DataReplacementGroup:
        """A data file that replaces the values of its fields in a fragment.

        Attributes:
            fragment_id: The fragment.
            new_file: The file.
        """

        fragment_id: int
        new_file: DataFile

    @dataclass
    class DataReplacement(BaseOperation):
        """Replaces or adds data files.

        Attributes:
            replacements: The data files by fragment.
        """

        replacements: list[LanceOperation.DataReplacementGroup]

    DataOverlayFile = DataOverlayFile

    @dataclass
    class DataOverlayGroup:
        """Overlays of a fragment.

        Attributes:
            fragment_id: The fragment.
            overlays: The overlays.
        """

        fragment_id: int
        overlays: list[DataOverlayFile]

    @dataclass
    class DataOverlay(BaseOperation):
        """Adds overlays to fragments.

        Attributes:
            groups: The overlays by fragment.
        """

        groups: list[LanceOperation.DataOverlayGroup]

    @dataclass
    class Project(BaseOperation):
        """Drops, renames or reorders columns.

        Attributes:
            schema: The new schema.
            preserves_nullability: Whether the nullability of all fields is unchanged.
        """

        schema: LanceSchema
        preserves_nullability: bool = False

    @dataclass
    class UpdateMap:
        """Changes to a map.

        Attributes:
            updates: New values by key; None removes a key.
            replace: Whether to remove all other keys.
        """

        updates: dict[str, str | None]
        replace: bool = False

    @dataclass
    class UpdateConfig(BaseOperation):
        """Changes the config and metadata of a dataset.

        Attributes:
            config_updates: Changes to the config.
            table_metadata_updates: Changes to the metadata of the table.
            schema_metadata_updates: Changes to the metadata of the schema.
            field_metadata_updates: Changes to the metadata of fields, by field id.
        """

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: dict[int, LanceOperation.UpdateMap] | None = None

    @dataclass
    class Other(BaseOperation):
        """An operation without a pylance class, such as registering base paths.

        Attributes:
            stored: The internal operation.
        """

        stored: Operation


def _check_fragments(fragments: Iterable[FragmentMetadata]) -> None:
    if not isinstance(fragments, list):
        raise OperationTypeError(f"fragments must be list[FragmentMetadata], got {type(fragments)}")
    for fragment in fragments:
        if not isinstance(fragment, FragmentMetadata):
            raise OperationTypeError(
                f"fragments must be list[FragmentMetadata], got {type(fragment)}"
            )
