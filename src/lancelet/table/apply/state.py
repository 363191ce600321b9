"""What an operation is applied to, and what comes out: a manifest and its index segments.

    State(manifest of version 7, indices)  --apply Append-->  State(manifest of version 8, indices)

Applying is pure. What only the committer knows (the new version, the time, choices for a table
that does not exist yet) comes as `CommitContext`.
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
    """What the committer decides.

    `stable_row_ids` and `data_version` are for a table that is created; an overwrite may change
    the second. `activates_row_ids` makes the row ids that a merge brings stable from then on.
    `restored` is the state that a restore goes back to.
    """

    version: int
    stable_row_ids: bool = False
    activates_row_ids: bool = False
    data_version: FileVersion | None = None
    restored: State | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A version of a table, without its file."""

    manifest: Manifest
    indices: tuple[IndexMetadata, ...] = field(default=())

    def with_fragments(self, fragments: FragmentList) -> Self:
        """Return the state with other fragments, in the order of their ids, and their counter."""
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
    """Return a fragment with one more file, which takes its fields over from the others.

    A file with just the same fields makes room for it; in others, and in what is laid over them,
    they become tombstones.
    """
    if fragment.overlays:
        fragment = _without_overlaid(fragment, frozenset(new.fields))
    if any(file.fields == new.fields for file in fragment.files):
        swapped = (new if file.fields == new.fields else file for file in fragment.files)
        return replace(fragment, files=tuple(swapped))
    taken = frozenset(new.fields)
    others = tuple(_without_fields(file, taken) for file in fragment.files)
    return without_dead_files(replace(fragment, files=(*others, new)))


def _without_fields(file: DataFile, taken: frozenset[int]) -> DataFile:
    if taken.isdisjoint(file.fields):
        return file
    live = [field_id for field_id in file.fields if field_id >= 0]
    if file.version is FileVersion.V0_1 and min(live) in taken and not taken.issuperset(live):
        # Readers look for the pages of a field by how far its id is from the lowest one.
        raise UnsupportedError(
            "a file of version 0.1 keeps its first field, so that others are found; "
            "rewrite the rows, or all columns of the file",
            path=file.path,
            field_id=min(live),
        )
    fields = (TOMBSTONE if field_id in taken else field_id for field_id in file.fields)
    return replace(file, fields=tuple(fields))


def _without_overlaid(fragment: Fragment, taken: frozenset[int]) -> Fragment:
    """Return a fragment without the values of some fields that are laid over it."""
    left = []
    for overlay in fragment.overlays:
        ids = tuple(TOMBSTONE if own in taken else own for own in overlay.data_file.fields)
        if any(own != TOMBSTONE for own in ids):
            file = replace(overlay.data_file, fields=ids)
            left.append(replace(overlay, data_file=file))
    return replace(fragment, overlays=tuple(left))


def without_dead_files(fragment: Fragment) -> Fragment:
    """Return a fragment without the files of which every field is taken over by another."""
    files = tuple(
        file for file in fragment.files if any(field_id != TOMBSTONE for field_id in file.fields)
    )
    return fragment if len(files) == len(fragment.files) else replace(fragment, files=files)


def column_ids(schema: Schema) -> frozenset[int]:
    """Return the ids of the fields that are columns of files, and not just around others."""
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


def with_true_version(manifest: Manifest) -> Manifest:
    """Return a manifest that does not say 0.1 of files of a later version.

    A release of the reference committed manifests that do; the files are what counts, if they
    agree.
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
