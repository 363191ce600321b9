"""The input and output of applying an operation: a manifest and its index segments.

    State(manifest of version 7, indices)  --apply Append-->  State(manifest of version 8, indices)

Applying is pure. The `CommitContext` passes the values that the committer determines: the new
version, and options for a table to create.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Self

from lancelet.errors import UnsupportedError
from lancelet.format.fragment import TOMBSTONE, DataFile, Fragment
from lancelet.format.fragment_list import FragmentList
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.manifest import Manifest
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.table.apply.numbering import MixedVersionsError
from lancelet.values import dataclass, replace


@dataclass(frozen=True, slots=True)
class CommitContext:
    """Parameters of applying an operation that the committer determines.

    `stable_row_ids` and `data_version` configure a new table; an overwrite may also set
    `data_version`. `activates_row_ids` makes the row ids that a merge adds stable. `restored` is
    the state to restore.
    """

    version: int
    stable_row_ids: bool = False
    activates_row_ids: bool = False
    data_version: FileVersion | None = None
    restored: State | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A version of a table without its manifest file."""

    manifest: Manifest
    indices: tuple[IndexMetadata, ...] = field(default=())

    def with_fragments(self, fragments: FragmentList) -> Self:
        """Return the state with these fragments, sorted by id, and a new fragment id counter."""
        ordered = fragments.sorted_by_id()
        highest = [n for n in (self.manifest.max_fragment_id, ordered.max_id) if n is not None]
        manifest = replace(
            self.manifest, fragments=ordered, max_fragment_id=max(highest, default=None)
        )
        return replace(self, manifest=manifest)

    def with_manifest(self, manifest: Manifest) -> Self:
        """Return the state with another manifest."""
        return self if manifest is self.manifest else replace(self, manifest=manifest)

    def with_schema(self, schema: Schema) -> Self:
        """Return the state with another schema."""
        return replace(self, manifest=replace(self.manifest, schema=schema))


def with_column_file(fragment: Fragment, new: DataFile) -> Fragment:
    """Return a fragment with an additional file that takes over its fields.

    A file with exactly the same fields is replaced; in other files and in overlays, the fields
    become tombstones.
    """
    if fragment.overlays:
        fragment = _without_overlay_fields(fragment, frozenset(new.fields))
    if any(file.fields == new.fields for file in fragment.files):
        swapped = (new if file.fields == new.fields else file for file in fragment.files)
        return replace(fragment, files=tuple(swapped))
    replaced_fields = frozenset(new.fields)
    others = tuple(_without_fields(file, replaced_fields) for file in fragment.files)
    return without_dead_files(replace(fragment, files=(*others, new)))


def _without_fields(file: DataFile, replaced_fields: frozenset[int]) -> DataFile:
    if replaced_fields.isdisjoint(file.fields):
        return file
    live = [field_id for field_id in file.fields if field_id >= 0]
    if (
        file.version is FileVersion.V0_1
        and min(live) in replaced_fields
        and not replaced_fields.issuperset(live)
    ):
        # Readers compute the position of a field's pages from its distance to the lowest field id.
        raise UnsupportedError(
            "a file of version 0.1 must retain its first field, which locates the other fields; "
            "rewrite the rows, or all columns of the file",
            path=file.path,
            field_id=min(live),
        )
    fields = (TOMBSTONE if field_id in replaced_fields else field_id for field_id in file.fields)
    return replace(file, fields=tuple(fields))


def _without_overlay_fields(fragment: Fragment, replaced_fields: frozenset[int]) -> Fragment:
    """Return a fragment without the overlay values of some fields."""
    overlays = []
    for overlay in fragment.overlays:
        ids = tuple(
            TOMBSTONE if field_id in replaced_fields else field_id
            for field_id in overlay.data_file.fields
        )
        if any(field_id != TOMBSTONE for field_id in ids):
            file = replace(overlay.data_file, fields=ids)
            overlays.append(replace(overlay, data_file=file))
    return replace(fragment, overlays=tuple(overlays))


def without_dead_files(fragment: Fragment) -> Fragment:
    """Return a fragment without the files whose fields are all tombstones."""
    files = tuple(
        file for file in fragment.files if any(field_id != TOMBSTONE for field_id in file.fields)
    )
    return fragment if len(files) == len(fragment.files) else replace(fragment, files=files)


def column_ids(schema: Schema) -> frozenset[int]:
    """Return the ids of the fields stored as file columns, excluding nested parents."""
    return frozenset(
        field.id
        for field in schema.walk()
        if not field.children or field.is_packed or field.is_blob
    )


def without_unknown_files(fragment: Fragment, field_ids: Collection[int]) -> Fragment:
    """Return a fragment without the files that have none of a schema's columns.

    Files that hold row ids or row versions have fields that no schema names.
    """
    files = tuple(
        file
        for file in fragment.files
        if any(field_id in field_ids or field_id < TOMBSTONE for field_id in file.fields)
    )
    return fragment if len(files) == len(fragment.files) else replace(fragment, files=files)


def with_actual_version(manifest: Manifest) -> Manifest:
    """Return a manifest with the file version of its data files if it wrongly states 0.1.

    A release of the reference committed such manifests. The files decide if they agree.
    """
    if manifest.data_version is not FileVersion.V0_1:
        return manifest
    versions = {file.version for fragment in manifest.fragments for file in fragment.files}
    if not versions - {FileVersion.V0_1}:
        return manifest
    if FileVersion.V0_1 in versions:
        raise MixedVersionsError(
            "The dataset contains a mixture of file versions, 0.1 and later ones; restore a "
            "version from before they were mixed",
            version=manifest.version,
            files=sorted(version.value for version in versions),
        )
    return replace(manifest, data_version=min(versions, key=lambda version: version.entry_numbers))
