"""Running one task: the live rows of its fragments, in their order, in new files.

    fragments 3, 4, 5    rows 30, 40, 35 (5 deleted)     target 50
    live                 100 rows -> 2 files of 50

Nothing that readers see changes here. The result is a value that can travel to where it is
committed; a task that fails leaves no files behind, as far as the store lets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_rows
from lancelet.file.pool import map_ordered
from lancelet.format.fragment import Fragment
from lancelet.format.fragment_json import fragment_from_json, fragment_to_json
from lancelet.format.paths import DATA, DATA_SUFFIX
from lancelet.ops.compact.blobs import has_blobs, with_blob_values
from lancelet.ops.compact.copy_files import copied, version_of_files
from lancelet.ops.compact.lineage import with_lineage
from lancelet.ops.compact.options import CompactionOptions
from lancelet.ops.compact.plan import CompactionTask
from lancelet.ops.write import MAX_BYTES_PER_FILE, FileLimits, FileOptions, write_fragments
from lancelet.ops.write import Target as WriteTarget
from lancelet.query.nodes.pack import Pack, packed
from lancelet.query.nodes.source import FragmentSource, waits_for_storage
from lancelet.table.dictionaries import dictionary_values_of
from lancelet.table.snapshot import Snapshot, open_snapshot
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
    if snapshot.version != task.read_version:
        snapshot = open_snapshot(snapshot.location, task.read_version)
    fragments = task.fragments
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
