"""Run one compaction task: write the live rows of its fragments, in order, to new files.

    fragments 3, 4, 5    rows 30, 40, 35 (5 deleted)     target 50
    live                 100 rows -> 2 files of 50

Nothing changes for readers before the commit. The result can be serialized and committed elsewhere;
a failed task deletes its files if possible.

In tables with stable row ids, live rows retain their row ids and row versions:

    fragment 0   ids 0 1 2 (row 1 deleted)    created 1 1 1
    fragment 1   ids 7 3                      created 4 2
    result       ids 0 2 7 3                  created 1 1 4 2

Encoded pages can be copied, depending on the mode:

    reencode            never; the default, since few large pages read faster than many
    try_binary_copy     if no rows are deleted and all files have the same columns and version
    force_binary_copy   as above, or raise an error with the reason
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby, pairwise
from typing import Any, Final, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.buffers import Int64s
from lancelet.change.blob_copies import has_blobs, with_blob_values
from lancelet.change.report import Report
from lancelet.change.write import MAX_BYTES_PER_FILE, FileLimits, FileOptions, write_fragments
from lancelet.change.write import Target as WriteTarget
from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_rows
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.pool import map_ordered
from lancelet.file.v2.copy import check_joinable, join_files
from lancelet.file.v2.generation import assign_columns
from lancelet.file.v2.reader import FileReader
from lancelet.format.fragment import DataFile, Fragment, FragmentId, Inline
from lancelet.format.fragment_json import fragment_from_json, fragment_to_json
from lancelet.format.paths import DATA, DATA_SUFFIX, data_file_identity, data_file_name
from lancelet.format.version import FileVersion
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.scan.nodes.pack import Pack, pack_tiny
from lancelet.scan.nodes.source import FragmentSource, waits_for_storage
from lancelet.table.apply.state import with_actual_version
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.lineage import created_versions_of, row_ids_of, updated_versions_of
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.compact.options import CompactionMode, CompactionOptions
from lancelet.upkeep.compact.plan import CompactionTask, open_planned_version
from lancelet.values import dataclass

_SMALL_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, repr=False)
class CompactionMetrics(Report):
    """The number of fragments and files that a compaction replaced, including deletion files."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        """Return the sum of two metrics."""
        return CompactionMetrics(
            self.fragments_removed + other.fragments_removed,
            self.fragments_added + other.fragments_added,
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
        )

    @staticmethod
    def of(old: tuple[Fragment, ...], new: tuple[Fragment, ...]) -> CompactionMetrics:
        """Return the metrics of replacing fragments."""
        return CompactionMetrics(len(old), len(new), _num_files(old), _num_files(new))


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The result of a task: new fragments without ids, which replace the old ones at the commit."""

    original_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]
    read_version: int

    @property
    def metrics(self) -> CompactionMetrics:
        """The metrics of committing the result."""
        return CompactionMetrics.of(self.original_fragments, self.new_fragments)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        metrics = self.metrics
        return {
            "metrics": {
                "fragments_removed": metrics.fragments_removed,
                "fragments_added": metrics.fragments_added,
                "files_removed": metrics.files_removed,
                "files_added": metrics.files_added,
            },
            "new_fragments": list(map(fragment_to_json, self.new_fragments)),
            "read_version": self.read_version,
            "original_fragments": list(map(fragment_to_json, self.original_fragments)),
            "row_addrs": None,
        }

    @staticmethod
    def from_json(form: dict[str, Any]) -> RewriteResult:
        """Parse a result from JSON values."""
        return RewriteResult(
            tuple(map(fragment_from_json, form["original_fragments"])),
            tuple(map(fragment_from_json, form["new_fragments"])),
            form["read_version"],
        )


def execute_task(snapshot: Snapshot, task: CompactionTask) -> RewriteResult:
    """Write the live rows of a task's fragments to new files, without committing them."""
    fragments = task.fragments
    snapshot = open_planned_version(snapshot, task.read_version, fragments)
    rows = sum(map(snapshot.live_rows, fragments))
    new: tuple[Fragment, ...] = ()
    if rows:
        counts = rows_per_file(rows, task.options)
        new = copy_pages(snapshot, task, counts) or _reencode(snapshot, task, counts)
    return RewriteResult(fragments, with_lineage(snapshot, fragments, new), task.read_version)


def rows_per_file(rows: int, options: CompactionOptions) -> list[int]:
    """Return the row counts of new files, which differ by at most one row.

    >>> rows_per_file(9, CompactionOptions(target_rows_per_fragment=2))
    [3, 2, 2, 2]
    """
    files = max(1, rows // max(1, options.target_rows_per_fragment))
    minimum, remainder = divmod(rows, files)
    return [minimum + (number < remainder) for number in range(files)]


def _reencode(
    snapshot: Snapshot, task: CompactionTask, counts: Iterable[int]
) -> tuple[Fragment, ...]:
    options = task.options
    limits = FileLimits(
        max_rows_per_group=options.max_rows_per_group,
        max_bytes_per_file=options.max_bytes_per_file or MAX_BYTES_PER_FILE,
    )
    files = FileOptions(
        new_file_version(snapshot, options), limits, dictionaries=dictionary_values_of(snapshot)
    )
    target = WriteTarget(snapshot.location.store)
    rows = _RowQueue(live_rows(snapshot, task.fragments, options.batch_size))
    new: list[Fragment] = []
    try:
        for count in counts:
            new += write_fragments(
                [target], rows.take(count), snapshot.schema, _for_single_file(files, count)
            )
    except BaseException:
        discard_fragments(snapshot, new)
        raise
    return tuple(new)


def discard_fragments(snapshot: Snapshot, fragments: Iterable[Fragment]) -> None:
    """Delete the files of uncommitted fragments."""
    store = snapshot.location.store
    for fragment in fragments:
        for file in fragment.files:
            path = f"{DATA}/{file.path}"
            store.delete(path)
            store.delete_folder(path.removesuffix(DATA_SUFFIX))


def _for_single_file(files: FileOptions, rows: int) -> FileOptions:
    """Return options for a single file of `rows` rows, unless its bytes are limited."""
    return replace(files, limits=replace(files.limits, max_rows_per_file=rows))


class _RowQueue:
    """A stream of batches from which a given number of rows can be taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._remaining: pa.RecordBatch | None = None

    def take(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the next `count` rows."""
        while count:
            batch = next(self._batches) if self._remaining is None else self._remaining
            self._remaining = batch.slice(count) if batch.num_rows > count else None
            yield batch.slice(0, count)
            count -= min(count, batch.num_rows)


def live_rows(
    snapshot: Snapshot, fragments: tuple[Fragment, ...], batch_size: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of fragments in order, with all fields."""
    is_remote = waits_for_storage(snapshot)
    read = partial(_read_live_rows, snapshot, batch_size=batch_size)
    for is_small, group in groupby(pack_tiny(_sources(snapshot, fragments)), key=_is_small):
        if is_small:
            for batches in map_ordered(lambda each: list(read(each)), group, waits=is_remote):
                yield from batches
        else:
            for source in group:
                yield from read(source)


def _sources(snapshot: Snapshot, fragments: Iterable[Fragment]) -> Iterator[FragmentSource]:
    for fragment in fragments:
        yield FragmentSource(snapshot, fragment, with_deleted=False)


def _is_small(source: FragmentSource | Pack) -> bool:
    return isinstance(source, Pack) or source.fragment.data_bytes < _SMALL_BYTES


def _read_live_rows(
    snapshot: Snapshot, source: FragmentSource | Pack, *, batch_size: int | None
) -> Iterator[pa.RecordBatch]:
    with_blobs = has_blobs(snapshot.schema)
    start = 0
    for batch in source.iter_batches(
        snapshot.schema.fields, RowRange(0, source.num_rows), batch_size
    ):
        rows = RowRange(start, start + batch.num_rows)
        start = rows.stop
        visible = source.visible(rows)
        if visible is not None:
            positions = visible - rows.start
            arrays = [take_rows(array, positions) for array in batch.columns]
            batch = pa.RecordBatch.from_arrays(arrays, batch.schema.names)  # noqa: PLW2901 - the same rows, fewer
        if not batch.num_rows:
            continue
        if with_blobs:
            offsets = np.arange(rows.start, rows.stop) if visible is None else visible
            yield from with_blob_values(snapshot, batch, source.addresses(offsets))
        else:
            yield batch


def _num_files(fragments: tuple[Fragment, ...]) -> int:
    return sum(len(fragment.files) + (fragment.deletion_file is not None) for fragment in fragments)


class _Sequence(Protocol):
    def without(self, offsets: Int64s) -> Self: ...
    def slice(self, start: int, stop: int) -> Self: ...
    def render(self) -> bytes: ...


_S = TypeVar("_S", bound=_Sequence)


def with_lineage(
    snapshot: Snapshot, old: Sequence[Fragment], new: Sequence[Fragment]
) -> tuple[Fragment, ...]:
    """Return the new fragments with the row ids and row versions of the live old rows."""
    if not snapshot.manifest.uses_stable_row_ids:
        return tuple(new)
    rows = [fragment.physical_rows for fragment in new]

    def carry(
        read: Callable[[Snapshot, Fragment], _S], join: Callable[[list[_S]], _S]
    ) -> Iterator[Inline]:
        whole = join(
            [_without_deleted(snapshot, fragment, read(snapshot, fragment)) for fragment in old]
        )
        for start, stop in pairwise(accumulate(rows, initial=0)):
            yield Inline(whole.slice(start, stop).render())

    sequences = zip(
        carry(row_ids_of, RowIdSequence.concat),
        carry(created_versions_of, VersionSequence.concat),
        carry(updated_versions_of, VersionSequence.concat),
        strict=True,
    )
    return tuple(
        replace(
            fragment,
            row_ids=ids,
            created_at_versions=created,
            last_updated_at_versions=updated,
        )
        for fragment, (ids, created, updated) in zip(new, sequences, strict=True)
    )


def _without_deleted(snapshot: Snapshot, fragment: Fragment, sequence: _S) -> _S:
    deleted = snapshot.deletions(fragment)
    return sequence.without(deleted.to_array().astype("int64")) if deleted else sequence


def copy_pages(
    snapshot: Snapshot, task: CompactionTask, counts: Sequence[int]
) -> tuple[Fragment, ...] | None:
    """Copy pages to one new fragment; return None if rows must be reencoded."""
    mode = task.options.compaction_mode
    if mode in {None, CompactionMode.REENCODE}:
        return None
    try:
        sources = _open_sources(snapshot, task, counts)
    except UnsupportedError:
        if mode is CompactionMode.FORCE_BINARY_COPY:
            raise
        return None
    version = sources[0].version
    name = data_file_name(surroundings.new_uuid())
    writer = snapshot.location.store.open_writer(f"{DATA}/{name}")
    try:
        read_bytes = task.options.binary_copy_read_batch_bytes
        summary = join_files(
            sources, snapshot.schema, writer, read_bytes=read_bytes, name=data_file_identity(name)
        )
    except BaseException:
        writer.abort()
        raise
    placement = assign_columns(snapshot.schema.fields, version)
    file = DataFile(
        name,
        tuple(placement),
        tuple(placement.values()),
        *version.entry_numbers,
        summary.size_bytes,
    )
    return (Fragment(FragmentId(0), (file,), summary.num_rows),)


def _open_sources(
    snapshot: Snapshot, task: CompactionTask, counts: Sequence[int]
) -> list[FileReader]:
    """Return the files to join; raise `UnsupportedError` if pages cannot be copied."""
    for fragment in task.fragments:
        if fragment.deletion_file or fragment.overlays or len(fragment.files) != 1:
            raise UnsupportedError(
                (
                    "pages cannot be copied: a fragment has deleted rows, overlays or several "
                    "files; use compaction mode 'reencode'"
                ),
                fragment_id=int(fragment.id),
            )
    limit = task.options.max_bytes_per_file
    if len(counts) > 1 or (limit is not None and task.num_bytes > limit):
        raise UnsupportedError(
            "pages cannot be copied: the result would have several files; "
            "use compaction mode 'reencode'"
        )
    readers = [snapshot.open_file(fragment.files[0]) for fragment in task.fragments]
    sources = [reader for reader in readers if isinstance(reader, FileReader)]
    if len(sources) < len(readers):
        raise UnsupportedError("pages cannot be copied: files of version 0.1 have no pages")
    check_joinable(sources, snapshot.schema)
    new_version = new_file_version(snapshot, task.options)
    if sources[0].version is not new_version:
        raise UnsupportedError(
            "pages cannot be copied: the files have another version than new files",
            found=sources[0].version.value,
            requested=new_version.value,
        )
    return sources


def new_file_version(snapshot: Snapshot, options: CompactionOptions) -> FileVersion:
    """Return the version of new data files."""
    table_version = with_actual_version(snapshot.manifest).data_version
    if options.data_storage_version is None:
        return table_version
    requested = FileVersion.parse(options.data_storage_version)
    if (table_version is FileVersion.V0_1) != (requested is FileVersion.V0_1):
        raise InvalidInputError(
            "a table cannot combine files of version 0.1 and later versions; write another table",
            table=table_version.value,
            requested=requested.value,
        )
    return requested
