"""Rewriting fragments page by page where nothing in the pages has to change.

reencode            never, which is the default: few large pages read better than many
try_binary_copy     if no row is deleted and all files have the same columns and version
force_binary_copy   or it is an error that says why not
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet import surroundings
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.v2.copy import check_joinable, join_files
from lancelet.file.v2.generation import place_columns
from lancelet.file.v2.reader import FileReader
from lancelet.format.fragment import DataFile, Fragment, FragmentId
from lancelet.format.paths import DATA, data_file_identity, data_file_name
from lancelet.format.version import FileVersion
from lancelet.ops.compact.options import CompactionMode, CompactionOptions
from lancelet.ops.compact.plan import CompactionTask
from lancelet.table.apply.state import with_true_version
from lancelet.table.snapshot import Snapshot


def copied(
    snapshot: Snapshot, task: CompactionTask, counts: Sequence[int]
) -> tuple[Fragment, ...] | None:
    """Return the one new fragment if pages were copied, or None if rows are to be encoded."""
    mode = task.options.compaction_mode
    if mode in {None, CompactionMode.REENCODE}:
        return None
    try:
        sources = _sources(snapshot, task, counts)
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


def _sources(snapshot: Snapshot, task: CompactionTask, counts: Sequence[int]) -> list[FileReader]:
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
    own = with_true_version(snapshot.manifest).data_version
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
