"""Operations: what a transaction did, as a closed union of values.

An operation describes a change so that it can be applied to a later version than the one it was
computed from, and so that others can tell whether it conflicts with theirs. One that this
release does not know is an `UnknownOperation`, which conflicts with everything.
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
    """Adds fragments; their ids are given at the commit."""

    fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes rows: fragments with new deletion files, and fragments that are gone."""

    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replaces schema and rows; also what creates a table."""

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
    """Fragments that were rewritten together, and what they became."""

    old_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class RewrittenIndex:
    """An index segment whose row addresses were mapped to the new fragments."""

    old_id: uuid.UUID
    new_id: uuid.UUID
    new_details: AnyDetails | None = None
    new_version: int = 0
    new_files: tuple[IndexFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replaces groups of fragments by others with the same rows.

    `moves` are recorded in the fragment reuse index by the commit; the transaction does not tell.
    """

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    moves: tuple[ReuseGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Merge:
    """Adds columns or changes types: every fragment, and the new schema.

    `preserves_nullability` says that no field became nullable or the reverse.
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
    """Takes fragment ids out of circulation for a later commit."""

    num_fragments: int


@dataclass(frozen=True, slots=True)
class CompactedSsTable:
    """How far the flushed rows of a shard have been merged into the table."""

    shard_id: uuid.UUID
    generation: int


class UpdateMode(IntEnum):
    """How an update changed rows: written anew elsewhere, or some columns of them in place."""

    REWRITE_ROWS = 0
    REWRITE_COLUMNS = 1


@dataclass(frozen=True, slots=True)
class Update:
    """Changes rows.

    `updated_offsets` has a Roaring bitmap of the changed row offsets by fragment id.
    `fields_for_preserving_bitmap` are the fields whose indices may go on covering the new
    fragments if they are not among them.
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
    """Changes the schema and no file: drops, renames and reorders columns."""

    schema: Schema
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Changes to a map: keys with their new value, or None to delete; `replace` drops others.

    >>> UpdateMap({"a": "1", "b": None}).apply({"b": "2", "c": "3"})
    {'c': '3', 'a': '1'}
    """

    entries: Mapping[str, str | None] = field(default_factory=dict, hash=False)
    replace: bool = False

    def apply(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the map after the changes."""
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
    """A file that takes over its fields in a fragment."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True, slots=True)
class DataReplacement:
    """Swaps or adds data files."""

    replacements: tuple[DataReplacementGroup, ...]


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    """Records merged shards without changing rows."""

    compacted_sstables: tuple[CompactedSsTable, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    """Starts a table from a version of another."""

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateBases:
    """Adds base paths; those with id 0 get theirs at the commit.

    With `replaces` they take the places of those that have their ids. That is not stored: the
    format knows additions alone, and either conflicts with another base of the id, name or path.
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
    """Layers new values over fragments."""

    groups: tuple[OverlayGroup, ...]


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """What a later release did; `wire` is its field of the transaction, head included."""

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
