"""Indices and their segments as pylance shows them, and kinds of index by name."""

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
    """A kind of index with its parameters: `IndexConfig("zonemap", {"rows_per_zone": 1000})`."""

    index_type: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class IndexFileVersion(StrEnum):
    """The generations of files of vector indices."""

    LEGACY = "Legacy"
    V3 = "V3"


class SupportedDistributedIndices(StrEnum):
    """The kinds of index that can be built in parts."""

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
        path: The path below the segment's folder.
        size_bytes: Its size.
    """

    path: str
    size_bytes: int


@dataclass
class Index:
    """A segment of an index: what it is of, and which fragments it covers.

    Attributes:
        uuid: The id of the segment.
        name: The name of the index.
        fields: The ids of the fields that are indexed.
        dataset_version: The version it was built from.
        fragment_ids: The fragments that it covers.
        index_version: The version of its files.
        created_at: When it was built.
        base_id: The base that its files are in.
        files: Its files, where they are known.
        index_details: The type of what the kind of index says of it, and the message.
        covering_fields: The ids of fields whose values the index holds too.
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
    """The model of a vector index.

    Attributes:
        centroids: A vector for each partition.
    """

    centroids: pa.FixedSizeListArray


def index_from_user(index: Index) -> stored.IndexMetadata:
    """Return the segment that a user describes."""
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
    """Return a segment as users see it."""
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
