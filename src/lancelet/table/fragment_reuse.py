"""Read and maintain the fragment reuse index of a table.

    index by_id    covers {0, 1}, stores addresses in 0 and 1
    rewrite        0, 1 -> 7, recorded
    next commit    by_id covers {7}, and still stores addresses in 0 and 1
    a query        translates the addresses of by_id

The next commit updates the fragment bitmap of the index, while its files are unchanged. The bitmap
therefore does not show whether addresses need translation. All addresses are translated; those of
fragments that were never rewritten stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyroaring import FrozenBitMap

from lancelet import surroundings
from lancelet.buffers import ByteRanges
from lancelet.format.fragment_reuse import (
    DETAILS_FILE,
    INDEX_VERSION,
    INLINE_BYTES_MAX,
    ExternalContent,
    ReuseGroup,
    ReuseVersion,
    external_details,
    inline_details,
    parse_content,
    parse_details,
    render_content,
    replaced_coverage,
)
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX, IndexFile, IndexMetadata
from lancelet.format.operation import Operation, Rewrite
from lancelet.format.paths import INDICES, index_directory
from lancelet.rowids.address import UInt64s
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.moves import RowMoves, Source, Target
from lancelet.table.apply.coverage import without_overlaps
from lancelet.table.apply.state import State
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass, replace

_MILLION = 1_000_000


@dataclass(frozen=True, eq=False)
class FragmentReuse:
    """The rewrites of a table that its indices may not reflect, oldest first."""

    versions: tuple[ReuseVersion, ...] = ()

    @cached_property
    def _moves(self) -> list[list[RowMoves]]:
        return [[_moves_of(group) for group in version.groups] for version in self.versions]

    def check(self) -> None:
        """Raise `CorruptDataError` if a rewrite changes the row count of a group."""
        self._moves  # noqa: B018 - working them out is the check

    def translate(self, addresses: UInt64s) -> UInt64s:
        """Return the current addresses of rows, or `NO_ADDRESS` for deleted rows."""
        for groups in self._moves:
            moved = addresses
            for moves in groups:
                # The groups of one version have different fragments, so their order is irrelevant.
                moved = moves.translate(moved)
            addresses = moved
        return addresses


def fragment_reuse_of(snapshot: Snapshot) -> FragmentReuse:
    """Return the rewrites that the indices of a version may not reflect."""
    entry = _entry_of(snapshot.indices.indices)
    if entry is None:
        return FragmentReuse()
    return snapshot.location.metadata_cache.get_or_make(
        ("fragment reuse", entry.uuid), lambda: FragmentReuse(_read(snapshot, entry))
    )


def current_coverage(snapshot: Snapshot) -> tuple[IndexMetadata, ...]:
    """Return the index segments of a version, with current fragments and without overlaps."""
    return without_overlaps(remapped_indices(snapshot))


def remapped_indices(snapshot: Snapshot) -> tuple[IndexMetadata, ...]:
    """Return the index segments of a version with recorded rewrites applied to their bitmaps."""
    indices = snapshot.indices.indices
    versions = fragment_reuse_of(snapshot).versions
    if not versions:
        return indices
    return tuple(
        index
        if index.is_system
        else replace(index, fragment_bitmap=replaced_coverage(index, versions))
        for index in indices
    )


def with_recorded_moves(state: State, operation: Operation, base: Snapshot) -> State:
    """Return the state to commit with the row moves of the operation added to the reuse index.

    Content that is too large for the manifest is written to a file of the new index.
    """
    if not isinstance(operation, Rewrite) or not operation.moves:
        return state
    before = fragment_reuse_of(base).versions
    versions = (*before, ReuseVersion(base.version, operation.moves))
    entry = _new_entry(versions, base, _entry_of(state.indices))
    others = tuple(index for index in state.indices if index.name != FRAGMENT_REUSE_INDEX)
    return replace(state, indices=(*others, entry))


def trimmed_entry(
    snapshot: Snapshot, indices: Sequence[IndexMetadata]
) -> tuple[IndexMetadata, IndexMetadata] | None:
    """Return the reuse index entry of a version, and a copy without obsolete rewrites.

    A rewrite is obsolete if all of `indices` reflect it.

    An index reflects a rewrite if it was built later and covers none of the replaced fragments.
    Returns None if all rewrites are still needed.
    """
    entry = _entry_of(snapshot.indices.indices)
    versions = fragment_reuse_of(snapshot).versions
    needed = tuple(
        version
        for version in versions
        if not all(index.is_system or _reflects(index, version) for index in indices)
    )
    if entry is None or len(needed) == len(versions):
        return None
    return entry, _new_entry(needed, snapshot, entry)


def _reflects(index: IndexMetadata, version: ReuseVersion) -> bool:
    if index.dataset_version < version.dataset_version:
        return False
    covered = index.fragment_bitmap or FrozenBitMap()
    old = (digest.id for group in version.groups for digest in group.old_fragments)
    return not any(fragment_id in covered for fragment_id in old)


def _new_entry(
    versions: Sequence[ReuseVersion], base: Snapshot, before: IndexMetadata | None
) -> IndexMetadata:
    identity = surroundings.new_uuid()
    content = render_content(versions)
    details = inline_details(versions)
    files: tuple[IndexFile, ...] = ()
    if len(content) > INLINE_BYTES_MAX:
        base.location.store.put(f"{index_directory(identity)}/{DETAILS_FILE}", content)
        details = external_details(len(content))
        files = (IndexFile(DETAILS_FILE, len(content)),)
    last = versions[-1].groups if versions else ()
    new = (digest.id for group in last for digest in group.new_fragments)
    return IndexMetadata(
        uuid=identity,
        name=FRAGMENT_REUSE_INDEX,
        fields=(),
        dataset_version=base.version,
        fragment_bitmap=FrozenBitMap(new),
        details=details,
        index_version=INDEX_VERSION if before is None else before.index_version,
        created_at=surroundings.time_ns() // _MILLION,
        files=files,
    )


def _entry_of(indices: Sequence[IndexMetadata]) -> IndexMetadata | None:
    return next((index for index in indices if index.name == FRAGMENT_REUSE_INDEX), None)


def _read(snapshot: Snapshot, entry: IndexMetadata) -> tuple[ReuseVersion, ...]:
    content = parse_details(entry.details)
    if not isinstance(content, ExternalContent):
        return content
    path = f"{entry.uuid}/{content.path}"
    store, path = snapshot.location.resolve(INDICES, path, entry.base_id, snapshot.manifest.bases)
    with store.open_reader(path) as reader:
        content_bytes = reader.read_ranges(ByteRanges.of((content.offset, content.size)))
        return parse_content(content_bytes.slice_bytes(0).tobytes())


def _moves_of(group: ReuseGroup) -> RowMoves:
    surviving = group.surviving()
    sources = []
    for digest in group.old_fragments:
        live = surviving.get(digest.id, FrozenBitMap())
        deleted = FrozenBitMap(range(digest.physical_rows)) - live
        sources.append(
            Source(digest.id, digest.physical_rows, DeletionVector(FrozenBitMap(deleted)))
        )
    targets = (Target(digest.id, digest.physical_rows) for digest in group.new_fragments)
    return RowMoves.of(sources, targets)
