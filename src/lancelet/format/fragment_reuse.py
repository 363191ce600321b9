"""The fragment reuse index: how compactions moved rows of indices that were not rewritten.

    version 4   group   old fragments 0, 1 (100 rows each, 3 deleted)    new fragment 7 (197 rows)
                        the addresses of the 197 surviving rows
    version 9   group   old fragment 7 ...

The i-th surviving row, ordered by old fragment and offset, is the i-th row of the new fragments.
Row addresses read from an older index are mapped through all later versions, oldest first.

The index details contain the versions, or name a file in the index directory that does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyroaring import FrozenBitMap

from lancelet.errors import CorruptDataError
from lancelet.format.fragment import Fragment
from lancelet.format.index_metadata import AnyDetails, IndexMetadata
from lancelet.format.protos import index_details_pb, table_pb
from lancelet.format.roaring import parse_treemap
from lancelet.format.wire import parse_message, render_message
from lancelet.values import dataclass

INLINE_BYTES_MAX: Final = 204_800
DETAILS_FILE: Final = "details.binpb"
INDEX_VERSION: Final = 0

_URL: Final = "/lance.table.FragmentReuseIndexDetails"
_Details = index_details_pb.FragmentReuseIndexDetails


@dataclass(frozen=True, slots=True)
class FragmentDigest:
    """A fragment and its row counts at the time of the rewrite."""

    id: int
    physical_rows: int
    num_deleted_rows: int = 0

    @staticmethod
    def of(fragment: Fragment) -> FragmentDigest:
        """Create the digest of a fragment."""
        return FragmentDigest(fragment.id, fragment.physical_rows, fragment.num_deleted_rows)


@dataclass(frozen=True, slots=True)
class ReuseGroup:
    """Fragments that were rewritten together; `survivors` is a treemap of row addresses."""

    survivors: bytes
    old_fragments: tuple[FragmentDigest, ...]
    new_fragments: tuple[FragmentDigest, ...]

    def surviving(self) -> dict[int, FrozenBitMap]:
        """Return the offsets of the surviving rows by fragment id."""
        return parse_treemap(self.survivors)


@dataclass(frozen=True, slots=True)
class ReuseVersion:
    """The fragments that one commit rewrote, and the version it was based on."""

    dataset_version: int
    groups: tuple[ReuseGroup, ...]


@dataclass(frozen=True, slots=True)
class ExternalContent:
    """The byte range of the content in a file of the index directory."""

    path: str
    offset: int
    size: int


def parse_details(details: AnyDetails | None) -> tuple[ReuseVersion, ...] | ExternalContent:
    """Parse the index details to the versions, or to the byte range that contains them."""
    proto = parse_message(_Details, b"" if details is None else details.value)
    match proto.WhichOneof("content"):
        case "inline":
            return _from_content(proto.inline)
        case "external":
            file = proto.external
            return ExternalContent(file.path, file.offset, file.size)
        case _:
            raise CorruptDataError("the fragment reuse index is empty")


def parse_content(data: bytes) -> tuple[ReuseVersion, ...]:
    """Parse the versions stored in a separate file."""
    return _from_content(parse_message(_Details.InlineContent, data))


def render_content(versions: Iterable[ReuseVersion]) -> bytes:
    """Serialize versions, oldest first."""
    return render_message(_to_content(versions))


def inline_details(versions: Iterable[ReuseVersion]) -> AnyDetails:
    """Create index details that contain the versions."""
    return AnyDetails(_URL, render_message(_Details(inline=_to_content(versions))))


def external_details(size: int) -> AnyDetails:
    """Create index details that name a file of `size` bytes with the versions."""
    external = table_pb.ExternalFile(path=DETAILS_FILE, offset=0, size=size)
    return AnyDetails(_URL, render_message(_Details(external=external)))


def replaced_coverage(
    index: IndexMetadata, versions: Iterable[ReuseVersion]
) -> FrozenBitMap | None:
    """Return the fragments that a segment covers after its row addresses are mapped.

    A group that the segment covers only in part cannot be mapped and remains unchanged.
    """
    covered = index.fragment_bitmap
    if covered is None:
        return None
    for version in versions:
        for group in version.groups:
            old = FrozenBitMap(fragment.id for fragment in group.old_fragments)
            if old and old.issubset(covered):
                new = FrozenBitMap(fragment.id for fragment in group.new_fragments)
                covered = FrozenBitMap((covered - old) | new)
    return covered


def _to_content(
    versions: Iterable[ReuseVersion],
) -> index_details_pb.FragmentReuseIndexDetails.InlineContent:
    ordered = sorted(versions, key=lambda version: version.dataset_version)
    return _Details.InlineContent(
        versions=[
            _Details.Version(
                dataset_version=version.dataset_version,
                groups=[
                    _Details.Group(
                        changed_row_addrs=group.survivors,
                        old_fragments=map(_digest_to_proto, group.old_fragments),
                        new_fragments=map(_digest_to_proto, group.new_fragments),
                    )
                    for group in version.groups
                ],
            )
            for version in ordered
        ]
    )


def _from_content(
    content: index_details_pb.FragmentReuseIndexDetails.InlineContent,
) -> tuple[ReuseVersion, ...]:
    return tuple(
        ReuseVersion(
            version.dataset_version,
            tuple(
                ReuseGroup(
                    group.changed_row_addrs,
                    tuple(map(_digest_from_proto, group.old_fragments)),
                    tuple(map(_digest_from_proto, group.new_fragments)),
                )
                for group in version.groups
            ),
        )
        for version in content.versions
    )


def _digest_to_proto(
    digest: FragmentDigest,
) -> index_details_pb.FragmentReuseIndexDetails.FragmentDigest:
    return _Details.FragmentDigest(
        id=digest.id,
        physical_rows=digest.physical_rows,
        num_deleted_rows=digest.num_deleted_rows,
    )


def _digest_from_proto(
    proto: index_details_pb.FragmentReuseIndexDetails.FragmentDigest,
) -> FragmentDigest:
    return FragmentDigest(proto.id, proto.physical_rows, proto.num_deleted_rows)
