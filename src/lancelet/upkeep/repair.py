"""Repair a table in new versions; older versions retain the damaged state for inspection.

    drop fragment 3              removes its rows, so that the other fragments can be read
    restore fragment 3 from 7    uses the fragment of version 7, if its files are valid
    restore fragment 3 of a copy copies its files into the table under new names
    rebuild counts               counts rows and deleted rows in the files
    drop index by_id             removes the index; filters scan the column
    rebuild index by_id          rebuilds the index from the rows with the same parameters

One commit repairs fragments and counts. Dropping and rebuilding indices take separate commits,
since no operation of the format combines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteRanges
from lancelet.change.progress import counted
from lancelet.change.publish import CommitProperties, publish
from lancelet.errors import IndexNotFoundError, InvalidInputError
from lancelet.file.header_cache import PageHeaderCache
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
from lancelet.table.commit import CommitOptions, check_table_exists
from lancelet.table.conflict.rebase import with_deletions
from lancelet.table.location import StorePath
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.check.files import FragmentCheck
from lancelet.upkeep.check.finding import Level, Severity
from lancelet.upkeep.indexing.optimize import OptimizeIndices, optimize_indices
from lancelet.values import dataclass

_COPY_BYTES: Final = 8 * 1024 * 1024
_COMMIT_PROPERTIES: Final = CommitProperties("repair")


@dataclass(frozen=True, slots=True, eq=False)
class RepairOptions:
    """The repairs to perform.

    Attributes:
        drop_fragments: The ids of fragments to remove.
        restore_fragments: The ids of fragments to restore from `source`.
        source: An older version of the table, or a version of a copy.
        drop_indices: The names of indices to drop.
        rebuild_counts: Whether to recount the rows of all fragments in their files.
        rebuild_indices: The names of indices to rebuild.
    """

    drop_fragments: tuple[int, ...] = ()
    restore_fragments: tuple[int, ...] = ()
    source: Snapshot | None = None
    drop_indices: tuple[str, ...] = ()
    rebuild_counts: bool = False
    rebuild_indices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of a repair or of its dry run.

    Attributes:
        version: The new version, or in a dry run the version that was examined.
        dropped_fragments: The ids of removed fragments.
        restored_fragments: The ids of restored fragments.
        recounted_fragments: The ids of fragments with corrected counts.
        dropped_indices: The names of dropped indices.
        rebuilt_indices: The names of rebuilt indices.
        rows_before: The number of rows before the repair according to the manifest.
        rows_after: The number of rows after the repair.
        bytes_copied: The number of bytes copied from a copy of the table.
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
    """The version after a repair, and its report."""

    snapshot: Snapshot
    report: RepairReport


def repair(
    snapshot: Snapshot,
    repairs: RepairOptions,
    *,
    dry_run: bool,
    options: CommitOptions | None = None,
) -> Repaired:
    """Repair a table, or report the effect of the repairs in a dry run.

    No version is created if nothing changes.

    Raises:
        InvalidInputError: The options contradict each other, or the source is damaged.
    """
    snapshot.check_changeable()
    check_table_exists(snapshot)
    dropped = _check_fragments(snapshot, repairs.drop_fragments)
    indices = _select_indices(snapshot, repairs.drop_indices)
    rebuilt = {index.name for index in _select_indices(snapshot, repairs.rebuild_indices)}
    if rebuilt & set(repairs.drop_indices):
        raise InvalidInputError(
            "an index cannot be both dropped and rebuilt", names=sorted(rebuilt)
        )
    restored = list(_restore_fragments(snapshot, repairs, dry_run=dry_run))
    changed = {fragment.id: fragment for fragment, _ in restored}
    recounted: dict[int, Fragment] = {}
    if repairs.rebuild_counts:
        recounted = dict(_recount(snapshot, exclude={*dropped, *changed}))
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
        latest = publish(latest, operation, options, _COMMIT_PROPERTIES)
    if indices:
        latest = publish(latest, CreateIndex((), indices), options, _COMMIT_PROPERTIES)
    if rebuilt:
        rebuild = OptimizeIndices(names=report.rebuilt_indices, retrains=True)
        latest = optimize_indices(latest, rebuild, options)
    return Repaired(latest, replace(report, version=latest.version))


def _check_fragments(snapshot: Snapshot, fragment_ids: Iterable[int]) -> set[int]:
    requested = set(fragment_ids)
    unknown = requested - set(snapshot.fragments.ids.tolist())
    if unknown:
        raise InvalidInputError(
            "the version does not contain these fragments", fragments=sorted(unknown)
        )
    return requested


def _select_indices(snapshot: Snapshot, names: Iterable[str]) -> tuple[IndexMetadata, ...]:
    requested = set(names)
    indices = tuple(index for index in snapshot.indices.indices if index.name in requested)
    unknown = requested - {index.name for index in indices}
    if unknown:
        raise IndexNotFoundError("the version has no index with this name", name=min(unknown))
    return indices


# --- restoring --------------------------------------------------------------------------------


def _restore_fragments(
    snapshot: Snapshot, repairs: RepairOptions, *, dry_run: bool
) -> Iterator[tuple[Fragment, int]]:
    """Yield each restored fragment and the number of bytes copied for it."""
    requested = sorted(set(repairs.restore_fragments))
    if not requested:
        return
    source = repairs.source
    if source is None:
        raise InvalidInputError(
            "restoring fragments needs a source: an older version, or a copy of the table"
        )
    both = set(requested) & set(repairs.drop_fragments)
    if both:
        raise InvalidInputError(
            "a fragment cannot be both dropped and restored", fragments=sorted(both)
        )
    is_copy = source.location.store.uri != snapshot.location.store.uri
    for fragment_id in counted(
        "restore fragments", sorted(_check_fragments(source, requested)), len(requested)
    ):
        _check_fragments(snapshot, [fragment_id])
        fragment = source.fragments.by_id(fragment_id)
        _check_undamaged(source, fragment)
        if is_copy:
            yield _copy_fragment(source, fragment, snapshot, dry_run=dry_run)
        else:
            yield fragment, 0


def _check_undamaged(source: Snapshot, fragment: Fragment) -> None:
    findings = [
        finding
        for finding in FragmentCheck(source, fragment, Level.DECODE).findings()
        if finding.severity is Severity.ERROR
    ]
    if findings:
        raise InvalidInputError(
            "the fragment to restore is also damaged in the source",
            fragment_id=int(fragment.id),
            version=source.version,
            uri=source.location.uri,
            finding=str(findings[0]),
        )


def _copy_fragment(
    source: Snapshot, fragment: Fragment, target: Snapshot, *, dry_run: bool
) -> tuple[Fragment, int]:
    """Copy a fragment of another table, with new file names."""
    bases, copied = source.manifest.bases, 0
    files: list[DataFile] = []
    for file in fragment.files:
        location = source.location.resolve(DATA, file.path, file.base_id, bases)
        new = renamed_data_file(file.path, surroundings.new_uuid())
        files.append(replace(file, path=new, base_id=None))
        stem = location.path.removesuffix(DATA_SUFFIX)
        blobs = [info.path for info in location.store.list(stem)]
        for path in (location.path, *blobs):
            target_path = f"{DATA}/{new.removesuffix(DATA_SUFFIX)}{path.removeprefix(stem)}"
            copied += _copy(
                StorePath(location.store, path), target.location.store, target_path, dry_run=dry_run
            )
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


def _copy(source: StorePath, target: Store, path: str, *, dry_run: bool) -> int:
    with source.store.open_reader(source.path) as reader:
        size = reader.size
        if not dry_run:
            with target.open_writer(path) as writer:
                for start in np.arange(0, size, _COPY_BYTES).tolist():
                    part = ByteRanges.of((start, min(_COPY_BYTES, size - start)))
                    writer.write(reader.read_ranges(part).slice_bytes(0))
    return size


def _changed_fields(snapshot: Snapshot, restored: Iterable[Fragment]) -> set[int]:
    """Return the ids of fields whose data files differ from those of the snapshot."""
    changed: set[int] = set()
    for fragment in restored:
        before = _field_files(snapshot.fragments.by_id(fragment.id))
        changed |= {field for field, _ in before ^ _field_files(fragment)}
    return changed


def _field_files(fragment: Fragment) -> set[tuple[int, str]]:
    return {(field, file.path) for file in fragment.files for field in file.fields if field >= 0}


# --- counting ---------------------------------------------------------------------------------


def _recount(snapshot: Snapshot, exclude: set[int]) -> Iterator[tuple[int, Fragment]]:
    """Yield the fragments whose stored counts are wrong, with the correct counts."""
    for fragment in counted("count rows", snapshot.fragments, len(snapshot.fragments)):
        if fragment.id in exclude or not fragment.files:
            continue
        recounted = replace(
            fragment,
            physical_rows=_count_rows(snapshot, fragment),
            deletion_file=_recount_deletions(snapshot, fragment),
        )
        if recounted != fragment:
            yield int(fragment.id), recounted


def _count_rows(snapshot: Snapshot, fragment: Fragment) -> int:
    rows = set()
    for file in fragment.files:
        store, path = snapshot.location.resolve(
            DATA, file.path, file.base_id, snapshot.manifest.bases
        )
        stored = snapshot.stored_fields(file)
        reader = open_data_file(
            store,
            path,
            stored=stored,
            name=data_file_identity(path),
            header_cache=PageHeaderCache(),
        )
        rows.add(reader.num_rows)
        reader.close()
    if len(rows) > 1:
        raise InvalidInputError(
            "the files of a fragment have different row counts; drop or restore the fragment",
            fragment_id=int(fragment.id),
            rows=sorted(rows),
        )
    return rows.pop()


def _recount_deletions(snapshot: Snapshot, fragment: Fragment) -> DeletionFile | None:
    deletion = fragment.deletion_file
    if deletion is None:
        return None
    store, path = snapshot.location.resolve(
        DELETIONS, name(deletion.path(fragment.id)), deletion.base_id, snapshot.manifest.bases
    )
    if not store.exists(path):
        raise InvalidInputError(
            "a deletion file is missing; drop or restore the fragment",
            fragment_id=int(fragment.id),
            path=path,
        )
    return replace(deletion, num_deleted_rows=len(snapshot.deletions(fragment)))
