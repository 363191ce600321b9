"""Opening a data file of any generation.

The last eight bytes say which it is. The schema and the places of columns come from the table
that the file belongs to, or, for a file on its own, from the file itself:

    open_data_file(store, "data/a.lance")                          the file knows its fields
    open_data_file(store, "data/a.lance", size=1052, stored=...)   the table knows them
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import lru_cache, partial
from typing import Final

from lancelet.buffers import run
from lancelet.encodings.base import FileVersion, Memo
from lancelet.encodings.options import EncodingOptions
from lancelet.errors import CorruptDataError, LanceletError
from lancelet.file import v0_1
from lancelet.file.checksums import Verify
from lancelet.file.memo import CachedHeads
from lancelet.file.sidecars import PACK_FILE_BYTES, SidecarSink
from lancelet.file.v2.footer import parse_version
from lancelet.file.v2.generation import check_storable, place_columns
from lancelet.file.v2.known import KnownFile, find_known, keep_known
from lancelet.file.v2.metadata import read_metadata, tail_size
from lancelet.file.v2.reader import FileReader
from lancelet.file.v2.writer import FileWriter, WriterOptions
from lancelet.file.zone_file import ZoneCollector, open_zones
from lancelet.format.schema import Schema
from lancelet.format.trailer import check_name
from lancelet.io.cache import CACHE, LruCache
from lancelet.io.store import ObjectReader, Store
from lancelet.values import dataclass

_SCHEMAS_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class StoredFields:
    """What a table knows of its data file.

    `columns` gives the column of each field that owns one, by the field's id; a file of version
    0.1 has no columns, and only the ids count.
    """

    schema: Schema
    columns: Mapping[int, int]
    key: Hashable = field(init=False, compare=False)
    """What equal fields have in common, to look up by."""

    def __post_init__(self) -> None:
        key = _HashedOnce((self.schema.fields, tuple(self.columns.items())))
        object.__setattr__(self, "key", key)


class _HashedOnce:
    """A value of many parts whose hash is not worked out at every look."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _HashedOnce):
            return NotImplemented
        return self._hash == other._hash and self._value == other._value


def open_data_file(
    store: Store,
    path: str,
    *,
    size: int | None = None,
    stored: StoredFields | None = None,
    name: str | None = None,
    verify: Verify = Verify.FULL,
    memo: Memo | None = None,
    cache: LruCache = CACHE,
) -> FileReader | v0_1.LegacyFileReader:
    """Open a data file for reading; with its size known, this is one request.

    What is known of it then is kept in a cache, by default that of the process. A file of another
    size is not the one that is meant, and neither is one that keeps another name than `name`.
    """
    source = store.open_reader(path, size)
    try:
        if size is not None and source.size != size:
            raise CorruptDataError(
                "a file has another size than was recorded of it; was it replaced, or copied in "
                "part?",
                recorded_bytes=size,
                file_bytes=source.size,
            )
        reader = _open(source, size, stored=stored, verify=verify, memo=memo, cache=cache)
        return _of_name(reader, name)
    except LanceletError as error:
        source.close()
        error.with_facts(path=path)
        raise


def create_data_file(
    store: Store, path: str, schema: Schema, options: WriterOptions | None = None
) -> FileWriter:
    """Start a data file of version 2.0 or later; its blobs go beside it.

    Types that the version cannot store are refused here, before a byte is written.
    """
    options = options or WriterOptions()
    check_storable(schema, options.version)
    defaults = EncodingOptions.from_metadata("", None)  # as the environment asks for
    pack_file_bytes = options.pack_file_bytes
    if pack_file_bytes is None:
        pack_file_bytes = _pack_file_bytes(schema)
    blobs = SidecarSink(store, path, pack_file_bytes=pack_file_bytes)
    zones = ZoneCollector(zone_rows=options.zone_rows) if options.zone_rows else None
    target = store.open_writer(path)
    return FileWriter(target, schema, options, defaults=defaults, blobs=blobs, zones=zones)


@lru_cache(_SCHEMAS_KEPT)
def _pack_file_bytes(schema: Schema) -> int:
    wishes = (
        EncodingOptions.from_metadata(node.name, node.metadata).blob_pack_file_size_threshold
        for node in schema.walk()
        if node.is_blob_v2
    )
    return min((wish for wish in wishes if wish is not None), default=PACK_FILE_BYTES)


def _of_name(
    reader: FileReader | v0_1.LegacyFileReader, name: str | None
) -> FileReader | v0_1.LegacyFileReader:
    """Return a reader if its file was given this name, as far as it says."""
    if name is not None and isinstance(reader, FileReader):
        check_name(reader.metadata.name_checksum, name)
    return reader


def _open(
    source: ObjectReader,
    size: int | None,
    *,
    stored: StoredFields | None,
    verify: Verify,
    memo: Memo | None,
    cache: LruCache,
) -> FileReader | v0_1.LegacyFileReader:
    key = _known_key(source, stored, verify) if memo is None else None
    if (known := find_known(cache, key)) is not None:
        weigh = partial(keep_known, cache, key, known)
        return FileReader(source, known, verify=verify, open_zones=open_zones, weigh=weigh)
    num_columns = None if stored is None else len(stored.columns)
    tail = source.read_tail(tail_size(size, num_columns=num_columns))
    version = parse_version(tail, file_bytes=source.size)
    if version is FileVersion.V0_1:
        if stored is None:
            return v0_1.open_file(source, tail)
        return v0_1.open_file(source, tail, schema=stored.schema, field_ids=stored.columns)
    with_checksums = verify is not Verify.OFF
    metadata = run(
        read_metadata(tail, file_bytes=source.size, with_checksums=with_checksums),
        source.read_ranges,
    )
    if stored is None:
        descriptor = metadata.descriptor.schema
        schema = Schema.from_protos(descriptor.fields, descriptor.metadata)
        stored = StoredFields(schema, place_columns(schema.fields, version))
    memo = CachedHeads(cache) if memo is None else memo
    known = KnownFile(metadata, stored.schema, stored.columns, memo)
    # The reader compares the tail with its checksum; a damaged file must not be known.
    weigh = partial(keep_known, cache, key, known)
    reader = FileReader(
        source, known, verify=verify, tail=metadata.tail, open_zones=open_zones, weigh=weigh
    )
    weigh()
    return reader


def _known_key(
    source: ObjectReader, stored: StoredFields | None, verify: Verify
) -> Hashable | None:
    """Return the key of what is known of a file as it is now, read in this way."""
    if source.identity is None:
        return None
    fields = None if stored is None else stored.key
    return ("file", source.identity, fields, verify is Verify.OFF)
