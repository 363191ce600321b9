"""Index metadata with the API of pylance, and the names of index kinds."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from lancelet.format import index_metadata as stored
from lancelet.values import dataclass


@dataclass
class IndexConfig:
    """An index kind with parameters: `IndexConfig("zonemap", {"rows_per_zone": 1000})`."""

    index_type: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class IndexFileVersion(StrEnum):
    """The file format versions of vector indices."""

    LEGACY = "Legacy"
    V3 = "V3"


class SupportedDistributedIndices(StrEnum):
    """The index kinds that support distributed builds."""

    BTREE = "BTREE"
    INVERTED = "INVERTED"
    IVF_FLAT = "IVF_FLAT"
    IVF_PQ = "IVF_PQ"
    IVF_SQ = "IVF_SQ"
    VECTOR = "VECTOR"


_MILLISECONDS = 1000


@dataclass
class IndexFile:
    """A file of an index segment.

    Attributes:
        path: The path relative to the folder of the segment.
        size_bytes: The size of the file.
    """

    path: str
    size_bytes: int


@dataclass
class Index:
    """The metadata of an index segment.

    Attributes:
        uuid: The id of the segment.
        name: The name of the index.
        fields: The ids of the indexed fields.
        dataset_version: The dataset version that the segment was built from.
        fragment_ids: The ids of the covered fragments.
        index_version: The version of the index files.
        created_at: The time of the build.
        base_id: The id of the base path of the index files.
        files: The index files, if recorded.
        index_details: The type URL and the message with kind-specific metadata.
        covering_fields: The ids of fields with values stored in the index.
    """

    uuid: str
    name: str
    fields: list[int]
    dataset_version: int
    fragment_ids: Iterable[int]
    index_version: int
    created_at: datetime | None = None
    base_id: int | None = None
    files: list[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class IvfCentroids:
    """The IVF model of a vector index.

    Attributes:
        centroids: One vector per partition.
    """

    centroids: pa.FixedSizeListArray


def index_from_user(index: Index) -> stored.IndexMetadata:
    """Convert a segment of the public API to index metadata."""
    details, created = index.index_details, index.created_at
    return stored.IndexMetadata(
        uuid=uuids.UUID(index.uuid),
        name=index.name,
        fields=tuple(index.fields),
        dataset_version=index.dataset_version,
        fragment_bitmap=stored.FragmentBitmap(index.fragment_ids),
        details=None if details is None else stored.AnyDetails(*details),
        index_version=index.index_version,
        created_at=None if created is None else int(created.timestamp() * _MILLISECONDS),
        base_id=index.base_id,
        files=tuple(stored.IndexFile(file.path, file.size_bytes) for file in index.files or ()),
        covering_fields=tuple(index.covering_fields),
    )


def index_to_user(index: stored.IndexMetadata) -> Index:
    """Convert index metadata to a segment of the public API."""
    details, created = index.details, index.created_at
    return Index(
        uuid=str(index.uuid),
        name=index.name,
        fields=list(index.fields),
        dataset_version=index.dataset_version,
        fragment_ids=set(index.fragment_bitmap or ()),
        index_version=index.index_version or 0,
        created_at=None
        if created is None
        else datetime.fromtimestamp(created / _MILLISECONDS, UTC),
        base_id=index.base_id,
        files=[IndexFile(file.path, file.size_bytes) for file in index.files] or None,
        index_details=None if details is None else (details.type_url, details.value),
        covering_fields=list(index.covering_fields),
    )
