"""Running one task: the live rows of its fragments, in their order, in new files.

    fragments 3, 4, 5    rows 30, 40, 35 (5 deleted)     target 50
    live                 100 rows -> 2 files of 50

Nothing that readers see changes here. The result is a value that can travel to where it is
committed; a task that fails leaves no files behind, as far as the store lets it.

Row ids and row versions of rewritten fragments: those of the live rows, in their order.

    fragment 0   ids 0 1 2 (row 1 deleted)    created 1 1 1
    fragment 1   ids 7 3                      created 4 2
    together     ids 0 2 7 3                  created 1 1 4 2

Tables without stable row ids keep neither.

Rewriting fragments page by page where nothing in the pages has to change.

reencode            never, which is the default: few large pages read better than many
try_binary_copy     if no row is deleted and all files have the same columns and version
force_binary_copy   or it is an error that says why not
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
from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_rows
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.pool import map_ordered
from lancelet.file.v2.copy import check_joinable, join_files
from lancelet.file.v2.generation import place_columns
from lancelet.file.v2.reader import FileReader
from lancelet.format.fragment import DataFile, Fragment, FragmentId, Inline
from lancelet.format.fragment_json import fragment_from_json, fragment_to_json
from lancelet.format.paths import DATA, DATA_SUFFIX, data_file_identity, data_file_name
from lancelet.format.version import FileVersion
from lancelet.ops.compact.blobs import has_blobs, with_blob_values
from lancelet.ops.compact.options import CompactionMode, CompactionOptions
from lancelet.ops.compact.plan import CompactionTask, planned_version
from lancelet.ops.write import MAX_BYTES_PER_FILE, FileLimits, FileOptions, write_fragments
from lancelet.ops.write import Target as WriteTarget
from lancelet.query.nodes.pack import Pack, packed
from lancelet.query.nodes.source import FragmentSource, waits_for_storage
from lancelet.rowids.sequence import RowIdSequence
from lancelet.rowids.versions import VersionSequence
from lancelet.table.apply.state import with_actual_version
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.lineage import created_versions_of, row_ids_of, updated_versions_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_SMALL_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class CompactionMetrics:
    """How many fragments and files a compaction replaced, deletion files included."""

    fragments_removed: int = 0
    fragments_added: int = 0
    files_removed: int = 0
    files_added: int = 0

    def __add__(self, other: CompactionMetrics) -> CompactionMetrics:
        """Return the sum of both."""
        return CompactionMetrics(
            self.fragments_removed + other.fragments_removed,
            self.fragments_added + other.fragments_added,
            self.files_removed + other.files_removed,
            self.files_added + other.files_added,
        )

    @staticmethod
    def of(old: tuple[Fragment, ...], new: tuple[Fragment, ...]) -> CompactionMetrics:
        """Return what replacing some fragments by others counts as."""
        return CompactionMetrics(len(old), len(new), _num_files(old), _num_files(new))


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """What a task made: fragments without ids, to be committed in place of the old ones."""

    original_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]
    read_version: int

    @property
    def metrics(self) -> CompactionMetrics:
        """What committing the result counts as."""
        return CompactionMetrics.of(self.original_fragments, self.new_fragments)

    def to_json(self) -> dict[str, Any]:
        """Return the result as values of JSON."""
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
        """Return the result of values of JSON."""
        return RewriteResult(
            tuple(map(fragment_from_json, form["original_fragments"])),
            tuple(map(fragment_from_json, form["new_fragments"])),
            form["read_version"],
        )


def execute_task(snapshot: Snapshot, task: CompactionTask) -> RewriteResult:
    """Write the live rows of a task's fragments anew; commits nothing."""
    fragments = task.fragments
    snapshot = planned_version(snapshot, task.read_version, fragments)
    rows = sum(map(snapshot.live_rows, fragments))
    new: tuple[Fragment, ...] = ()
    if rows:
        counts = rows_per_file(rows, task.options)
        new = copied(snapshot, task, counts) or _reencoded(snapshot, task, counts)
    return RewriteResult(fragments, with_lineage(snapshot, fragments, new), task.read_version)


def rows_per_file(rows: int, options: CompactionOptions) -> list[int]:
    """Return how many rows each new file gets: about the same for all, too few for none.

    >>> rows_per_file(9, CompactionOptions(target_rows_per_fragment=2))
    [3, 2, 2, 2]
    """
    files = max(1, rows // max(1, options.target_rows_per_fragment))
    each, more = divmod(rows, files)
    return [each + (place < more) for place in range(files)]


def _reencoded(
    snapshot: Snapshot, task: CompactionTask, counts: Iterable[int]
) -> tuple[Fragment, ...]:
    options = task.options
    limits = FileLimits(
        max_rows_per_group=options.max_rows_per_group,
        max_bytes_per_file=options.max_bytes_per_file or MAX_BYTES_PER_FILE,
    )
    files = FileOptions(
        version_of_files(snapshot, options), limits, dictionaries=dictionary_values_of(snapshot)
    )
    target = WriteTarget(snapshot.location.store)
    rows = _Rows(live_rows(snapshot, task.fragments, options.batch_size))
    new: list[Fragment] = []
    try:
        for count in counts:
            new += write_fragments(
                [target], rows.take(count), snapshot.schema, _whole(files, count)
            )
    except BaseException:
        discard_fragments(snapshot, new)
        raise
    return tuple(new)


def discard_fragments(snapshot: Snapshot, fragments: Iterable[Fragment]) -> None:
    """Delete the files of fragments that were not committed and will not be."""
    store = snapshot.location.store
    for fragment in fragments:
        for file in fragment.files:
            path = f"{DATA}/{file.path}"
            store.delete(path)
            store.delete_folder(path.removesuffix(DATA_SUFFIX))


def _whole(files: FileOptions, rows: int) -> FileOptions:
    """Return options under which so many rows are one file, unless bytes are limited."""
    return replace(files, limits=replace(files.limits, max_rows_per_file=rows))


class _Rows:
    """Batches one after another, of which a given number of rows is taken at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._left: pa.RecordBatch | None = None

    def take(self, count: int) -> Iterator[pa.RecordBatch]:
        """Yield the next `count` rows."""
        while count:
            batch = next(self._batches) if self._left is None else self._left
            self._left = batch.slice(count) if batch.num_rows > count else None
            yield batch.slice(0, count)
            count -= min(count, batch.num_rows)


def live_rows(
    snapshot: Snapshot, fragments: tuple[Fragment, ...], batch_size: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of fragments that are not deleted, in their order, with all their fields."""
    waits = waits_for_storage(snapshot)
    read = partial(_live_rows_of, snapshot, batch_size=batch_size)
    for is_small, group in groupby(packed(_sources(snapshot, fragments)), key=_is_small):
        if is_small:
            for batches in map_ordered(lambda each: list(read(each)), group, waits=waits):
                yield from batches
        else:
            for source in group:
                yield from read(source)


def _sources(snapshot: Snapshot, fragments: Iterable[Fragment]) -> Iterator[FragmentSource]:
    for fragment in fragments:
        yield FragmentSource(snapshot, fragment, with_deleted=False)


def _is_small(source: FragmentSource | Pack) -> bool:
    return isinstance(source, Pack) or source.fragment.data_bytes < _SMALL_BYTES


def _live_rows_of(
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
            chosen = visible - rows.start
            arrays = [take_rows(array, chosen) for array in batch.columns]
            batch = pa.RecordBatch.from_arrays(arrays, batch.schema.names)  # noqa: PLW2901 - the same rows, fewer
        if not batch.num_rows:
            continue
        if with_blobs:
            offsets = np.arange(rows.start, rows.stop) if visible is None else visible
            yield from with_blob_values(snapshot, batch, source.addresses(offsets))
        else:
            yield batch


def _num_files(fragments: tuple[Fragment, ...]) -> int:
    return sum(len(each.files) + (each.deletion_file is not None) for each in fragments)


class _Sequence(Protocol):
    def without(self, offsets: Int64s) -> Self: ...
    def slice(self, start: int, stop: int) -> Self: ...
    def render(self) -> bytes: ...


_S = TypeVar("_S", bound=_Sequence)


def with_lineage(
    snapshot: Snapshot, old: Sequence[Fragment], new: Sequence[Fragment]
) -> tuple[Fragment, ...]:
    """Return the new fragments with the row ids and versions that the live old rows have."""
    if not snapshot.manifest.uses_stable_row_ids:
        return tuple(new)
    rows = [fragment.physical_rows for fragment in new]

    def carried(
        read: Callable[[Snapshot, Fragment], _S], join: Callable[[list[_S]], _S]
    ) -> Iterator[Inline]:
        whole = join([_live(snapshot, fragment, read(snapshot, fragment)) for fragment in old])
        for start, stop in pairwise(accumulate(rows, initial=0)):
            yield Inline(whole.slice(start, stop).render())

    sequences = zip(
        carried(row_ids_of, RowIdSequence.concat),
        carried(created_versions_of, VersionSequence.concat),
        carried(updated_versions_of, VersionSequence.concat),
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


def _live(snapshot: Snapshot, fragment: Fragment, sequence: _S) -> _S:
    deleted = snapshot.deletions(fragment)
    return sequence.without(deleted.to_array().astype("int64")) if deleted else sequence


def copied(
    snapshot: Snapshot, task: CompactionTask, counts: Sequence[int]
) -> tuple[Fragment, ...] | None:
    """Return the one new fragment if pages were copied, or None if rows are to be encoded."""
    mode = task.options.compaction_mode
    if mode in {None, CompactionMode.REENCODE}:
        return None
    try:
        sources = _copied_sources(snapshot, task, counts)
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
    placement = place_columns(snapshot.schema.fields, version)
    file = DataFile(
        name,
        tuple(placement),
        tuple(placement.values()),
        *version.entry_numbers,
        summary.size_bytes,
    )
    return (Fragment(FragmentId(0), (file,), summary.num_rows),)


def _copied_sources(
    snapshot: Snapshot, task: CompactionTask, counts: Sequence[int]
) -> list[FileReader]:
    """Return the files to join, or raise `UnsupportedError` if they cannot be."""
    for fragment in task.fragments:
        if fragment.deletion_file or fragment.overlays or len(fragment.files) != 1:
            raise UnsupportedError(
                "a fragment has deleted rows or several files, so its rows must be encoded anew",
                fragment_id=int(fragment.id),
            )
    limit = task.options.max_bytes_per_file
    if len(counts) > 1 or (limit is not None and task.num_bytes > limit):
        raise UnsupportedError("the rows make several files, so pages would have to be cut")
    readers = [snapshot.open_file(fragment.files[0]) for fragment in task.fragments]
    sources = [reader for reader in readers if isinstance(reader, FileReader)]
    if len(sources) < len(readers):
        raise UnsupportedError("files of version 0.1 have no pages that could be copied")
    check_joinable(sources, snapshot.schema)
    wanted = version_of_files(snapshot, task.options)
    if sources[0].version is not wanted:
        raise UnsupportedError(
            "the files are not of the version that new ones get",
            found=sources[0].version.value,
            wanted=wanted.value,
        )
    return sources


def version_of_files(snapshot: Snapshot, options: CompactionOptions) -> FileVersion:
    """Return the version that new files of a table get."""
    own = with_actual_version(snapshot.manifest).data_version
    if options.data_storage_version is None:
        return own
    wanted = FileVersion.parse(options.data_storage_version)
    if (own is FileVersion.V0_1) != (wanted is FileVersion.V0_1):
        raise InvalidInputError(
            "files of version 0.1 and later ones cannot be in one table; write another table",
            table=own.value,
            wanted=wanted.value,
        )
    return wanted
