"""Check index segments: files, fields, coverage and entries.

The entries of an index are checked by its type, using `CHECKERS`; unsupported types are noted as
not checked. Scalar indices are compared with the rows they cover:

    table     row 0 = 'a'    row 1 = null    row 2 = 'a'
    index     'a': 0 2       null: 1         OK
    index     'a': 0         null: 1         row 2 is missing

Entries of deleted rows are ignored. Zone-based indices are queried with existing values, and must
return the zones of all matching rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.encodings.base import FileVersion
from lancelet.errors import CorruptDataError, LanceletError, ObjectNotFoundError, UnsupportedError
from lancelet.file.header_cache import PageHeaderCache
from lancelet.file.open import open_data_file
from lancelet.file.v2.footer import VERSION_BYTES, parse_version
from lancelet.file.v2.reader import FileReader
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX, IndexMetadata
from lancelet.format.paths import INDICES, index_file_identity
from lancelet.index.base import SupportsEntries
from lancelet.index.query import IsNull, OneOf
from lancelet.index.scalar.fm.kind import FmSegment, folded
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.indexing.segments import TableSegment
from lancelet.table.apply.coverage import without_overlaps
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.table.location import StorePath
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.check.files import decode_all, verify_checksums
from lancelet.upkeep.check.finding import Finding, Level, Severity
from lancelet.upkeep.check.segments import (
    TEXT_INDICES,
    VECTOR_INDICES,
    SegmentChecker,
    covered_rows,
)

_VECTORS: Final = ".idx"
_SUFFIXES: Final = (".lance", _VECTORS)
_DROP: Final = "drop and rebuild the index"


_KINDS: Final = frozenset(
    {"BTREE", "BITMAP", "LABEL_LIST", "ZONEMAP", "BLOOMFILTER", "NGRAM", "FM"}
)
_QUERIED_VALUES: Final = 256
"""Values per batch of rows with which a zone-based index is queried."""


def check_indices(snapshot: Snapshot, level: Level) -> Iterator[Finding]:
    """Yield the findings of all indices of a version."""
    indices = snapshot.indices.indices
    for index, effective in zip(indices, without_overlaps(indices), strict=True):
        try:
            missing = index.missing_fields(snapshot.schema.by_id)
            if missing:
                yield _finding(Severity.ERROR, index, f"the fields {list(missing)} do not exist")
            yield from _files(snapshot, index, level)
            if level >= Level.INDICES:
                yield from _coverage(snapshot, index)
                if not missing:
                    yield from _content(snapshot, effective)
        except UnsupportedError as error:
            yield _unchecked(index, str(error))
        except LanceletError as error:
            yield _finding(Severity.ERROR, index, str(error))
    if level >= Level.INDICES:
        yield from _overlaps(snapshot)


def _files(snapshot: Snapshot, index: IndexMetadata, level: Level) -> Iterator[Finding]:
    bases = snapshot.manifest.bases
    for file in index.files:
        path = f"{index.uuid}/{file.path}"
        location = snapshot.location.resolve(INDICES, path, index.base_id, bases)
        try:
            size = location.store.size(location.path)
        except ObjectNotFoundError:
            yield _finding(Severity.ERROR, index, f"the file {file.path} is missing")
            continue
        if file.size_bytes and size != file.size_bytes:
            message = f"the file {file.path} has {size} bytes instead of {file.size_bytes}"
            yield _finding(Severity.ERROR, index, message)
        elif level >= Level.FOOTERS and file.path.endswith(_SUFFIXES):
            try:
                for message in _check_file(location, size, level):
                    yield _finding(Severity.ERROR, index, f"in the file {file.path} {message}")
            except UnsupportedError as error:
                # The file has a newer version, or its version is damaged.
                yield _unchecked(index, f"file {file.path}: {error}")


def _check_file(location: StorePath, size: int, level: Level) -> Iterator[str]:
    """Yield the problems of an index file; its values are not interpreted."""
    try:
        if location.path.endswith(_VECTORS) and _has_legacy_layout(location, size):
            return
        reader = open_data_file(
            location.store,
            location.path,
            size=size,
            name=index_file_identity(location.path),
            header_cache=PageHeaderCache(),
        )
        try:
            checksums = reader.metadata.checksums if isinstance(reader, FileReader) else None
            if level >= Level.CHECKSUMS and checksums is not None:
                yield from verify_checksums(location, checksums)
            if level >= Level.DECODE:
                deque(decode_all(reader), maxlen=0)
        finally:
            reader.close()
    except CorruptDataError as error:
        yield str(error)


def _has_legacy_layout(location: StorePath, size: int) -> bool:
    """Return whether a vector file has the legacy layout with the footer of a data file."""
    with location.store.open_reader(location.path, size) as source:
        tail = source.read_tail(VERSION_BYTES)
    return parse_version(tail, file_bytes=size) is FileVersion.V0_1


def _coverage(snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
    highest = snapshot.manifest.max_fragment_id
    covered = index.fragment_bitmap
    if covered and (highest is None or covered.max() > highest):
        message = f"it covers fragment {covered.max()}, but the highest fragment id is {highest}"
        yield _finding(Severity.ERROR, index, message)
    if index.dataset_version > snapshot.version:
        message = f"it is based on version {index.dataset_version}, which does not exist yet"
        yield _finding(Severity.ERROR, index, message)


def _overlaps(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield segments that overlap earlier segments of the same index, which take precedence.

    Other readers may return such rows twice.
    """
    covered: dict[str, FrozenBitMap] = {}
    for index in snapshot.indices.indices:
        before = covered.get(index.name, FrozenBitMap())
        fragments = index.fragment_bitmap or FrozenBitMap()
        if both := before & fragments:
            message = (
                f"another segment also covers the fragments {list(both)[:10]}; the first segment "
                "takes precedence, and other readers may return rows twice"
            )
            yield _finding(Severity.WARNING, index, message)
        covered[index.name] = before | fragments


def _content(snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
    if index.name == FRAGMENT_REUSE_INDEX:
        fragment_reuse_of(snapshot).check()
        return
    matching = next((checker for checker in CHECKERS if checker.supports(index)), None)
    if matching is not None:
        yield from matching.findings(snapshot, index)
        return
    yield _unchecked(index, "unknown" if index.details is None else index.details.type_name)


def _unchecked(index: IndexMetadata, kind: str) -> Finding:
    return Finding(
        Severity.NOTE,
        index.directory,
        f"the content of index {index.name} ({kind}) was not checked",
        "its files were checked, but its entries were not compared with the rows",
        index=index.name,
    )


def _finding(severity: Severity, index: IndexMetadata, message: str) -> Finding:
    return Finding(severity, index.directory, f"{index.name}: {message}", _DROP, index=index.name)


def _differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    is_listing = isinstance(opened, SupportsEntries)
    rows = covered_rows(snapshot, segment, by_address=not (segment.is_by_id and is_listing))
    if not isinstance(opened, SupportsEntries):
        for values, addresses in rows.parts:
            yield from _find_missed_rows(segment, values, addresses)
        return
    parts = list(rows.parts)
    numbers = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])
    values = pa.concat_arrays([pa.array([], rows.data_type), *(part[0] for part in parts)])
    listed, listed_numbers = opened.entries()
    moved = segment.renumber(listed_numbers, by_address=not segment.is_by_id)
    is_live = (moved != NO_ADDRESS) & np.isin(moved, numbers)
    if isinstance(opened, FmSegment):
        numbers = numbers[values.is_valid().to_numpy(zero_copy_only=False)]
        values = folded(values.drop_null())
    if pa.types.is_list(rows.data_type) or pa.types.is_large_list(rows.data_type):
        parents = pc.list_parent_indices(values).to_numpy()
        numbers, values = numbers[parents], pc.list_flatten(values)
    required, actual = _pairs(values, numbers, listed.filter(pa.array(is_live)), moved[is_live])
    num_missing, wrong = len(np.setdiff1d(required, actual)), len(np.setdiff1d(actual, required))
    if num_missing:
        yield f"it lacks the values of {num_missing} rows"
    if wrong:
        yield f"it has wrong values for {wrong} rows"


SCALAR_INDICES: Final = SegmentChecker(_KINDS, _differences)
CHECKERS: Final[tuple[SegmentChecker, ...]] = (SCALAR_INDICES, TEXT_INDICES, VECTOR_INDICES)


def _pairs(
    values: pa.Array, numbers: UInt64s, listed: pa.Array, listed_numbers: UInt64s
) -> tuple[Int64s, Int64s]:
    """Return a number for each pair of row and value, of the rows and of the index entries."""
    both = pa.concat_arrays([values, listed.cast(values.type)])
    if pa.types.is_float16(both.type):
        both = both.cast(pa.float32())
    codes = both.dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)
    _, row_indices = np.unique(np.concatenate([numbers, listed_numbers]), return_inverse=True)
    pairs: Int64s = row_indices.astype(np.int64) * (int(codes.max(initial=0)) + 1) + codes
    return pairs[: len(values)], pairs[len(values) :]


def _find_missed_rows(segment: TableSegment, values: pa.Array, addresses: UInt64s) -> Iterator[str]:
    """Yield a message if queries for existing values miss rows."""
    opened = segment.open()
    present = values.drop_null()
    step = max(1, len(present) // _QUERIED_VALUES)
    sample = present.take(pa.array(np.arange(0, len(present), step))).unique()
    is_sampled = pc.is_in(values, sample).to_numpy(zero_copy_only=False)
    missing = 0
    if len(sample) and opened.estimate(OneOf(sample)) is not None:
        matches = segment.addresses(opened.search(OneOf(sample)).rows)
        missing += int((~matches.contains(addresses[is_sampled])).sum())
    if values.null_count and opened.estimate(IsNull()) is not None:
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        matches = segment.addresses(opened.search(IsNull()).rows)
        missing += int((~matches.contains(addresses[nulls])).sum())
    if missing:
        yield f"queries by value miss {missing} rows"
