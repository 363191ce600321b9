"""Giving new fragments what only the commit knows: ids, row ids, and the version they came in.

    next id 7, next row id 40      append fragments of 10 and 5 rows
    fragment 7   rows 40..50       created and last updated at the new version
    fragment 8   rows 50..55

A fragment may bring row ids for its first rows, those that moved; the rows behind are new.

Which versions of files a table has: one that new files take, and perhaps others beside it.

What an operation brings, and what is made of it:

    table 2.1, files 2.1     nothing to say
    table 2.1, files 2.0     flagged as mixed, from now on
    table 0.1, files 2.0     refused, as are 0.1 files in other tables
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
"""The number of fragments that `check_next_row_id` reads."""

FRAGMENT_ID_MAX: Final = 2**32 - 2
"""The largest id of a fragment; no row has an address with 32 bits set for the fragment."""


def number_fragments(fragments: Iterable[Fragment], manifest: Manifest) -> tuple[Fragment, ...]:
    """Return fragments with ids that the table never used."""
    highest = manifest.max_fragment_id
    first = 0 if highest is None else highest + 1
    numbered = tuple(
        replace(fragment, id=FragmentId(first + place)) for place, fragment in enumerate(fragments)
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
    for place in range(max(0, len(fragments) - _NEWEST_FRAGMENTS), len(fragments)):
        stored = fragments[place].row_ids
        if not isinstance(stored, Inline):
            continue
        segments = RowIdSequence.parse(stored.data).segments
        suspects = [
            each
            for each in segments
            if len(each) and (isinstance(each, Numbers) or each.stop > manifest.next_row_id)
        ]
        largest = max((int(each.to_array().max()) for each in suspects), default=-1)
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
    """Return a fragment all rows of which were last updated at a version."""
    versions = VersionSequence.constant(fragment.physical_rows, version)
    return replace(fragment, last_updated_at_versions=Inline(versions.render()))


def with_versions(fragment: Fragment, version: int) -> Fragment:
    """Return a fragment whose rows were last updated, and created if unsaid, at a version."""
    versions = Inline(VersionSequence.constant(fragment.physical_rows, version).render())
    return replace(
        fragment,
        last_updated_at_versions=fragment.last_updated_at_versions or versions,
        created_at_versions=fragment.created_at_versions or versions,
    )


class MixedVersionsError(InvalidInputError, OSError):
    """Files of 0.1 and of later versions were to be in one table."""


def with_file_versions(manifest: Manifest, operation: Operation) -> Manifest:
    """Return a manifest that says which versions its files have, after an operation."""
    own = manifest.data_version
    others = {file.version for file in _files_of(operation)} - {own}
    if not others:
        return manifest
    if FileVersion.V0_1 in {own, *others}:
        raise MixedVersionsError(
            "All data files must have the same version: 0.1 cannot be in one table with others",
            table=own.value,
            files=sorted(version.value for version in others),
        )
    mixed = int(Feature.MIXED_FILE_VERSIONS)
    return replace(
        manifest,
        reader_flags=manifest.reader_flags | mixed,
        writer_flags=manifest.writer_flags | mixed,
    )


def _files_of(operation: Operation) -> Iterator[DataFile]:
    """Yield the files that an operation brings, and perhaps some that were there."""
    match operation:
        case Append(fragments=brought) | Overwrite(fragments=brought) | Merge(fragments=brought):
            yield from _files(brought)
        case Update(updated_fragments=updated, new_fragments=new):
            yield from _files((*updated, *new))
        case Rewrite(groups=groups):
            yield from _files(fragment for group in groups for fragment in group.new_fragments)
        case DataReplacement(replacements=replacements):
            yield from (replacement.new_file for replacement in replacements)


def _files(fragments: Iterable[Fragment]) -> Iterator[DataFile]:
    return (file for fragment in fragments for file in fragment.files)
