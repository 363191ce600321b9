"""Checking index segments: files that are whole, fields that exist, fragments that are known.

What an index says of rows is checked by its kind, by one of `CHECKERS`. Of other kinds it is noted
that their content was not looked at.

Checking what scalar indices say of rows: each entry against the row that it is of.

    table     row 0 = 'a'    row 1 = null    row 2 = 'a'
    index     'a': 0 2       null: 1         sound
    index     'a': 0         null: 1         row 2 is missing

Entries of rows that were deleted since are passed over. Kinds that know zones and not rows are
asked for the values that are there: each row must be among those they would have looked at.
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
from lancelet.file.memo import CachedHeads
from lancelet.file.open import open_data_file
from lancelet.file.v2.footer import VERSION_BYTES, parse_version
from lancelet.file.v2.reader import FileReader
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX, IndexMetadata
from lancelet.format.paths import INDICES, index_file_identity
from lancelet.index.base import SupportsEntries
from lancelet.index.query import IsNull, OneOf
from lancelet.index.scalar.fm.kind import FmSegment, folded
from lancelet.ops.check.files import decoded, wrong_bytes
from lancelet.ops.check.finding import Finding, Level, Severity
from lancelet.ops.check.segments import TEXT_INDICES, VECTOR_INDICES, SegmentChecker, covered_rows
from lancelet.query.indexing.segments import TableSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.table.apply.coverage import without_overlaps
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.table.location import Place
from lancelet.table.snapshot import Snapshot

_VECTORS: Final = ".idx"
_SUFFIXES: Final = (".lance", _VECTORS)
_DROP: Final = "drop the index and build it anew"


_KINDS: Final = frozenset(
    {"BTREE", "BITMAP", "LABEL_LIST", "ZONEMAP", "BLOOMFILTER", "NGRAM", "FM"}
)
_VALUES_ASKED: Final = 256
"""So many values of each batch of rows are asked of a kind that knows zones."""


def check_indices(snapshot: Snapshot, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the indices of a version."""
    indices = snapshot.indices.indices
    for index, counted in zip(indices, without_overlaps(indices), strict=True):
        try:
            missing = index.missing_fields(snapshot.schema.by_id)
            if missing:
                yield _finding(Severity.ERROR, index, f"the fields {list(missing)} do not exist")
            yield from _files(snapshot, index, level)
            if level >= Level.INDICES:
                yield from _coverage(snapshot, index)
                if not missing:
                    yield from _content(snapshot, counted)
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
        place = snapshot.location.place(INDICES, path, index.base_id, bases)
        try:
            size = place.store.size(place.path)
        except ObjectNotFoundError:
            yield _finding(Severity.ERROR, index, f"the file {file.path} is missing")
            continue
        if file.size_bytes and size != file.size_bytes:
            what = f"the file {file.path} has {size} bytes instead of {file.size_bytes}"
            yield _finding(Severity.ERROR, index, what)
        elif level >= Level.FOOTERS and file.path.endswith(_SUFFIXES):
            try:
                for what in _wrong_in(place, size, level):
                    yield _finding(Severity.ERROR, index, f"in the file {file.path} {what}")
            except UnsupportedError as error:
                # Of a release that is newer, or damaged where it says what it is.
                yield _unchecked(index, f"file {file.path}: {error}")


def _wrong_in(place: Place, size: int, level: Level) -> Iterator[str]:
    """Yield what is wrong within a file, which is opened anew; its values mean nothing here."""
    try:
        if place.path.endswith(_VECTORS) and _is_of_older_layout(place, size):
            return
        reader = open_data_file(
            place.store,
            place.path,
            size=size,
            name=index_file_identity(place.path),
            memo=CachedHeads(),
        )
        try:
            checksums = reader.metadata.checksums if isinstance(reader, FileReader) else None
            if level >= Level.CHECKSUMS and checksums is not None:
                yield from wrong_bytes(place, checksums)
            if level >= Level.DECODE:
                deque(decoded(reader), maxlen=0)
        finally:
            reader.close()
    except CorruptDataError as error:
        yield str(error)


def _is_of_older_layout(place: Place, size: int) -> bool:
    """Whether a file of vectors only ends like a data file, as those of old releases do."""
    with place.store.open_reader(place.path, size) as source:
        tail = source.read_tail(VERSION_BYTES)
    return parse_version(tail, file_bytes=size) is FileVersion.V0_1


def _coverage(snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
    highest = snapshot.manifest.max_fragment_id
    covered = index.fragment_bitmap
    if covered and (highest is None or covered.max() > highest):
        what = f"it covers fragment {covered.max()}, and the highest id ever given is {highest}"
        yield _finding(Severity.ERROR, index, what)
    if index.dataset_version > snapshot.version:
        what = f"it was built of version {index.dataset_version}, which is to come"
        yield _finding(Severity.ERROR, index, what)


def _overlaps(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield segments that cover what others of the same index do, of which the first counts.

    Other readers may find such rows twice.
    """
    covered: dict[str, FrozenBitMap] = {}
    for index in snapshot.indices.indices:
        before = covered.get(index.name, FrozenBitMap())
        own = index.fragment_bitmap or FrozenBitMap()
        if both := before & own:
            what = (
                f"another segment covers the fragments {list(both)[:10]} too; here the first "
                "counts, and other readers may find rows twice"
            )
            yield _finding(Severity.WARNING, index, what)
        covered[index.name] = before | own


def _content(snapshot: Snapshot, index: IndexMetadata) -> Iterator[Finding]:
    if index.name == FRAGMENT_REUSE_INDEX:
        fragment_reuse_of(snapshot).check()
        return
    own = next((checker for checker in CHECKERS if checker.knows(index)), None)
    if own is not None:
        yield from own.findings(snapshot, index)
        return
    yield _unchecked(index, "unknown" if index.details is None else index.details.type_name)


def _unchecked(index: IndexMetadata, kind: str) -> Finding:
    return Finding(
        Severity.NOTE,
        index.directory,
        f"the content of index {index.name} ({kind}) was not checked",
        "its files were looked at, but what it says of rows was not compared with them",
        index=index.name,
    )


def _finding(severity: Severity, index: IndexMetadata, what: str) -> Finding:
    return Finding(severity, index.directory, f"{index.name}: {what}", _DROP, index=index.name)


def _differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    is_listing = isinstance(opened, SupportsEntries)
    rows = covered_rows(snapshot, segment, by_address=not (segment.is_by_id and is_listing))
    if not isinstance(opened, SupportsEntries):
        for values, addresses in rows.parts:
            yield from _overlooked(segment, values, addresses)
        return
    parts = list(rows.parts)
    numbers = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])
    values = pa.concat_arrays([pa.array([], rows.data_type), *(part[0] for part in parts)])
    listed, listed_numbers = opened.entries()
    moved = segment.renumber(listed_numbers, by_address=not segment.is_by_id)
    kept = (moved != NO_ADDRESS) & np.isin(moved, numbers)
    if isinstance(opened, FmSegment):
        numbers = numbers[values.is_valid().to_numpy(zero_copy_only=False)]
        values = folded(values.drop_null())
    if pa.types.is_list(rows.data_type) or pa.types.is_large_list(rows.data_type):
        parents = pc.list_parent_indices(values).to_numpy()
        numbers, values = numbers[parents], pc.list_flatten(values)
    expected, found = _pairs(values, numbers, listed.filter(pa.array(kept)), moved[kept])
    lacking, wrong = len(np.setdiff1d(expected, found)), len(np.setdiff1d(found, expected))
    if lacking:
        yield f"it lacks the values of {lacking} rows"
    if wrong:
        yield f"it has {wrong} rows with values that they do not have"


SCALAR_INDICES: Final = SegmentChecker(_KINDS, _differences)
CHECKERS: Final[tuple[SegmentChecker, ...]] = (SCALAR_INDICES, TEXT_INDICES, VECTOR_INDICES)


def _pairs(
    values: pa.Array, numbers: UInt64s, listed: pa.Array, listed_numbers: UInt64s
) -> tuple[Int64s, Int64s]:
    """Return a number for each pair of row and value, of the rows and of the index."""
    both = pa.concat_arrays([values, listed.cast(values.type)])
    if pa.types.is_float16(both.type):
        both = both.cast(pa.float32())
    codes = both.dictionary_encode("encode").indices.to_numpy(zero_copy_only=False)
    _, places = np.unique(np.concatenate([numbers, listed_numbers]), return_inverse=True)
    pairs: Int64s = places.astype(np.int64) * (int(codes.max(initial=0)) + 1) + codes
    return pairs[: len(values)], pairs[len(values) :]


def _overlooked(segment: TableSegment, values: pa.Array, addresses: UInt64s) -> Iterator[str]:
    """Yield how many rows a question about their own values would not find."""
    opened = segment.open()
    present = values.drop_null()
    step = max(1, len(present) // _VALUES_ASKED)
    asked = present.take(pa.array(np.arange(0, len(present), step))).unique()
    wanted = pc.is_in(values, asked).to_numpy(zero_copy_only=False)
    missing = 0
    if len(asked) and opened.estimate(OneOf(asked)) is not None:
        found = segment.addresses(opened.search(OneOf(asked)).rows)
        missing += int((~found.contains(addresses[wanted])).sum())
    if values.null_count and opened.estimate(IsNull()) is not None:
        nulls = values.is_null().to_numpy(zero_copy_only=False)
        found = segment.addresses(opened.search(IsNull()).rows)
        missing += int((~found.contains(addresses[nulls])).sum())
    if missing:
        yield f"it would not find {missing} rows by their values"
