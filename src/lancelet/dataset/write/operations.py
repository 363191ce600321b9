"""What a commit does, as pylance has it: `LanceOperation` and the classes in it.

    LanceOperation.Append(fragments)                        more rows
    LanceOperation.Delete([changed], [gone], "a = 1")       fewer rows
    LanceOperation.Merge(fragments, schema)                 more columns

These are values that programs make and take apart; `operation_forms` turns them into the
operations that tables understand, and back.
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
    """A part of an operation is of the wrong type."""


class LanceOperation:
    """The operations of transactions."""

    class BaseOperation:
        """The base class of operations."""

    @dataclass
    class Overwrite(BaseOperation):
        """Replaces schema and rows, or creates a dataset.

        Attributes:
            new_schema: The schema of the fragments.
            fragments: All that the dataset will have.
            initial_bases: Base paths of a dataset that is created.
        """

        new_schema: LanceSchema | pa.Schema
        fragments: list[FragmentMetadata]
        initial_bases: list[DatasetBasePath] | None = None

        def __post_init__(self) -> None:
            """Check the types."""
            _check_fragments(self.fragments)

    @dataclass
    class Append(BaseOperation):
        """Adds fragments, whose ids are given at the commit.

        Attributes:
            fragments: What is added.
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
            deleted_fragment_ids: Fragments that are gone.
            predicate: Which rows were meant, for people.
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
            removed_fragment_ids: Fragments that are gone.
            updated_fragments: Fragments with other files or deletions.
            new_fragments: Fragments of rows that moved or are new.
            fields_modified: The ids of fields that were written anew in place.
            fields_for_preserving_frag_bitmap: The ids of the fields that changed; indices on
                others go on covering the new fragments.
            update_mode: `rewrite_rows`, the default, or `rewrite_columns`.
            updated_fragment_offsets: The offsets that changed by fragment, as Roaring bitmaps.
        """

        removed_fragment_ids: list[int] = field(default_factory=list)
        updated_fragments: list[FragmentMetadata] = field(default_factory=list)
        new_fragments: list[FragmentMetadata] = field(default_factory=list)
        fields_modified: list[int] = field(default_factory=list)
        fields_for_preserving_frag_bitmap: list[int] = field(default_factory=list)
        update_mode: str = ""
        updated_fragment_offsets: dict[int, bytes] | None = None
        inserted_rows: KeyFilter | None = field(default=None, repr=False, compare=False)
        """Which keys a merge inserted, so that others notice the same; not one of pylance's."""

        def __post_init__(self) -> None:
            """Check the types."""
            _check_fragments(self.updated_fragments)
            _check_fragments(self.new_fragments)

    @dataclass
    class Merge(BaseOperation):
        """Adds columns or changes types.

        Attributes:
            fragments: All fragments, with the files that they have then.
            schema: The schema then.
            preserves_nullability: Whether no field became nullable, or the reverse.
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
        """Makes an older version the latest.

        Attributes:
            version: Its number.
        """

        version: int

    @dataclass
    class Clone(BaseOperation):
        """Started the table from a version of another; cannot be committed.

        Attributes:
            is_shallow: Whether the files stayed where they were.
            ref_name: The branch of the other, if not its main one.
            ref_version: The version.
            ref_path: Where the other is.
            branch_name: The branch that this is, if it is one.
        """

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None

    @dataclass
    class RewriteGroup:
        """Fragments that were written anew together.

        Attributes:
            old_fragments: What they were.
            new_fragments: What they became.
        """

        old_fragments: list[FragmentMetadata]
        new_fragments: list[FragmentMetadata]

    @dataclass
    class RewrittenIndex:
        """An index segment whose rows moved.

        Attributes:
            old_id: The segment before.
            new_id: The segment after.
            new_details_type_url: The type of its details.
            new_details_value: Its details.
            new_index_version: The version of its files.
        """

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

    @dataclass
    class Rewrite(BaseOperation):
        """Replaces fragments by others with the same rows.

        Attributes:
            groups: What was replaced by what.
            rewritten_indices: What happened to indices.
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
            new_indices: Segments that are added.
            removed_indices: Segments that go.
        """

        new_indices: list[Index]
        removed_indices: list[Index]

    @dataclass
    class DataReplacementGroup:
        """A file that takes over its fields in a fragment.

        Attributes:
            fragment_id: The fragment.
            new_file: The file.
        """

        fragment_id: int
        new_file: DataFile

    @dataclass
    class DataReplacement(BaseOperation):
        """Swaps or adds data files.

        Attributes:
            replacements: The files by fragment.
        """

        replacements: list[LanceOperation.DataReplacementGroup]

    DataOverlayFile = DataOverlayFile

    @dataclass
    class DataOverlayGroup:
        """Overlays of a fragment.

        Attributes:
            fragment_id: The fragment.
            overlays: What is laid over it.
        """

        fragment_id: int
        overlays: list[DataOverlayFile]

    @dataclass
    class DataOverlay(BaseOperation):
        """Lays new values over fragments.

        Attributes:
            groups: The overlays by fragment.
        """

        groups: list[LanceOperation.DataOverlayGroup]

    @dataclass
    class Project(BaseOperation):
        """Drops, renames or reorders columns.

        Attributes:
            schema: The schema then.
            preserves_nullability: Whether no field became nullable, or the reverse.
        """

        schema: LanceSchema
        preserves_nullability: bool = False

    @dataclass
    class UpdateMap:
        """Changes to a map.

        Attributes:
            updates: New values by key; None takes a key away.
            replace: Whether all other keys go.
        """

        updates: dict[str, str | None]
        replace: bool = False

    @dataclass
    class UpdateConfig(BaseOperation):
        """Changes what a dataset says of itself.

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
        """An operation that pylance shows no class for, such as registering base paths.

        Attributes:
            stored: The operation as tables keep it.
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
