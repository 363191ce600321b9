"""The bytes of blobs: where they are, and reading many of them at once.

    row 7   {kind 0, position 64, size 3}             bytes 64 to 67 of the row's data file
    row 8   {kind 1, position 9, size 2, blob_id 1}   bytes 9 to 11 of a file beside it
    row 9   {kind 3, blob_uri "s3://b/x.mp4"}         all of another object

Scans return such descriptors, which cost next to nothing; nothing here is read before somebody
asks for the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lancelet.buffers import Ranges
from lancelet.encodings.blob_v2 import BlobKind
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.base_paths import base_of
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.paths import DATA, blob_file_path
from lancelet.io.open import open_store
from lancelet.io.store import Store
from lancelet.query.plan import projection_of
from lancelet.query.take import take_addresses
from lancelet.rowids.address import UInt64s, fragments_of
from lancelet.table.location import Place
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_SCHEME: Final = "://"
_OFFSET_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """Where the bytes of a blob are; `size` is None for all of an object."""

    store: Store
    path: str
    position: int
    size: int | None

    def measured(self) -> BlobPlace:
        """Return the same with its size, for which the store may have to be asked."""
        if self.size is not None:
            return self
        return BlobPlace(self.store, self.path, 0, self.store.size(self.path))


class NegativeRangeError(InvalidInputError, OverflowError):
    """A range of a blob starts before it or is shorter than nothing."""


def find_blobs(snapshot: Snapshot, column: str, addresses: UInt64s) -> list[BlobPlace | None]:
    """Return where the blobs of rows are, in the order of the addresses; None for null."""
    field = snapshot.schema.field_by_path(column)
    if not field.is_blob:
        raise InvalidInputError(f"the column {column!r} is not a blob column", column=column)
    found = take_addresses(snapshot, addresses, projection_of(snapshot, (column,)))
    return places_of(snapshot, field, found.column(0).to_pylist(), addresses)


def places_of(
    snapshot: Snapshot,
    field: Field,
    descriptors: Sequence[Mapping[str, Any] | None],
    addresses: UInt64s,
) -> list[BlobPlace | None]:
    """Return where the blobs of a field are that a scan described, given the rows' addresses."""
    files: dict[int, Place] = {}
    places: list[BlobPlace | None] = []
    for fragment_id, found in zip(fragments_of(addresses).tolist(), descriptors, strict=True):
        if found is None or _is_null_of_2_0(found):
            places.append(None)
            continue
        if fragment_id not in files:
            files[fragment_id] = _file_of(snapshot, snapshot.fragments.by_id(fragment_id), field)
        places.append(_place_of(snapshot, found, files[fragment_id]))
    return places


def read_places(places: Sequence[BlobPlace | None]) -> list[bytes | None]:
    """Return the bytes of blobs; those of one file are read with one request for many ranges."""
    found: list[bytes | None] = [None] * len(places)
    by_file: dict[tuple[str, str], list[int]] = {}
    known = [None if place is None else place.measured() for place in places]
    for row, place in enumerate(known):
        if place is not None:
            by_file.setdefault((place.store.uri, place.path), []).append(row)
    for rows in by_file.values():
        chosen = [place for row in rows if (place := known[row]) is not None]
        for row, data in zip(rows, _read_of_file(chosen), strict=True):
            found[row] = data
    return found


def part_of(place: BlobPlace, position: int, size: int) -> BlobPlace:
    """Return where a part of a blob is, which has to lie within it."""
    blob = place.measured()
    assert blob.size is not None
    if position < 0 or size < 0:
        raise NegativeRangeError("a range of a blob is negative", position=position, size=size)
    if position + size >> _OFFSET_BITS:
        raise InvalidInputError(f"offset + length overflowed: {position} + {size}", path=blob.path)
    if position + size > blob.size:
        raise InvalidInputError(
            f"Blob range end {position + size} exceeds blob size {blob.size}", path=blob.path
        )
    return BlobPlace(blob.store, blob.path, blob.position + position, size)


def _is_null_of_2_0(found: Mapping[str, Any]) -> bool:
    """Whether a descriptor is one that cannot be, which is how files of 2.0 mark a null."""
    return "kind" not in found and found["size"] == 0 and found["position"] == 1


def _file_of(snapshot: Snapshot, fragment: Fragment, field: Field) -> Place:
    ids = {int(node.id) for node in field.walk()}
    for file in fragment.files:
        if ids.intersection(file.fields):
            return snapshot.location.place(DATA, file.path, file.base_id, snapshot.manifest.bases)
    raise CorruptDataError(
        "no file of the fragment has the blob column", fragment_id=fragment.id, column=field.name
    )


def _place_of(snapshot: Snapshot, found: Mapping[str, Any], file: Place) -> BlobPlace:
    position, size = found["position"] or 0, found["size"] or 0
    match found.get("kind", BlobKind.INLINE):
        case BlobKind.INLINE:
            return BlobPlace(file.store, file.path, position, size)
        case BlobKind.PACKED:
            path = blob_file_path(file.path, found["blob_id"])
            return BlobPlace(file.store, path, position, size)
        case BlobKind.DEDICATED:
            return BlobPlace(file.store, blob_file_path(file.path, found["blob_id"]), 0, size)
        case BlobKind.EXTERNAL:
            uri, whole = found["blob_uri"], position == 0 and size == 0
            if _SCHEME in uri or uri.startswith("/"):
                store, path = open_store(uri, snapshot.location.storage_options)
            else:
                base = base_of(snapshot.manifest.bases, found["blob_id"])
                store, path = snapshot.location.base_store(base), uri
            return BlobPlace(store, path, position, None if whole else size)
        case kind:
            raise CorruptDataError("no blob is of this kind", kind=kind, path=file.path)


def _read_of_file(places: Sequence[BlobPlace]) -> list[bytes]:
    """Read parts of one file."""
    wanted = [(place.position, place.size or 0) for place in places]
    some = [part for part in wanted if part[1]]
    if not some:
        return [b""] * len(places)
    with places[0].store.open_reader(places[0].path) as reader:
        for position, size in some:
            if position + size > reader.size:
                raise CorruptDataError(
                    "a blob extends past the end of its file",
                    path=places[0].path,
                    position=position,
                    size=size,
                    file_bytes=reader.size,
                )
        read = reader.read_ranges(Ranges.of(*some))
        filled = iter([bytes(read.slice_bytes(number)) for number in range(len(some))])
    return [next(filled) if size else b"" for _, size in wanted]
