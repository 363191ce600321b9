"""Giving new fragments what only the commit knows: ids, row ids, and the version they came in.

    next id 7, next row id 40      append fragments of 10 and 5 rows
    fragment 7   rows 40..50       created and last updated at the new version
    fragment 8   rows 50..55

A fragment may bring row ids for its first rows, those that moved; the rows behind are new.
"""

from __future__ import annotations

from collections.abc import Iterable

from lancelet.errors import CorruptDataError
from lancelet.format.fragment import Fragment, FragmentId, Inline
from lancelet.format.manifest import Manifest
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.values import replace


def number_fragments(fragments: Iterable[Fragment], manifest: Manifest) -> tuple[Fragment, ...]:
    """Return fragments with ids that the table never used."""
    highest = manifest.max_fragment_id
    first = 0 if highest is None else highest + 1
    return tuple(
        replace(fragment, id=FragmentId(first + place)) for place, fragment in enumerate(fragments)
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
