"""Manifests: everything a version of a table is, apart from its files.

A manifest holds the schema, the fragments, the flags a reader must understand, and counters
that never go back. How it lies in its file, with the index section and the transaction before
it, is in `manifest_file`.
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
_SCHEMAS_KEPT: Final = 16

_ID_BYTES: Final = 8
_ANCESTORS_MAX: Final = 32

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_MAX: Final = 253_402_300_799  # the end of the year 9999, as of the message's definition


class MissingRowIdsError(CorruptDataError, ValueError):
    """A fragment of a table with stable row ids has none."""


@dataclass(frozen=True, slots=True)
class WriterVersion:
    """The library that wrote a manifest."""

    library: str
    version: str
    prerelease: str | None = None
    build_metadata: str | None = None

    @staticmethod
    def of(library: str, release: str) -> WriterVersion:
        """Return the parts of a version as Python writes it.

        >>> WriterVersion.of("lancelet", "1.2.0rc1+g5f")
        WriterVersion(library='lancelet', version='1.2.0', prerelease='rc1', build_metadata='g5f')
        """
        found = _RELEASE.fullmatch(release)
        if found is None:
            return WriterVersion(library, release)
        version, prerelease, build = found.groups()
        return WriterVersion(library, version, prerelease or None, build)

    def __str__(self) -> str:
        """Return the library and its whole version, as semantic versioning writes it."""
        before = f"-{self.prerelease}" if self.prerelease else ""
        build = f"+{self.build_metadata}" if self.build_metadata else ""
        return f"{self.library} {self.version}{before}{build}"


@dataclass(frozen=True, slots=True)
class Clustering:
    """An order that rows were sorted into."""

    id: int
    columns: tuple[int, ...]
    provider: str
    version: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of a table.

    `timestamp_ns` counts from 1970, UTC. `max_fragment_id` is the highest id ever used and None
    before the first fragment. `next_row_id` is for tables with stable row ids. `version_aux_data`
    is where the file has data of this version alone, 0 for nowhere. `tag` is what old releases
    called the version. `blob_dataset_version` is that of a second table in which old releases kept
    blobs, 0 without one. `ancestors` identify the versions before by their transaction files, as
    far as writers recorded them.
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
        """When the version was committed, UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp_ns // 1000)

    @property
    def uses_stable_row_ids(self) -> bool:
        """Whether rows keep their ids when they move."""
        return bool(self.reader_flags & Feature.STABLE_ROW_IDS)

    @property
    def bases(self) -> dict[int, BasePath]:
        """The base paths by id."""
        return {base.id: base for base in self.base_paths}

    @property
    def num_rows(self) -> int:
        """How many rows are alive."""
        return self.fragments.num_rows

    @property
    def max_field_id(self) -> int:
        """The highest field id of the schema and, where it is counted, of all that ever were."""
        return max(self.schema.max_field_id, self.max_allocated_field_id or -1)

    def check_row_ids(self) -> None:
        """Refuse fragments without row ids where the table says that these are stable.

        A rewritten row would get the id of another, and indices would find other rows.
        """
        has = self.fragments.has_row_ids
        if self.uses_stable_row_ids and not has.all():
            raise MissingRowIdsError(
                "the table has stable row ids, and a fragment has none; restore an older version, "
                "or overwrite the table",
                fragment_id=int(self.fragments.ids[int((~has).argmax())]),
                version=self.version,
            )

    def ancestor(self, version: int) -> bytes | None:
        """Return what identifies a version before this one, if that is recorded; see `id_of`."""
        start = (self.version - version - 1) * _ID_BYTES
        found = self.ancestors[start : start + _ID_BYTES] if start >= 0 else b""
        return found or None

    def descent(self) -> bytes:
        """Return the `ancestors` of the version that follows this one."""
        if not self.transaction_file:
            return b""
        return (id_of(self.transaction_file) + self.ancestors)[: _ANCESTORS_MAX * _ID_BYTES]

    def with_flags(self, *, version: int | None = None) -> Self:
        """Return the manifest with the flags that its content calls for, and another version."""
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


def id_of(transaction_file: str) -> bytes:
    """Return what identifies a version among the ancestors of a later one."""
    from hashlib import blake2b  # noqa: PLC0415 - it brings OpenSSL, which readers need not wait for

    return blake2b(transaction_file.encode(), digest_size=_ID_BYTES).digest()


@dataclass(frozen=True, slots=True)
class SectionPositions:
    """Where a manifest says that other sections are in its file; None for those not there."""

    index: int | None = None
    transaction: int | None = None


def parse_auxiliary_data(data: Bytes) -> dict[str, bytes]:
    """Return the data that a writer attached to a version, by their keys."""
    return dict(parse_message(table_pb.VersionAuxData, data.data).metadata)


@dataclass(frozen=True, slots=True)
class Outline:
    """What a manifest says of files, of which a cleanup asks for all versions of a table."""

    version: int
    timestamp: datetime
    fragments: FragmentWire
    transaction_file: str
    reader_flags: int
    writer_flags: int


def parse_outline(message: Bytes) -> tuple[Outline, SectionPositions]:
    """Return the outline of a message, and where the other sections of its file are."""
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
    """Return the manifest of a message, and where the other sections of its file are."""
    entries, rest = split_entries(message)
    proto = parse_message(table_pb.Manifest, rest)
    # Releases that did not name themselves yet left deleted rows out of the counts of rows.
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
    """Return the message of a manifest in two pieces, of which the second is the fragments."""
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
    proto.MergeFrom(_message_of(manifest.schema))
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


@lru_cache(_SCHEMAS_KEPT)
def _message_of(schema: Schema) -> table_pb.Manifest:
    """Return a message with the fields of a schema, which is copied into others."""
    return table_pb.Manifest(fields=schema.to_protos())


def _check(manifest: Manifest) -> None:
    counts_field_ids = bool(manifest.writer_flags & Feature.NON_REUSABLE_FIELD_IDS)
    if counts_field_ids != (manifest.max_allocated_field_id is not None):
        raise CorruptDataError(
            "the highest field id must be stated exactly if field ids are never reused",
            version=manifest.version,
            writer_flags=manifest.writer_flags,
        )
    _check_time(manifest.timestamp_ns, version=manifest.version)
    names = [field.name for field in manifest.schema.fields]
    if len(set(names)) < len(names):
        repeated = next(name for place, name in enumerate(names) if name in names[:place])
        raise CorruptDataError(
            "two columns of a manifest have one name; restore an earlier version",
            version=manifest.version,
            name=repeated,
        )


def _check_time(timestamp_ns: int, *, version: int) -> None:
    if not 0 <= timestamp_ns // NANOSECONDS <= _SECONDS_MAX:
        raise CorruptDataError(
            "a manifest was committed at a time that is no time",
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
    """Return the counter; manifests from before it was counted state 0 or nothing."""
    stated = proto.max_fragment_id if proto.HasField("max_fragment_id") else None
    present = fragments.max_id
    if stated is None or present is None:
        return stated if present is None else present
    return max(stated, present)


def _data_version(proto: table_pb.Manifest, fragments: FragmentList) -> FileVersion:
    """Return the file version of new files; manifests from before it was stated show it."""
    if proto.HasField("data_format"):
        if proto.data_format.file_format not in ("", FILE_FORMAT):
            raise CorruptDataError(
                "the data files are of another format", found=proto.data_format.file_format
            )
        try:
            return FileVersion.parse(proto.data_format.version)
        except InvalidInputError as error:
            raise CorruptDataError(
                "the manifest names an unknown file version", found=proto.data_format.version
            ) from error
    for fragment in fragments[:1]:
        for file in fragment.files[:1]:
            return file.version
    is_v2 = proto.writer_feature_flags & Feature.V2_FORMAT
    return DEFAULT_VERSION if is_v2 else FileVersion.V0_1
