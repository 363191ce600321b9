"""Locate and read the contents of blobs.

    row 7   {kind 0, position 64, size 3}             bytes 64 to 67 of the row's data file
    row 8   {kind 1, position 9, size 2, blob_id 1}   bytes 9 to 11 of a sibling file
    row 9   {kind 3, blob_uri "s3://b/x.mp4"}         a whole external object

Scans return these descriptors, which are cheap; contents are read on request only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lancelet.buffers import ByteRanges
from lancelet.encodings.blobs.v2 import BlobKind
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.base_paths import get_base
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.paths import DATA, blob_file_path
from lancelet.io.open import open_store
from lancelet.io.store import Store
from lancelet.rowids.address import UInt64s, fragments_of
from lancelet.scan.plan import projection_of
from lancelet.scan.take import take_addresses
from lancelet.table.location import StorePath
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_SCHEME: Final = "://"
_OFFSET_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class BlobExtent:
    """The byte range of a blob in an object; `size` is None for a whole object."""

    store: Store
    path: str
    position: int
    size: int | None

    def with_size(self) -> BlobExtent:
        """Return the extent with its size, requesting it from the store if it is unknown."""
        if self.size is not None:
            return self
        return BlobExtent(self.store, self.path, 0, self.store.size(self.path))


class NegativeRangeError(InvalidInputError, OverflowError):
    """A byte range of a blob has a negative start or length."""


def find_blobs(snapshot: Snapshot, column: str, addresses: UInt64s) -> list[BlobExtent | None]:
    """Return the extents of the blobs at row addresses, in order; None for null."""
    field = snapshot.schema.field_by_path(column)
    if not field.is_blob:
        raise InvalidInputError(f"the column {column!r} is not a blob column", column=column)
    descriptors = take_addresses(snapshot, addresses, projection_of(snapshot, (column,)))
    return resolve_descriptors(snapshot, field, descriptors.column(0).to_pylist(), addresses)


def resolve_descriptors(
    snapshot: Snapshot,
    field: Field,
    descriptors: Sequence[Mapping[str, Any] | None],
    addresses: UInt64s,
) -> list[BlobExtent | None]:
    """Return the extents for the blob descriptors of a field and their row addresses."""
    files: dict[int, StorePath] = {}
    extents: list[BlobExtent | None] = []
    for fragment_id, descriptor in zip(fragments_of(addresses).tolist(), descriptors, strict=True):
        if descriptor is None or _is_null_v2_0(descriptor):
            extents.append(None)
            continue
        if fragment_id not in files:
            files[fragment_id] = _data_file(snapshot, snapshot.fragments.by_id(fragment_id), field)
        extents.append(_resolve_descriptor(snapshot, descriptor, files[fragment_id]))
    return extents


def read_blobs(extents: Sequence[BlobExtent | None]) -> list[bytes | None]:
    """Return the contents of blobs, with one multi-range request per file."""
    contents: list[bytes | None] = [None] * len(extents)
    by_file: dict[tuple[str, str], list[int]] = {}
    extents_with_size = [None if extent is None else extent.with_size() for extent in extents]
    for row, extent in enumerate(extents_with_size):
        if extent is not None:
            by_file.setdefault((extent.store.uri, extent.path), []).append(row)
    for rows in by_file.values():
        file_extents = [extent for row in rows if (extent := extents_with_size[row]) is not None]
        for row, data in zip(rows, _read_file(file_extents), strict=True):
            contents[row] = data
    return contents


def slice_extent(extent: BlobExtent, position: int, size: int) -> BlobExtent:
    """Return the extent of a byte range within a blob; raise if it exceeds the blob."""
    blob = extent.with_size()
    assert blob.size is not None
    if position < 0 or size < 0:
        raise NegativeRangeError("a byte range of a blob is negative", position=position, size=size)
    if position + size >> _OFFSET_BITS:
        raise InvalidInputError(f"offset + length overflowed: {position} + {size}", path=blob.path)
    if position + size > blob.size:
        raise InvalidInputError(
            f"Blob range end {position + size} exceeds blob size {blob.size}", path=blob.path
        )
    return BlobExtent(blob.store, blob.path, blob.position + position, size)


def _is_null_v2_0(descriptor: Mapping[str, Any]) -> bool:
    """Return whether a descriptor is the invalid one that version 2.0 files store for nulls."""
    return "kind" not in descriptor and descriptor["size"] == 0 and descriptor["position"] == 1


def _data_file(snapshot: Snapshot, fragment: Fragment, field: Field) -> StorePath:
    ids = {int(node.id) for node in field.walk()}
    for file in fragment.files:
        if ids.intersection(file.fields):
            return snapshot.location.resolve(DATA, file.path, file.base_id, snapshot.manifest.bases)
    raise CorruptDataError(
        "no file of the fragment has the blob column", fragment_id=fragment.id, column=field.name
    )


def _resolve_descriptor(
    snapshot: Snapshot, descriptor: Mapping[str, Any], file: StorePath
) -> BlobExtent:
    position, size = descriptor["position"] or 0, descriptor["size"] or 0
    match descriptor.get("kind", BlobKind.INLINE):
        case BlobKind.INLINE:
            return BlobExtent(file.store, file.path, position, size)
        case BlobKind.PACKED:
            path = blob_file_path(file.path, descriptor["blob_id"])
            return BlobExtent(file.store, path, position, size)
        case BlobKind.DEDICATED:
            return BlobExtent(file.store, blob_file_path(file.path, descriptor["blob_id"]), 0, size)
        case BlobKind.EXTERNAL:
            uri, is_whole_object = descriptor["blob_uri"], position == 0 and size == 0
            if _SCHEME in uri or uri.startswith("/"):
                store, path = open_store(uri, snapshot.location.storage_options)
            else:
                base = get_base(snapshot.manifest.bases, descriptor["blob_id"])
                store, path = snapshot.location.base_store(base), uri
            return BlobExtent(store, path, position, None if is_whole_object else size)
        case kind:
            raise CorruptDataError("unknown blob kind", kind=kind, path=file.path)


def _read_file(extents: Sequence[BlobExtent]) -> list[bytes]:
    byte_ranges = [(extent.position, extent.size or 0) for extent in extents]
    nonempty = [part for part in byte_ranges if part[1]]
    if not nonempty:
        return [b""] * len(extents)
    with extents[0].store.open_reader(extents[0].path) as reader:
        for position, size in nonempty:
            if position + size > reader.size:
                raise CorruptDataError(
                    "a blob extends past the end of its file",
                    path=extents[0].path,
                    position=position,
                    size=size,
                    file_bytes=reader.size,
                )
        read = reader.read_ranges(ByteRanges.of(*nonempty))
        filled = iter([bytes(read.slice_bytes(number)) for number in range(len(nonempty))])
    return [next(filled) if size else b"" for _, size in byte_ranges]
