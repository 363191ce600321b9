"""Manifests: the complete metadata of a table version.

A manifest contains the schema, the fragments, the feature flags, and counters that never decrease.
See `manifest_file` for the layout of its file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, Self

from lancelet.buffers import Bytes
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.base_paths import BasePath, base_path_from_proto, base_path_to_proto
from lancelet.format.flags import Feature, commit_flags
from lancelet.format.fragment_list import (
    FragmentList,
    FragmentWire,
    split_entries,
)
from lancelet.format.protos import table_pb
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.format.wire import parse_message, render_message, unknown_fields
from lancelet.values import dataclass, replace

NANOSECONDS: Final = 1_000_000_000
FILE_FORMAT: Final = "lance"

_RELEASE: Final = re.compile(r"(\d+(?:\.\d+)*)[.-]?([^+]*)(?:\+(.+))?")
_CACHED_SCHEMAS_MAX: Final = 16

_ID_BYTES: Final = 8
_ANCESTORS_MAX: Final = 32

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX: Final = (
    253_402_300_799  # End of the year 9999, the maximum of the protobuf Timestamp.
)


class MissingRowIdsError(CorruptDataError, ValueError):
    """A fragment of a table with stable row ids has no row ids."""


@dataclass(frozen=True, slots=True)
class WriterVersion:
    """The library that wrote a manifest, and its version."""

    library: str
    version: str
    prerelease: str | None = None
    build_metadata: str | None = None

    @staticmethod
    def of(library: str, release: str) -> WriterVersion:
        """Parse a Python version string.

        >>> WriterVersion.of("lancelet", "1.2.0rc1+g5f")
        WriterVersion(library='lancelet', version='1.2.0', prerelease='rc1', build_metadata='g5f')
        """
        match = _RELEASE.fullmatch(release)
        if match is None:
            return WriterVersion(library, release)
        version, prerelease, build = match.groups()
        return WriterVersion(library, version, prerelease or None, build)

    def __str__(self) -> str:
        """Return the library and its version in semantic versioning notation."""
        prerelease = f"-{self.prerelease}" if self.prerelease else ""
        build = f"+{self.build_metadata}" if self.build_metadata else ""
        return f"{self.library} {self.version}{prerelease}{build}"


@dataclass(frozen=True, slots=True)
class Clustering:
    """A sort order of rows."""

    id: int
    columns: tuple[int, ...]
    provider: str
    version: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The metadata of one version of a table.

    `timestamp_ns` is in nanoseconds since 1970, UTC. `max_fragment_id` is the highest id ever used,
    and None before the first fragment. `next_row_id` is used by tables with stable row ids.
    `version_aux_data` is the position of auxiliary data in the manifest file, or 0. `tag` is the
    version name of old releases. `blob_dataset_version` is the version of the separate blob table
    of old releases, or 0. `ancestors` contains the identifiers of earlier versions,
    derived from their transaction files, as far as writers recorded them.
    """

    schema: Schema
    fragments: FragmentList
    version: int
    data_version: FileVersion
    timestamp_ns: int = 0
    reader_flags: int = 0
    writer_flags: int = 0
    max_fragment_id: int | None = None
    transaction_file: str = ""
    next_row_id: int = 0
    writer_version: WriterVersion | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str] = field(default_factory=dict)
    base_paths: tuple[BasePath, ...] = ()
    branch: str | None = None
    tag: str = ""
    version_aux_data: int = 0
    blob_dataset_version: int = 0
    max_allocated_field_id: int | None = None
    clustering: tuple[Clustering, ...] = ()
    max_clustering_id: int = 0
    ancestors: bytes = b""
    unknown: bytes = b""

    @property
    def timestamp(self) -> datetime:
        """The commit time of the version, UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    @property
    def uses_stable_row_ids(self) -> bool:
        """Whether row ids remain stable when rows move."""
        return bool(self.reader_flags & Feature.STABLE_ROW_IDS)

    @property
    def bases(self) -> dict[int, BasePath]:
        """The base paths by id."""
        return {base.id: base for base in self.base_paths}

    @property
    def num_rows(self) -> int:
        """The number of rows that are not deleted."""
        return self.fragments.num_rows

    @property
    def max_field_id(self) -> int:
        """The highest field id of the schema, or the highest ever allocated if that is recorded."""
        return max(self.schema.max_field_id, self.max_allocated_field_id or -1)

    def check_row_ids(self) -> None:
        """Raise if a table with stable row ids has a fragment without row ids.

        Rewriting such a fragment would assign duplicate row ids, and indices would return wrong
        rows.
        """
        has_row_ids = self.fragments.has_row_ids
        if self.uses_stable_row_ids and not has_row_ids.all():
            raise MissingRowIdsError(
                "the table has stable row ids, but a fragment has none; restore an older "
                "version, or overwrite the table",
                fragment_id=int(self.fragments.ids[int((~has_row_ids).argmax())]),
                version=self.version,
            )

    def ancestor(self, version: int) -> bytes | None:
        """Return the identifier of an earlier version, or None if it is not recorded."""
        start = (self.version - version - 1) * _ID_BYTES
        identifier = self.ancestors[start : start + _ID_BYTES] if start >= 0 else b""
        return identifier or None

    def child_ancestors(self) -> bytes:
        """Return the `ancestors` of the next version."""
        if not self.transaction_file:
            return b""
        return (version_identifier(self.transaction_file) + self.ancestors)[
            : _ANCESTORS_MAX * _ID_BYTES
        ]

    def with_flags(self, *, version: int | None = None) -> Self:
        """Return a copy with recomputed feature flags and, optionally, a new version."""
        fragments = self.fragments
        reader, writer = commit_flags(
            self.reader_flags,
            self.writer_flags,
            deletion_files=bool(fragments.has_deletion_file.any()),
            config=bool(self.config),
            base_paths=bool(self.base_paths),
            spilled_lineage=bool(fragments.has_spilled_lineage.any()),
            data_overlays=bool(fragments.has_overlays.any()),
        )
        version = self.version if version is None else version
        return replace(self, version=version, reader_flags=reader, writer_flags=writer)


def version_identifier(transaction_file: str) -> bytes:
    """Return the identifier under which later versions record a version as an ancestor."""
    from hashlib import blake2b  # noqa: PLC0415 - it brings OpenSSL, which readers need not wait for

    return blake2b(transaction_file.encode(), digest_size=_ID_BYTES).digest()


@dataclass(frozen=True, slots=True)
class SectionPositions:
    """Positions of other sections within the manifest file; None for missing sections."""

    index: int | None = None
    transaction: int | None = None


def parse_auxiliary_data(data: Bytes) -> dict[str, bytes]:
    """Parse the auxiliary data that a writer attached to a version."""
    return dict(parse_message(table_pb.VersionAuxData, data.data).metadata)


@dataclass(frozen=True, slots=True)
class Outline:
    """The subset of a manifest that cleanup reads for every version of a table."""

    version: int
    timestamp: datetime
    fragments: FragmentWire
    transaction_file: str
    reader_flags: int
    writer_flags: int


def parse_outline(message: Bytes) -> tuple[Outline, SectionPositions]:
    """Parse the outline of a serialized manifest, and the positions of other sections."""
    fragments, rest = split_entries(message)
    proto = parse_message(table_pb.Manifest, rest)
    timestamp_ns = proto.timestamp.seconds * NANOSECONDS + proto.timestamp.nanos
    _check_time(timestamp_ns, version=proto.version)
    outline = Outline(
        proto.version,
        _EPOCH + timedelta(microseconds=timestamp_ns // 1000),
        fragments,
        proto.transaction_file,
        proto.reader_feature_flags,
        proto.writer_feature_flags,
    )
    return outline, _positions(proto)


def parse_manifest(message: Bytes) -> tuple[Manifest, SectionPositions]:
    """Parse a serialized manifest, and the positions of other sections."""
    entries, rest = split_entries(message)
    proto = parse_message(table_pb.Manifest, rest)
    # Releases before `writer_version` was introduced excluded deleted rows from row counts.
    is_counted = proto.HasField("writer_version")
    fragments = entries.fragments() if is_counted else entries.uncounted()
    manifest = Manifest(
        schema=Schema.from_protos(proto.fields, proto.schema_metadata),
        fragments=fragments,
        version=proto.version,
        data_version=_data_version(proto, fragments),
        timestamp_ns=proto.timestamp.seconds * NANOSECONDS + proto.timestamp.nanos,
        reader_flags=proto.reader_feature_flags,
        writer_flags=proto.writer_feature_flags,
        max_fragment_id=_max_fragment_id(proto, fragments),
        transaction_file=proto.transaction_file,
        next_row_id=proto.next_row_id,
        writer_version=_writer_version(proto),
        config=dict(proto.config),
        table_metadata=dict(proto.table_metadata),
        base_paths=tuple(base_path_from_proto(base) for base in proto.base_paths),
        branch=proto.branch if proto.HasField("branch") else None,
        tag=proto.tag,
        version_aux_data=proto.version_aux_data,
        blob_dataset_version=proto.blob_dataset_version,
        max_allocated_field_id=(
            proto.max_allocated_field_id if proto.HasField("max_allocated_field_id") else None
        ),
        clustering=tuple(
            Clustering(item.id, tuple(item.columns), item.provider, item.version)
            for item in proto.clustering
        ),
        max_clustering_id=proto.max_clustering_id,
        ancestors=proto.ancestors,
        unknown=unknown_fields(proto),
    )
    _check(manifest)
    return manifest, _positions(proto)


def render_manifest(manifest: Manifest, positions: SectionPositions) -> tuple[bytes, Bytes]:
    """Serialize a manifest as two buffers; the second contains the fragments."""
    proto = table_pb.Manifest(
        version=manifest.version,
        version_aux_data=manifest.version_aux_data,
        blob_dataset_version=manifest.blob_dataset_version,
        schema_metadata=manifest.schema.metadata_bytes(),
        index_section=positions.index,
        tag=manifest.tag,
        reader_feature_flags=manifest.reader_flags,
        writer_feature_flags=manifest.writer_flags,
        max_fragment_id=manifest.max_fragment_id,
        transaction_file=manifest.transaction_file,
        next_row_id=manifest.next_row_id,
        config=manifest.config,
        base_paths=[base_path_to_proto(base) for base in manifest.base_paths],
        table_metadata=manifest.table_metadata,
        branch=manifest.branch,
        transaction_section=positions.transaction,
        max_allocated_field_id=manifest.max_allocated_field_id,
        max_clustering_id=manifest.max_clustering_id,
        ancestors=manifest.ancestors,
    )
    proto.MergeFrom(_schema_message(manifest.schema))
    proto.data_format.file_format = FILE_FORMAT
    proto.data_format.version = manifest.data_version.value
    proto.timestamp.seconds, proto.timestamp.nanos = divmod(manifest.timestamp_ns, NANOSECONDS)
    if manifest.writer_version is not None:
        writer = manifest.writer_version
        proto.writer_version.library = writer.library
        proto.writer_version.version = writer.version
        if writer.prerelease is not None:
            proto.writer_version.prerelease = writer.prerelease
        if writer.build_metadata is not None:
            proto.writer_version.build_metadata = writer.build_metadata
    for item in manifest.clustering:
        proto.clustering.add(
            id=item.id, columns=item.columns, provider=item.provider, version=item.version
        )
    return render_message(proto) + manifest.unknown, manifest.fragments.wire


@lru_cache(_CACHED_SCHEMAS_MAX)
def _schema_message(schema: Schema) -> table_pb.Manifest:
    """Return a message with the fields of a schema; callers copy it."""
    return table_pb.Manifest(fields=schema.to_protos())


def _check(manifest: Manifest) -> None:
    counts_field_ids = bool(manifest.writer_flags & Feature.NON_REUSABLE_FIELD_IDS)
    if counts_field_ids != (manifest.max_allocated_field_id is not None):
        raise CorruptDataError(
            "the highest field id must be recorded if and only if field ids are never reused",
            version=manifest.version,
            writer_flags=manifest.writer_flags,
        )
    _check_time(manifest.timestamp_ns, version=manifest.version)
    names = [field.name for field in manifest.schema.fields]
    if len(set(names)) < len(names):
        repeated = next(name for index, name in enumerate(names) if name in names[:index])
        raise CorruptDataError(
            "two columns of a manifest share a name; restore an earlier version",
            version=manifest.version,
            name=repeated,
        )


def _check_time(timestamp_ns: int, *, version: int) -> None:
    if not 0 <= timestamp_ns // NANOSECONDS <= _SECONDS_MAX:
        raise CorruptDataError(
            "a manifest has an invalid commit time",
            version=version,
            timestamp_ns=timestamp_ns,
        )


def _positions(proto: table_pb.Manifest) -> SectionPositions:
    transaction = None
    if proto.HasField("transaction_section"):
        transaction = proto.transaction_section
    elif proto.HasField("transaction_section_deprecated"):
        transaction = proto.transaction_section_deprecated
    return SectionPositions(
        proto.index_section if proto.HasField("index_section") else None, transaction
    )


def _writer_version(proto: table_pb.Manifest) -> WriterVersion | None:
    if not proto.HasField("writer_version"):
        return None
    writer = proto.writer_version
    return WriterVersion(
        writer.library,
        writer.version,
        writer.prerelease if writer.HasField("prerelease") else None,
        writer.build_metadata if writer.HasField("build_metadata") else None,
    )


def _max_fragment_id(proto: table_pb.Manifest, fragments: FragmentList) -> int | None:
    """Return the highest fragment id; manifests written before it was recorded store 0 or none."""
    stated = proto.max_fragment_id if proto.HasField("max_fragment_id") else None
    present = fragments.max_id
    if stated is None or present is None:
        return stated if present is None else present
    return max(stated, present)


def _data_version(proto: table_pb.Manifest, fragments: FragmentList) -> FileVersion:
    """Return the file version of new files, inferred from existing files if not recorded."""
    if proto.HasField("data_format"):
        if proto.data_format.file_format not in ("", FILE_FORMAT):
            raise CorruptDataError(
                "the data files have an unsupported format", found=proto.data_format.file_format
            )
        try:
            return FileVersion.parse(proto.data_format.version)
        except InvalidInputError as error:
            raise CorruptDataError(
                "the manifest has an unknown file version", found=proto.data_format.version
            ) from error
    for fragment in fragments[:1]:
        for file in fragment.files[:1]:
            return file.version
    is_v2 = proto.writer_feature_flags & Feature.V2_FORMAT
    return DEFAULT_VERSION if is_v2 else FileVersion.V0_1
