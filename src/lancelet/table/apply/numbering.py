"""Assign fragment ids, row ids, row versions and file versions at commit.

    next id 7, next row id 40      append fragments of 10 and 5 rows
    fragment 7   rows 40..50       created and last updated at the new version
    fragment 8   rows 50..55

A fragment may already have row ids for its first rows, which were moved; the remaining rows get new
ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format.flags import Feature
from lancelet.format.fragment import DataFile, Fragment, FragmentId, Inline
from lancelet.format.manifest import Manifest
from lancelet.format.operation import (
    Append,
    DataReplacement,
    Merge,
    Operation,
    Overwrite,
    Rewrite,
    Update,
)
from lancelet.format.version import FileVersion
from lancelet.rowids.segment import Numbers
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.values import replace

ROW_ID_MAX: Final = 2**64 - 1
_NEWEST_FRAGMENTS: Final = 16
"""Number of fragments that `check_next_row_id` reads."""

FRAGMENT_ID_MAX: Final = 2**32 - 2
"""Largest fragment id; no row address has all 32 fragment bits set."""


def number_fragments(fragments: Iterable[Fragment], manifest: Manifest) -> tuple[Fragment, ...]:
    """Return fragments with ids that were never used in the table."""
    highest = manifest.max_fragment_id
    first = 0 if highest is None else highest + 1
    numbered = tuple(
        replace(fragment, id=FragmentId(first + position))
        for position, fragment in enumerate(fragments)
    )
    check_fragment_ids(first + len(numbered) - 1)
    return numbered


def check_fragment_ids(highest: int) -> None:
    """Raise unless the highest id of a fragment fits a row address.

    Raises:
        UnsupportedError: All ids are used.
    """
    if highest > FRAGMENT_ID_MAX:
        raise UnsupportedError(
            "the table has no fragment ids left; copy its rows to a new table",
            highest=highest,
            max=FRAGMENT_ID_MAX,
        )


def check_next_row_id(manifest: Manifest) -> None:
    """Raise if new rows would get the row ids of existing ones.

    Only the newest fragments are read, which have the largest ids unless rows were moved since.

    Raises:
        CorruptDataError: The next row id of the manifest belongs to a row.
    """
    if not manifest.uses_stable_row_ids:
        return
    fragments = manifest.fragments
    for position in range(max(0, len(fragments) - _NEWEST_FRAGMENTS), len(fragments)):
        stored = fragments[position].row_ids
        if not isinstance(stored, Inline):
            continue
        segments = RowIdSequence.parse(stored.data).segments
        candidates = [
            each
            for each in segments
            if len(each) and (isinstance(each, Numbers) or each.stop > manifest.next_row_id)
        ]
        largest = max((int(each.to_array().max()) for each in candidates), default=-1)
        if largest >= manifest.next_row_id:
            raise CorruptDataError(
                "the next row id of the manifest belongs to a row; restore an older version, or "
                "write the rows to a new table",
                version=manifest.version,
                next_row_id=manifest.next_row_id,
                row_id=largest,
            )


def with_row_ids(
    fragments: Iterable[Fragment], next_row_id: int
) -> tuple[tuple[Fragment, ...], int]:
    """Return fragments with a row id for every row, and the next row id after theirs."""
    complete = []
    for fragment in fragments:
        moved = RowIdSequence.of_range(0, 0)
        if isinstance(fragment.row_ids, Inline):
            moved = RowIdSequence.parse(fragment.row_ids.data)
        elif fragment.row_ids is not None:
            complete.append(fragment)
            continue
        missing = fragment.physical_rows - len(moved)
        if missing < 0:
            raise CorruptDataError(
                "a fragment has more row ids than rows",
                row_ids=len(moved),
                physical_rows=fragment.physical_rows,
            )
        if next_row_id + missing > ROW_ID_MAX:
            raise UnsupportedError(
                "the table has no row ids left; copy its rows to a new table",
                next_row_id=next_row_id,
                num_rows=missing,
            )
        if missing:
            new = RowIdSequence.of_range(next_row_id, next_row_id + missing)
            ids = RowIdSequence.concat([moved, new]) if len(moved) else new
            fragment = replace(fragment, row_ids=Inline(ids.render()))  # noqa: PLW2901 - the same fragment, completed
            next_row_id += missing
        complete.append(fragment)
    return tuple(complete), next_row_id


def updated_in_place(fragment: Fragment, version: int) -> Fragment:
    """Return a fragment with all rows last updated at a version."""
    versions = VersionSequence.constant(fragment.physical_rows, version)
    return replace(fragment, last_updated_at_versions=Inline(versions.render()))


def with_versions(fragment: Fragment, version: int) -> Fragment:
    """Return a fragment with missing created and last updated versions set to a version."""
    versions = Inline(VersionSequence.constant(fragment.physical_rows, version).render())
    return replace(
        fragment,
        last_updated_at_versions=fragment.last_updated_at_versions or versions,
        created_at_versions=fragment.created_at_versions or versions,
    )


class MixedVersionsError(InvalidInputError, OSError):
    """Data files of version 0.1 and of later versions cannot share a table."""


def with_file_versions(manifest: Manifest, operation: Operation) -> Manifest:
    """Return the manifest with the flag for mixed file versions set if needed.

    For example:

        table 2.1, files 2.1     no change
        table 2.1, files 2.0     the table is flagged as having mixed file versions
        table 0.1, files 2.0     rejected, as are 0.1 files in other tables
    """
    table_version = manifest.data_version
    other_versions = {file.version for file in _listed_files(operation)} - {table_version}
    if not other_versions:
        return manifest
    if FileVersion.V0_1 in {table_version, *other_versions}:
        raise MixedVersionsError(
            "All data files must have the same version: 0.1 cannot be in one table with others",
            table=table_version.value,
            files=sorted(version.value for version in other_versions),
        )
    mixed = int(Feature.MIXED_FILE_VERSIONS)
    return replace(
        manifest,
        reader_flags=manifest.reader_flags | mixed,
        writer_flags=manifest.writer_flags | mixed,
    )


def _listed_files(operation: Operation) -> Iterator[DataFile]:
    """Yield the data files of an operation, including unchanged ones of updated fragments."""
    match operation:
        case (
            Append(fragments=fragments)
            | Overwrite(fragments=fragments)
            | Merge(fragments=fragments)
        ):
            yield from _files(fragments)
        case Update(updated_fragments=updated, new_fragments=new):
            yield from _files((*updated, *new))
        case Rewrite(groups=groups):
            yield from _files(fragment for group in groups for fragment in group.new_fragments)
        case DataReplacement(replacements=replacements):
            yield from (replacement.new_file for replacement in replacements)


def _files(fragments: Iterable[Fragment]) -> Iterator[DataFile]:
    return (file for fragment in fragments for file in fragment.files)
