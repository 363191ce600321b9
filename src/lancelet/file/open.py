"""Opening data files of all versions.

The last eight bytes of a file contain its version. The schema and the column indices come from the
table of the file, or from the file itself if it is opened without its table:

    open_data_file(store, "data/a.lance")                          schema of the file
    open_data_file(store, "data/a.lance", size=1052, stored=...)   schema of the table
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import lru_cache, partial
from typing import Final

from lancelet.buffers import run
from lancelet.encodings.base import FileVersion, HeaderCache
from lancelet.encodings.choice.options import EncodingOptions
from lancelet.errors import CorruptDataError, LanceletError
from lancelet.file import v0_1
from lancelet.file.checksums import Verify
from lancelet.file.header_cache import PageHeaderCache
from lancelet.file.sidecars import PACK_FILE_BYTES, SidecarSink
from lancelet.file.v2.footer import parse_version
from lancelet.file.v2.generation import assign_columns, check_storable
from lancelet.file.v2.metadata import read_metadata, tail_size
from lancelet.file.v2.metadata_cache import CachedFile, find_cached, put_cached
from lancelet.file.v2.reader import FileReader
from lancelet.file.v2.writer import FileWriter, WriterOptions
from lancelet.file.zone_file import ZoneCollector, open_zones
from lancelet.format.schema import Schema
from lancelet.format.trailer import check_name
from lancelet.io.cache import CACHE, LruCache
from lancelet.io.store import ObjectReader, Store
from lancelet.values import dataclass

_CACHED_SCHEMAS: Final = 64


@dataclass(frozen=True, slots=True)
class StoredFields:
    """The schema and columns of a data file, as recorded by its table.

    `columns` maps the id of each field that owns a column to the index of the column. Files of
    version 0.1 have no columns; only the ids are used.
    """

    schema: Schema
    columns: Mapping[int, int]
    key: Hashable = field(init=False, compare=False)
    """A cache key that is equal for equal fields."""

    def __post_init__(self) -> None:
        key = _CachedHash((self.schema.fields, tuple(self.columns.items())))
        object.__setattr__(self, "key", key)


class _CachedHash:
    """A hashable value with a precomputed hash."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _CachedHash):
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
    header_cache: HeaderCache | None = None,
    cache: LruCache = CACHE,
) -> FileReader | v0_1.LegacyFileReader:
    """Open a data file for reading; this takes one request if `size` is given.

    The metadata is cached in `cache`. Raises if the file does not have the given size, or if it
    stores a name that differs from `name`.
    """
    source = store.open_reader(path, size)
    try:
        if size is not None and source.size != size:
            raise CorruptDataError(
                "the size of the file differs from the recorded size; was it replaced, or copied "
                "in part?",
                recorded_bytes=size,
                file_bytes=source.size,
            )
        reader = _open(
            source, size, stored=stored, verify=verify, header_cache=header_cache, cache=cache
        )
        return _check_reader_name(reader, name)
    except LanceletError as error:
        source.close()
        error.with_facts(path=path)
        raise


def create_data_file(
    store: Store, path: str, schema: Schema, options: WriterOptions | None = None
) -> FileWriter:
    """Start a data file of version 2.0 or later; blobs are written to sidecar files.

    Raises before anything is written if the version does not support a type of the schema.
    """
    options = options or WriterOptions()
    check_storable(schema, options.version)
    defaults = EncodingOptions.from_metadata("", None)  # configured by the environment
    pack_file_bytes = options.pack_file_bytes
    if pack_file_bytes is None:
        pack_file_bytes = _pack_file_bytes(schema)
    blobs = SidecarSink(store, path, pack_file_bytes=pack_file_bytes)
    zones = ZoneCollector(zone_rows=options.zone_rows) if options.zone_rows else None
    target = store.open_writer(path)
    return FileWriter(target, schema, options, defaults=defaults, blobs=blobs, zones=zones)


@lru_cache(_CACHED_SCHEMAS)
def _pack_file_bytes(schema: Schema) -> int:
    thresholds = (
        EncodingOptions.from_metadata(node.name, node.metadata).blob_pack_file_size_threshold
        for node in schema.walk()
        if node.is_blob_v2
    )
    return min(
        (threshold for threshold in thresholds if threshold is not None), default=PACK_FILE_BYTES
    )


def _check_reader_name(
    reader: FileReader | v0_1.LegacyFileReader, name: str | None
) -> FileReader | v0_1.LegacyFileReader:
    """Return the reader, or raise if the file stores a different name."""
    if name is not None and isinstance(reader, FileReader):
        check_name(reader.metadata.name_checksum, name)
    return reader


def _open(
    source: ObjectReader,
    size: int | None,
    *,
    stored: StoredFields | None,
    verify: Verify,
    header_cache: HeaderCache | None,
    cache: LruCache,
) -> FileReader | v0_1.LegacyFileReader:
    key = _cache_key(source, stored, verify) if header_cache is None else None
    if (cached := find_cached(cache, key)) is not None:
        refresh_cache = partial(put_cached, cache, key, cached)
        return FileReader(
            source, cached, verify=verify, open_zones=open_zones, refresh_cache=refresh_cache
        )
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
        stored = StoredFields(schema, assign_columns(schema.fields, version))
    header_cache = PageHeaderCache(cache) if header_cache is None else header_cache
    cached = CachedFile(metadata, stored.schema, stored.columns, header_cache)
    # The reader verifies the tail; metadata of a damaged file must not be cached.
    refresh_cache = partial(put_cached, cache, key, cached)
    reader = FileReader(
        source,
        cached,
        verify=verify,
        tail=metadata.tail,
        open_zones=open_zones,
        refresh_cache=refresh_cache,
    )
    refresh_cache()
    return reader


def _cache_key(
    source: ObjectReader, stored: StoredFields | None, verify: Verify
) -> Hashable | None:
    """Return the cache key of the metadata, or None if the file has no identity."""
    if source.identity is None:
        return None
    fields = None if stored is None else stored.key
    return ("file", source.identity, fields, verify is Verify.OFF)
