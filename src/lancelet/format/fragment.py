"""Fragments: rows that share data files, with their deletions.

    fragment 7, physical rows 100
      file a.lance   fields [0, 1, 2]   columns [0, -1, 1]
      file b.lance   fields [3]         columns [0]           added later
      deleted 3 rows, in _deletions/7-12-<id>.arrow

A field that no file lists is null in every row. Field id -2 marks a column that a later file
replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import IntEnum
from typing import Final, NewType, TypeAlias

from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.paths import DELETIONS
from lancelet.format.protos import table_pb
from lancelet.format.version import FileVersion
from lancelet.format.wire import parse_message, render_message, unknown_fields
from lancelet.values import dataclass

FragmentId = NewType("FragmentId", int)

TOMBSTONE: Final = -2
"""Field id of a column that another file replaces."""

NO_FIELD: Final = -1
"""Field id of a field without an assigned id; never stored."""

ROW_ID_FIELD: Final = -3
CREATED_AT_VERSION_FIELD: Final = -4
LAST_UPDATED_AT_VERSION_FIELD: Final = -5
"""Field ids of the columns that store spilled sequences of a fragment."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """The manifest entry of a data file: its fields and their column indices.

    `path` is relative to the data directory of the base. A size of 0 means unknown.
    """

    path: str
    fields: tuple[int, ...]
    column_indices: tuple[int, ...] = ()
    major_version: int = 0
    minor_version: int = 0
    size_bytes: int = 0
    base_id: int | None = None
    unknown: bytes = b""

    @property
    def version(self) -> FileVersion:
        """The file version."""
        return FileVersion.from_numbers(self.major_version, self.minor_version)


class DeletionFileType(IntEnum):
    """The two formats of a deletion file."""

    ARROW_ARRAY = 0
    BITMAP = 1

    @property
    def suffix(self) -> str:
        """The file name extension."""
        return "arrow" if self is DeletionFileType.ARROW_ARRAY else "bin"


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The manifest entry of a deletion file."""

    file_type: DeletionFileType
    read_version: int
    id: int
    num_deleted_rows: int
    base_id: int | None = None
    unknown: bytes = b""

    def path(self, fragment_id: int) -> str:
        """Return the path relative to the root of the base.

        >>> DeletionFile(DeletionFileType.BITMAP, read_version=2, id=9, num_deleted_rows=1).path(0)
        '_deletions/0-2-9.bin'
        """
        return f"{DELETIONS}/{fragment_id}-{self.read_version}-{self.id}.{self.file_type.suffix}"


@dataclass(frozen=True, slots=True)
class Inline:
    """A sequence stored in the fragment as a serialized message."""

    data: bytes


@dataclass(frozen=True, slots=True)
class External:
    """A sequence stored in a byte range of another file; the path is relative to the table root."""

    path: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Spilled:
    """A sequence stored as a column of the data files."""


StoredSequence: TypeAlias = Inline | External | Spilled
"""The storage of row ids or row versions."""


@dataclass(frozen=True, slots=True)
class DataOverlay:
    """An overlay: new values for some rows of a fragment that take precedence over its data files.

    `coverage` contains Roaring bitmaps of row offsets: one for all fields, or one per field.
    """

    data_file: DataFile
    coverage: bytes | tuple[bytes, ...] | None
    committed_version: int = 0
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A group of rows that share data files."""

    id: FragmentId
    files: tuple[DataFile, ...]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_ids: StoredSequence | None = None
    last_updated_at_versions: StoredSequence | None = None
    created_at_versions: StoredSequence | None = None
    overlays: tuple[DataOverlay, ...] = ()
    clustering_id: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    unknown: bytes = b""

    @property
    def num_deleted_rows(self) -> int:
        """The number of deleted rows."""
        return self.deletion_file.num_deleted_rows if self.deletion_file else 0

    @property
    def num_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.physical_rows - self.num_deleted_rows

    @property
    def data_bytes(self) -> int:
        """The total size of the data files in bytes; old manifests do not record it."""
        return sum(file.size_bytes or 0 for file in self.files)

    @property
    def has_spilled_lineage(self) -> bool:
        """Whether row ids or row versions are stored as columns of the data files."""
        sequences = (self.row_ids, self.last_updated_at_versions, self.created_at_versions)
        return any(isinstance(sequence, Spilled) for sequence in sequences)

    def find_file(self, field_id: int) -> DataFile | None:
        """Return the file that contains a field, or None if the field is null in every row."""
        return next((file for file in self.files if field_id in file.fields), None)

    @staticmethod
    def parse(data: bytes | memoryview) -> Fragment:
        """Parse a serialized fragment."""
        return Fragment.from_proto(parse_message(table_pb.DataFragment, data))

    def render(self) -> bytes:
        """Serialize the fragment."""
        return render_message(self.to_proto())

    @staticmethod
    def from_proto(proto: table_pb.DataFragment) -> Fragment:
        """Convert a protobuf message to a fragment."""
        deletion = proto.deletion_file if proto.HasField("deletion_file") else None
        fragment = Fragment(
            id=FragmentId(proto.id),
            files=tuple([data_file_from_proto(file) for file in proto.files]),
            physical_rows=proto.physical_rows,
            deletion_file=None if deletion is None else _deletion_from_proto(deletion),
            row_ids=_sequence_from_proto(proto, "row_id_sequence"),
            last_updated_at_versions=_sequence_from_proto(
                proto, "last_updated_at_version_sequence"
            ),
            created_at_versions=_sequence_from_proto(proto, "created_at_version_sequence"),
            overlays=tuple([overlay_from_proto(overlay) for overlay in proto.overlays]),
            clustering_id=proto.clustering_id if proto.HasField("clustering_id") else None,
            metadata=dict(proto.metadata),
            unknown=unknown_fields(proto),
        )
        if fragment.id >= 1 << 32 or fragment.num_deleted_rows > fragment.physical_rows > 0:
            raise CorruptDataError(
                "a fragment has contradictory row counts",
                fragment_id=fragment.id,
                physical_rows=fragment.physical_rows,
                num_deleted_rows=fragment.num_deleted_rows,
            )
        return fragment

    def to_proto(self) -> table_pb.DataFragment:
        """Convert the fragment to a protobuf message."""
        proto = table_pb.DataFragment(
            id=self.id,
            files=[data_file_to_proto(file) for file in self.files],
            physical_rows=self.physical_rows,
            overlays=[overlay_to_proto(overlay) for overlay in self.overlays],
            clustering_id=self.clustering_id,
            metadata=self.metadata,
        )
        if self.deletion_file is not None:
            proto.deletion_file.MergeFrom(_deletion_to_proto(self.deletion_file))
        _sequence_to_proto(self.row_ids, proto, "row_ids")
        _sequence_to_proto(self.last_updated_at_versions, proto, "last_updated_at_versions")
        _sequence_to_proto(self.created_at_versions, proto, "created_at_versions")
        if self.unknown:
            proto.MergeFromString(self.unknown)
        return proto


def data_file_from_proto(proto: table_pb.DataFile) -> DataFile:
    """Convert a protobuf message to a data file entry."""
    file = DataFile(
        path=proto.path,
        fields=tuple(proto.fields),
        column_indices=tuple(proto.column_indices),
        major_version=proto.file_major_version,
        minor_version=proto.file_minor_version,
        size_bytes=proto.file_size_bytes,
        base_id=proto.base_id if proto.HasField("base_id") else None,
        unknown=unknown_fields(proto),
    )
    if file.column_indices and len(file.column_indices) != len(file.fields):
        raise CorruptDataError(
            "a data file does not list one column index per field",
            path=file.path,
            fields=len(file.fields),
            columns=len(file.column_indices),
        )
    return file


def data_file_to_proto(file: DataFile) -> table_pb.DataFile:
    """Convert a data file entry to a protobuf message.

    Raises:
      InvalidInputError: If a field has no id (-1). Readers would return nulls for it.
    """
    if NO_FIELD in file.fields:
        raise InvalidInputError(
            "a field of a data file has no id yet; assign the id of a table field",
            path=file.path,
            fields=list(file.fields),
        )
    proto = table_pb.DataFile(
        path=file.path,
        fields=file.fields,
        column_indices=file.column_indices,
        file_major_version=file.major_version,
        file_minor_version=file.minor_version,
        file_size_bytes=file.size_bytes,
        base_id=file.base_id,
    )
    if file.unknown:
        proto.MergeFromString(file.unknown)
    return proto


def fragments_to_protos(fragments: Iterable[Fragment]) -> list[table_pb.DataFragment]:
    """Convert fragments to protobuf messages."""
    return [fragment.to_proto() for fragment in fragments]


def fragments_from_protos(protos: Iterable[table_pb.DataFragment]) -> tuple[Fragment, ...]:
    """Convert protobuf messages to fragments."""
    return tuple(Fragment.from_proto(proto) for proto in protos)


def overlay_from_proto(proto: table_pb.DataOverlayFile) -> DataOverlay:
    """Convert a protobuf message to an overlay."""
    coverage: bytes | tuple[bytes, ...] | None = None
    match proto.WhichOneof("coverage"):
        case "shared_offset_bitmap":
            coverage = proto.shared_offset_bitmap
        case "field_coverage":
            coverage = tuple(proto.field_coverage.offset_bitmaps)
    return DataOverlay(
        data_file_from_proto(proto.data_file),
        coverage,
        proto.committed_version,
        unknown_fields(proto),
    )


def overlay_to_proto(overlay: DataOverlay) -> table_pb.DataOverlayFile:
    """Convert an overlay to a protobuf message."""
    proto = table_pb.DataOverlayFile(
        data_file=data_file_to_proto(overlay.data_file),
        committed_version=overlay.committed_version,
    )
    if isinstance(overlay.coverage, bytes):
        proto.shared_offset_bitmap = overlay.coverage
    elif overlay.coverage is not None:
        proto.field_coverage.SetInParent()
        proto.field_coverage.offset_bitmaps.extend(overlay.coverage)
    if overlay.unknown:
        proto.MergeFromString(overlay.unknown)
    return proto


def _deletion_from_proto(proto: table_pb.DeletionFile) -> DeletionFile:
    try:
        file_type = DeletionFileType(int(proto.file_type))
    except ValueError as error:
        raise CorruptDataError(
            "a deletion file has an unknown type", file_type=int(proto.file_type)
        ) from error
    return DeletionFile(
        file_type=file_type,
        read_version=proto.read_version,
        id=proto.id,
        num_deleted_rows=proto.num_deleted_rows,
        base_id=proto.base_id if proto.HasField("base_id") else None,
        unknown=unknown_fields(proto),
    )


def _deletion_to_proto(deletion: DeletionFile) -> table_pb.DeletionFile:
    proto = table_pb.DeletionFile(
        file_type=table_pb.DeletionFile.DeletionFileType.Name(deletion.file_type),
        read_version=deletion.read_version,
        id=deletion.id,
        num_deleted_rows=deletion.num_deleted_rows,
        base_id=deletion.base_id,
    )
    if deletion.unknown:
        proto.MergeFromString(deletion.unknown)
    return proto


def _sequence_from_proto(proto: table_pb.DataFragment, oneof: str) -> StoredSequence | None:
    arm = proto.WhichOneof(oneof)
    if arm is None:
        return None
    value = getattr(proto, arm)
    if arm.startswith("inline_"):
        return Inline(value)
    if arm.startswith("external_"):
        return External(value.path, value.offset, value.size)
    return Spilled()


def _sequence_to_proto(
    sequence: StoredSequence | None, proto: table_pb.DataFragment, name: str
) -> None:
    match sequence:
        case None:
            pass
        case Inline(data):
            setattr(proto, f"inline_{name}", data)
        case External(path, offset, size):
            external = getattr(proto, f"external_{name}")
            external.SetInParent()
            external.path, external.offset, external.size = path, offset, size
        case Spilled():
            getattr(proto, f"spilled_{name}").SetInParent()
