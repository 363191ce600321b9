"""Operations: the changes that transactions make, as a closed union of immutable values.

An operation describes a change in a form that can be rebased onto later versions and compared with
concurrent transactions. An operation of a later release is an
`UnknownOperation`, which conflicts with all others.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import TypeAlias

from lancelet.format.base_paths import BasePath
from lancelet.format.fragment import DataFile, DataOverlay, Fragment
from lancelet.format.fragment_reuse import ReuseGroup
from lancelet.format.index_metadata import AnyDetails, IndexFile, IndexMetadata
from lancelet.format.key_filter import KeyFilter
from lancelet.format.schema import Schema
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Append:
    """Adds fragments; the commit assigns their ids."""

    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes rows: fragments with new deletion files, and removed fragments."""

    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replaces schema and rows, or creates a table."""

    fragments: tuple[Fragment, ...]
    schema: Schema
    config_upsert_values: Mapping[str, str] = field(default_factory=dict, hash=False)
    initial_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Adds and removes index segments."""

    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments that were rewritten together, and their replacements."""

    old_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class RewrittenIndex:
    """An index segment with row addresses remapped to the new fragments."""

    old_id: uuid.UUID
    new_id: uuid.UUID
    new_details: AnyDetails | None = None
    new_version: int = 0
    new_files: tuple[IndexFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces groups of fragments by fragments with the same rows.

    The commit records `moves` in the fragment reuse index; they are not part of the transaction.
    """

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    moves: tuple[ReuseGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """Adds columns or changes types: all fragments and the new schema.

    `preserves_nullability` states that no field changed its nullability.
    """

    fragments: tuple[Fragment, ...]
    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """Makes an older version the latest."""

    version: int


@dataclass(frozen=True, slots=True)
class ReserveFragments:
    """Reserves fragment ids for a later commit."""

    num_fragments: int


@dataclass(frozen=True, slots=True)
class CompactedSsTable:
    """The last generation of a shard that was merged into the table."""

    shard_id: uuid.UUID
    generation: int


class UpdateMode(IntEnum):
    """The update strategy: rewrite rows to new fragments, or columns of existing fragments."""

    REWRITE_ROWS = 0
    REWRITE_COLUMNS = 1


@dataclass(frozen=True, slots=True)
class Update:
    """Changes rows.

    `updated_offsets` maps fragment ids to Roaring bitmaps of the changed row offsets.
    `fields_for_preserving_bitmap` are the fields whose indices may continue to cover the new
    fragments if the fields did not change.
    """

    removed_fragment_ids: tuple[int, ...] = ()
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    compacted_sstables: tuple[CompactedSsTable, ...] = ()
    fields_for_preserving_bitmap: tuple[int, ...] = ()
    mode: UpdateMode = UpdateMode.REWRITE_ROWS
    inserted_rows: KeyFilter | None = None
    updated_offsets: Mapping[int, bytes] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Project:
    """Changes the schema but no file: drops, renames or reorders columns."""

    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Changes to a map: new values by key, None to delete; `replace` drops all other keys.

    >>> UpdateMap({"a": "1", "b": None}).apply({"b": "2", "c": "3"})
    {'c': '3', 'a': '1'}
    """

    entries: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    replace: bool = False

    def apply(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the map with the changes applied."""
        after = {} if self.replace else dict(before)
        for key, value in self.entries.items():
            if value is None:
                after.pop(key, None)
            else:
                after[key] = value
        return after


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """Changes the config and metadata of the table, its schema and its fields."""

    config: UpdateMap | None = None
    table_metadata: UpdateMap | None = None
    schema_metadata: UpdateMap | None = None
    field_metadata: Mapping[int, UpdateMap] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class DataReplacementGroup:
    """A file that replaces its fields in a fragment."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True, slots=True)
class DataReplacement:
    """Replaces or adds data files."""

    replacements: tuple[DataReplacementGroup, ...]


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    """Records merged shards without changing rows."""

    compacted_sstables: tuple[CompactedSsTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    """Creates a table from a version of another table."""

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateBases:
    """Adds base paths; the commit assigns ids to those with id 0.

    With `replaces`, they replace existing base paths with the same ids. This flag is not stored:
    the format only defines additions, and both conflict with a base of the same id, name or path.
    """

    new_bases: tuple[BasePath, ...]
    replaces: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class OverlayGroup:
    """Overlays for one fragment."""

    fragment_id: int
    overlays: tuple[DataOverlay, ...]


@dataclass(frozen=True, slots=True)
class AddOverlays:
    """Adds overlays with new values to fragments."""

    groups: tuple[OverlayGroup, ...]


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """An operation of a later release; `wire` is the serialized field including its tag."""

    wire: bytes


Operation: TypeAlias = (
    Append
    | Delete
    | Overwrite
    | CreateIndex
    | Rewrite
    | Merge
    | Restore
    | ReserveFragments
    | Update
    | Project
    | UpdateConfig
    | DataReplacement
    | UpdateMemWalState
    | Clone
    | UpdateBases
    | AddOverlays
    | UnknownOperation
)
