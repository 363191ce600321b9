"""Mending a table in new versions, so that what is damaged stays there for a closer look.

    drop fragment 3              its rows are gone; the others can be read again
    restore fragment 3 from 7    the fragment as version 7 has it, if its files are sound
    restore fragment 3 of a copy its files are copied here under new names
    rebuild counts               rows and deleted rows are counted in the files
    drop index by_id             filters scan; the index can be built anew
    rebuild index by_id          it is built anew from the rows, as it was asked for

Fragments and counts are mended by one commit. Indices are dropped and built by others, since no
operation of the format does both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Ranges
from lancelet.errors import IndexNotFoundError, InvalidInputError
from lancelet.file.memo import CachedHeads
from lancelet.file.open import open_data_file
from lancelet.format.fragment import DataFile, DeletionFile, Fragment
from lancelet.format.index_metadata import IndexMetadata
from lancelet.format.operation import CreateIndex, Update
from lancelet.format.paths import (
    DATA,
    DATA_SUFFIX,
    DELETIONS,
    data_file_identity,
    renamed_data_file,
)
from lancelet.io.store import Store
from lancelet.io.uri import name
from lancelet.ops.check.files import FragmentCheck
from lancelet.ops.check.finding import Level, Severity
from lancelet.ops.indexing.optimize import OptimizeIndices, optimize_indices
from lancelet.ops.progress import counted
from lancelet.ops.publish import Remarks, publish
from lancelet.table.commit import CommitOptions, check_table_exists
from lancelet.table.conflict.rebase import with_deletions
from lancelet.table.location import Place
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_COPY_BYTES: Final = 8 * 1024 * 1024
_REMARKS: Final = Remarks("repair")


@dataclass(frozen=True, slots=True, eq=False)
class RepairWishes:
    """What to mend.

    Attributes:
        drop_fragments: The ids of fragments to give up.
        restore_fragments: The ids of fragments to take from `source`.
        source: An older version of the table, or a version of a copy of it.
        drop_indices: The names of indices to give up.
        rebuild_counts: Whether to count the rows of all fragments in their files.
        rebuild_indices: The names of indices to build anew.
    """

    drop_fragments: tuple[int, ...] = ()
    restore_fragments: tuple[int, ...] = ()
    source: Snapshot | None = None
    drop_indices: tuple[str, ...] = ()
    rebuild_counts: bool = False
    rebuild_indices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair does, or did.

    Attributes:
        version: The version it made; the one it would follow, if it only tried.
        dropped_fragments: The fragments that were given up.
        restored_fragments: The fragments that are again as they were.
        recounted_fragments: The fragments whose counts were wrong.
        dropped_indices: The indices that were given up.
        rebuilt_indices: The indices that were built anew.
        rows_before: How many rows the manifest says there were.
        rows_after: How many there are now.
        bytes_copied: The bytes of files that come from a copy of the table.
    """

    version: int
    dropped_fragments: tuple[int, ...] = ()
    restored_fragments: tuple[int, ...] = ()
    recounted_fragments: tuple[int, ...] = ()
    dropped_indices: tuple[str, ...] = ()
    rows_before: int = 0
    rows_after: int = 0
    bytes_copied: int = 0
    rebuilt_indices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Repaired:
    """The version after a repair, and what was done."""

    snapshot: Snapshot
    report: RepairReport


def repair(
    snapshot: Snapshot,
    wishes: RepairWishes,
    *,
    dry_run: bool,
    options: CommitOptions | None = None,
) -> Repaired:
    """Mend a table, or say what that would do; a version is made only where something changes.

    Raises:
        InvalidInputError: What was asked for contradicts itself, or the source is not sound.
    """
    snapshot.check_changeable()
    check_table_exists(snapshot)
    dropped = _known(snapshot, wishes.drop_fragments)
    indices = _named(snapshot, wishes.drop_indices)
    rebuilt = {index.name for index in _named(snapshot, wishes.rebuild_indices)}
    if rebuilt & set(wishes.drop_indices):
        raise InvalidInputError("an index is dropped or rebuilt", names=sorted(rebuilt))
    restored = list(_restored(snapshot, wishes, dry_run=dry_run))
    changed = {fragment.id: fragment for fragment, _ in restored}
    recounted: dict[int, Fragment] = {}
    if wishes.rebuild_counts:
        recounted = dict(_recounted(snapshot, exclude={*dropped, *changed}))
    updated = (*changed.values(), *recounted.values())
    ids, rows = snapshot.fragments.ids.tolist(), snapshot.rows_by_fragment.tolist()
    after = {
        number: count for number, count in zip(ids, rows, strict=True) if number not in dropped
    }
    after |= {int(fragment.id): fragment.num_rows for fragment in updated}
    report = RepairReport(
        version=snapshot.version,
        dropped_fragments=tuple(sorted(dropped)),
        restored_fragments=tuple(sorted(changed)),
        recounted_fragments=tuple(sorted(recounted)),
        dropped_indices=tuple(sorted({index.name for index in indices})),
        rows_before=snapshot.num_rows,
        rows_after=sum(after.values()),
        bytes_copied=sum(size for _, size in restored),
        rebuilt_indices=tuple(sorted(rebuilt)),
    )
    if dry_run:
        return Repaired(snapshot, report)
    latest = snapshot
    if dropped or updated:
        fields = tuple(sorted(_changed_fields(snapshot, changed.values())))
        operation = Update(tuple(sorted(dropped)), tuple(updated), fields_modified=fields)
        latest = publish(latest, operation, options, _REMARKS)
    if indices:
        latest = publish(latest, CreateIndex((), indices), options, _REMARKS)
    if rebuilt:
        anew = OptimizeIndices(names=report.rebuilt_indices, retrains=True)
        latest = optimize_indices(latest, anew, options)
    return Repaired(latest, replace(report, version=latest.version))


def _known(snapshot: Snapshot, fragment_ids: Iterable[int]) -> set[int]:
    wanted = set(fragment_ids)
    unknown = wanted - set(snapshot.fragments.ids.tolist())
    if unknown:
        raise InvalidInputError("the version has no such fragments", fragments=sorted(unknown))
    return wanted


def _named(snapshot: Snapshot, names: Iterable[str]) -> tuple[IndexMetadata, ...]:
    wanted = set(names)
    found = tuple(index for index in snapshot.indices.indices if index.name in wanted)
    unknown = wanted - {index.name for index in found}
    if unknown:
        raise IndexNotFoundError("the version has no index of that name", name=min(unknown))
    return found


# --- restoring --------------------------------------------------------------------------------


def _restored(
    snapshot: Snapshot, wishes: RepairWishes, *, dry_run: bool
) -> Iterator[tuple[Fragment, int]]:
    """Yield each fragment as the source has it, and how many bytes had to be copied for it."""
    wanted = sorted(set(wishes.restore_fragments))
    if not wanted:
        return
    source = wishes.source
    if source is None:
        raise InvalidInputError("fragments are restored from a version or from a copy of the table")
    both = set(wanted) & set(wishes.drop_fragments)
    if both:
        raise InvalidInputError("a fragment is dropped or restored", fragments=sorted(both))
    is_copy = source.location.store.uri != snapshot.location.store.uri
    for fragment_id in counted("restore fragments", sorted(_known(source, wanted)), len(wanted)):
        _known(snapshot, [fragment_id])
        fragment = source.fragments.by_id(fragment_id)
        _check_sound(source, fragment)
        if is_copy:
            yield _copied(source, fragment, snapshot, dry_run=dry_run)
        else:
            yield fragment, 0


def _check_sound(source: Snapshot, fragment: Fragment) -> None:
    findings = [
        finding
        for finding in FragmentCheck(source, fragment, Level.DECODE).findings()
        if finding.severity is Severity.ERROR
    ]
    if findings:
        raise InvalidInputError(
            "the fragment to restore is damaged in the source too",
            fragment_id=int(fragment.id),
            version=source.version,
            uri=source.location.uri,
            finding=str(findings[0]),
        )


def _copied(
    source: Snapshot, fragment: Fragment, target: Snapshot, *, dry_run: bool
) -> tuple[Fragment, int]:
    """Return a fragment of a copy with its files under new names here."""
    bases, copied = source.manifest.bases, 0
    files: list[DataFile] = []
    for file in fragment.files:
        place = source.location.place(DATA, file.path, file.base_id, bases)
        new = renamed_data_file(file.path, surroundings.new_uuid())
        files.append(replace(file, path=new, base_id=None))
        stem = place.path.removesuffix(DATA_SUFFIX)
        blobs = [info.path for info in place.store.list(stem)]
        for path in (place.path, *blobs):
            goal = f"{DATA}/{new.removesuffix(DATA_SUFFIX)}{path.removeprefix(stem)}"
            copied += _copy(Place(place.store, path), target.location.store, goal, dry_run=dry_run)
    restored = replace(fragment, files=tuple(files))
    deletion = fragment.deletion_file
    if deletion is not None:
        deleted = source.deletions(fragment)
        restored = with_deletions(restored, deleted, read_version=target.version)
        assert restored.deletion_file is not None
        path = restored.deletion_file.path(fragment.id)
        data = deleted.render(path)
        copied += len(data)
        if not dry_run:
            target.location.store.put(path, data)
    return restored, copied


def _copy(source: Place, target: Store, path: str, *, dry_run: bool) -> int:
    with source.store.open_reader(source.path) as reader:
        size = reader.size
        if not dry_run:
            with target.open_writer(path) as writer:
                for start in np.arange(0, size, _COPY_BYTES).tolist():
                    part = Ranges.of((start, min(_COPY_BYTES, size - start)))
                    writer.write(reader.read_ranges(part).slice_bytes(0))
    return size


def _changed_fields(snapshot: Snapshot, restored: Iterable[Fragment]) -> set[int]:
    """Return the fields of which fragments have other values now, as far as files tell."""
    changed: set[int] = set()
    for fragment in restored:
        before = _holders(snapshot.fragments.by_id(fragment.id))
        changed |= {field for field, _ in before ^ _holders(fragment)}
    return changed


def _holders(fragment: Fragment) -> set[tuple[int, str]]:
    return {(field, file.path) for file in fragment.files for field in file.fields if field >= 0}


# --- counting ---------------------------------------------------------------------------------


def _recounted(snapshot: Snapshot, exclude: set[int]) -> Iterator[tuple[int, Fragment]]:
    """Yield the fragments whose counts are not those of their files, with the right ones."""
    for fragment in counted("count rows", snapshot.fragments, len(snapshot.fragments)):
        if fragment.id in exclude or not fragment.files:
            continue
        found = replace(
            fragment,
            physical_rows=_rows_of(snapshot, fragment),
            deletion_file=_counted_deletions(snapshot, fragment),
        )
        if found != fragment:
            yield int(fragment.id), found


def _rows_of(snapshot: Snapshot, fragment: Fragment) -> int:
    rows = set()
    for file in fragment.files:
        store, path = snapshot.location.place(
            DATA, file.path, file.base_id, snapshot.manifest.bases
        )
        stored = snapshot.stored_fields(file)
        reader = open_data_file(
            store, path, stored=stored, name=data_file_identity(path), memo=CachedHeads()
        )
        rows.add(reader.num_rows)
        reader.close()
    if len(rows) > 1:
        raise InvalidInputError(
            "the files of a fragment have different numbers of rows; drop or restore it",
            fragment_id=int(fragment.id),
            rows=sorted(rows),
        )
    return rows.pop()


def _counted_deletions(snapshot: Snapshot, fragment: Fragment) -> DeletionFile | None:
    deletion = fragment.deletion_file
    if deletion is None:
        return None
    store, path = snapshot.location.place(
        DELETIONS, name(deletion.path(fragment.id)), deletion.base_id, snapshot.manifest.bases
    )
    if not store.exists(path):
        raise InvalidInputError(
            "a deletion file is missing; drop the fragment, or restore it",
            fragment_id=int(fragment.id),
            path=path,
        )
    return replace(deletion, num_deleted_rows=len(snapshot.deletions(fragment)))
