"""Index metadata: the index segments of a version and the fragments they cover.

The segments of an index share its name and cover different fragments. The message type of `details`
determines the index type, which defines the content of the message:

    by_id   segment 5f..   fields [0]   fragments {0, 1}   /lance.table.BTreeIndexDetails
    by_id   segment a3..   fields [0]   fragments {2}      /lance.table.BTreeIndexDetails
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Mapping
from dataclasses import field
from typing import Final, TypeAlias

from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import CorruptDataError
from lancelet.format.paths import index_directory
from lancelet.format.protos import table_pb
from lancelet.format.roaring import parse_bitmap, render_bitmap
from lancelet.format.wire import parse_message, render_message, unknown_fields
from lancelet.values import dataclass

FragmentBitmap: TypeAlias = FrozenBitMap

FRAGMENT_REUSE_INDEX: Final = "__lance_frag_reuse"
MEM_WAL_INDEX: Final = "__lance_mem_wal"
SYSTEM_INDICES: Final = frozenset({FRAGMENT_REUSE_INDEX, MEM_WAL_INDEX})


@dataclass(frozen=True, slots=True)
class AnyDetails:
    """A serialized message and its type URL."""

    type_url: str
    value: bytes

    @property
    def type_name(self) -> str:
        """The unqualified message type, such as `BTreeIndexDetails`."""
        return self.type_url.rpartition("/")[2].rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of an index segment, relative to the segment directory."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """A segment of an index.

    `fragment_bitmap` is None if the covered fragments are not recorded. `created_at` is in
    milliseconds since 1970.
    """

    uuid: uuid.UUID
    name: str
    fields: tuple[int, ...]
    dataset_version: int
    fragment_bitmap: FragmentBitmap | None = None
    details: AnyDetails | None = None
    index_version: int | None = None
    created_at: int | None = None
    base_id: int | None = None
    files: tuple[IndexFile, ...] = ()
    covering_fields: tuple[int, ...] = ()
    clustering_id: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    unknown: bytes = b""

    @property
    def is_system(self) -> bool:
        """Whether the segment is internal to the format and never used by queries."""
        return self.name in SYSTEM_INDICES

    def missing_fields(self, field_ids: Container[int]) -> tuple[int, ...]:
        """Return the indexed fields that are missing from `field_ids`.

        An index build that raced a schema change could commit such an index.
        """
        if self.is_system:
            return ()
        return tuple(field_id for field_id in self.fields if field_id not in field_ids)

    @property
    def directory(self) -> str:
        """The directory of the segment files, relative to the root of the base."""
        return index_directory(self.uuid)


@dataclass(frozen=True, slots=True)
class IndexSection:
    """The segments of all indices of a version."""

    indices: tuple[IndexMetadata, ...] = ()
    unknown: bytes = b""

    @staticmethod
    def parse(data: bytes | memoryview) -> IndexSection:
        """Parse a serialized section."""
        proto = parse_message(table_pb.IndexSection, data)
        return IndexSection(tuple(map(index_from_proto, proto.indices)), unknown_fields(proto))

    def render(self) -> bytes:
        """Serialize the section."""
        proto = table_pb.IndexSection(indices=[index_to_proto(index) for index in self.indices])
        return render_message(proto) + self.unknown


def index_from_proto(proto: table_pb.IndexMetadata) -> IndexMetadata:
    """Convert a protobuf message to a segment."""
    details = None
    if proto.HasField("index_details"):
        details = AnyDetails(proto.index_details.type_url, proto.index_details.value)
    return IndexMetadata(
        uuid=uuid_from_proto(proto.uuid),
        name=proto.name,
        fields=tuple(proto.fields),
        dataset_version=proto.dataset_version,
        fragment_bitmap=parse_bitmap(proto.fragment_bitmap) if proto.fragment_bitmap else None,
        details=details,
        index_version=proto.index_version if proto.HasField("index_version") else None,
        created_at=proto.created_at if proto.HasField("created_at") else None,
        base_id=proto.base_id if proto.HasField("base_id") else None,
        files=tuple(IndexFile(file.path, file.size_bytes) for file in proto.files),
        covering_fields=tuple(proto.covering_fields),
        clustering_id=proto.clustering_id if proto.HasField("clustering_id") else None,
        metadata=dict(proto.metadata),
        unknown=unknown_fields(proto),
    )


def index_to_proto(index: IndexMetadata) -> table_pb.IndexMetadata:
    """Convert a segment to a protobuf message."""
    proto = table_pb.IndexMetadata(
        uuid=uuid_to_proto(index.uuid),
        fields=index.fields,
        name=index.name,
        dataset_version=index.dataset_version,
        index_version=index.index_version,
        created_at=index.created_at,
        base_id=index.base_id,
        files=[table_pb.IndexFile(path=f.path, size_bytes=f.size_bytes) for f in index.files],
        covering_fields=index.covering_fields,
        clustering_id=index.clustering_id,
        metadata=index.metadata,
    )
    if index.fragment_bitmap is not None:
        proto.fragment_bitmap = render_bitmap(BitMap(index.fragment_bitmap))
    if index.details is not None:
        proto.index_details.type_url = index.details.type_url
        proto.index_details.value = index.details.value
    if index.unknown:
        proto.MergeFromString(index.unknown)
    return proto


def uuid_from_proto(proto: table_pb.UUID) -> uuid.UUID:
    """Convert a protobuf message to a UUID."""
    if len(proto.uuid) != 16:
        raise CorruptDataError("a UUID must have 16 bytes", found=len(proto.uuid))
    return uuid.UUID(bytes=proto.uuid)


def uuid_to_proto(identity: uuid.UUID) -> table_pb.UUID:
    """Convert a UUID to a protobuf message."""
    return table_pb.UUID(uuid=identity.bytes)
