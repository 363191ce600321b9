"""Hypothesis strategies for the values of manifests and transactions.

Each value is valid by itself, but values need not be consistent with each other: a fragment may
refer to fields that no schema has. Some values have undeclared wire fields, like those written by
a later release.
"""

from __future__ import annotations

import uuid
from typing import TypeVar

import pyarrow as pa
from hypothesis import strategies as st
from pyroaring import FrozenBitMap

from lancelet.format import operation as op
from lancelet.format.base_paths import BasePath
from lancelet.format.fragment import (
    DataFile,
    DataOverlay,
    DeletionFile,
    DeletionFileType,
    External,
    Fragment,
    Inline,
    Spilled,
)
from lancelet.format.index_metadata import AnyDetails, IndexFile, IndexMetadata
from lancelet.format.key_filter import BloomFilter, ExactKeys, KeyFilter
from lancelet.format.schema import Schema
from lancelet.format.transaction import Transaction

UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
ROWS = st.integers(0, 2**40)
TEXT = st.text(max_size=5)
TEXTS = st.dictionaries(TEXT, TEXT, max_size=2)
BYTES = st.binary(max_size=8)
LATER = st.sampled_from([b"", bytes.fromhex("c23e03616263"), bytes.fromhex("a80f07")])
"""Fields 1000 and 245, which no message declares."""

UUIDS = st.uuids()

T = TypeVar("T")


def tuples(items: st.SearchStrategy[T], most: int = 2) -> st.SearchStrategy[tuple[T, ...]]:
    """Return tuples of at most `most` items."""
    return st.lists(items, max_size=most).map(tuple)


FIELD_IDS = tuples(st.integers(-5, 2**31 - 1).filter(lambda own: own != -1), 3)


@st.composite
def data_files(draw: st.DrawFn) -> DataFile:
    """Return data file entries, with a column index for each field or without."""
    fields = draw(FIELD_IDS)
    columns = tuple(range(-1, len(fields) - 1)) if draw(st.booleans()) else ()
    return DataFile(
        draw(TEXT), fields, columns, draw(UINT32), draw(UINT32), draw(UINT64),
        draw(st.none() | UINT32), draw(LATER),
    )  # fmt: skip


SEQUENCES = st.none() | st.one_of(
    st.builds(Inline, BYTES), st.builds(External, TEXT, UINT64, UINT64), st.just(Spilled())
)
DELETIONS = st.builds(
    DeletionFile, st.sampled_from(DeletionFileType), UINT64, UINT64, st.integers(0, 50),
    st.none() | UINT32, LATER,
)  # fmt: skip
OVERLAYS = st.builds(DataOverlay, data_files(), st.none() | BYTES | tuples(BYTES), UINT64, LATER)
FRAGMENTS = st.builds(
    Fragment, UINT32, tuples(data_files()), st.just(0) | st.integers(50, 2**40),
    st.none() | DELETIONS, SEQUENCES, SEQUENCES, SEQUENCES, tuples(OVERLAYS, 1),
    st.none() | UINT32, TEXTS, LATER,
)  # fmt: skip
BASES = st.builds(BasePath, UINT32, TEXT, st.booleans(), st.none() | TEXT, LATER)
DETAILS = st.none() | st.builds(AnyDetails, TEXT, BYTES)
FILES = tuples(st.builds(IndexFile, TEXT, UINT64))
BITMAPS = st.none() | st.sets(UINT32, max_size=4).map(FrozenBitMap)
INDICES = st.builds(
    IndexMetadata, UUIDS, TEXT, FIELD_IDS, UINT64, BITMAPS, DETAILS,
    st.none() | st.integers(-3, 9), st.none() | UINT64, st.none() | UINT32, FILES, FIELD_IDS,
    st.none() | UINT32, TEXTS, LATER,
)  # fmt: skip

SCHEMA = Schema.from_arrow(
    pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.string())]))], {"k": "v"})
)
SCHEMAS = st.sampled_from([SCHEMA, Schema(())])
"""A fixed schema, as schemas are tested elsewhere."""

BARE_SCHEMAS = SCHEMAS.map(lambda schema: schema.with_metadata({}))

SHARDS = tuples(st.builds(op.CompactedSsTable, UUIDS, UINT64))
KEY_FILTERS = st.none() | st.builds(
    KeyFilter,
    FIELD_IDS,
    st.one_of(
        st.frozensets(UINT64, max_size=3).map(ExactKeys),
        st.builds(
            BloomFilter, st.binary(min_size=64, max_size=64), st.just(512), UINT64, st.floats(0, 1)
        ),
    ),
)  # fmt: skip
UPDATE_MAPS = st.builds(
    op.UpdateMap, st.dictionaries(TEXT, st.none() | TEXT, max_size=2), st.booleans()
)
MAYBE_MAP = st.none() | UPDATE_MAPS
PARTS = tuples(FRAGMENTS)
IDS = tuples(UINT64)
FIELDS = tuples(UINT32)

OPERATIONS: dict[type[op.Operation], st.SearchStrategy[op.Operation]] = {
    op.Append: st.builds(op.Append, PARTS),
    op.Delete: st.builds(op.Delete, PARTS, IDS, TEXT),
    op.Overwrite: st.builds(op.Overwrite, PARTS, SCHEMAS, TEXTS, tuples(BASES)),
    op.CreateIndex: st.builds(op.CreateIndex, tuples(INDICES), tuples(INDICES)),
    op.Rewrite: st.builds(
        op.Rewrite,
        tuples(st.builds(op.RewriteGroup, PARTS, PARTS)),
        tuples(st.builds(op.RewrittenIndex, UUIDS, UUIDS, DETAILS, UINT32, FILES)),
    ),
    op.Merge: st.builds(op.Merge, PARTS, SCHEMAS, st.booleans()),
    op.Restore: st.builds(op.Restore, UINT64),
    op.ReserveFragments: st.builds(op.ReserveFragments, UINT32),
    op.Update: st.builds(
        op.Update, IDS, PARTS, PARTS, FIELDS, SHARDS, FIELDS, st.sampled_from(op.UpdateMode),
        KEY_FILTERS, st.dictionaries(UINT64, BYTES, max_size=2),
    ),
    op.Project: st.builds(op.Project, BARE_SCHEMAS, st.booleans()),
    op.UpdateConfig: st.builds(
        op.UpdateConfig, MAYBE_MAP, MAYBE_MAP, MAYBE_MAP,
        st.dictionaries(st.integers(0, 99), UPDATE_MAPS, max_size=2),
    ),
    op.DataReplacement: st.builds(
        op.DataReplacement, tuples(st.builds(op.DataReplacementGroup, UINT64, data_files()))
    ),
    op.UpdateMemWalState: st.builds(op.UpdateMemWalState, SHARDS),
    op.Clone: st.builds(
        op.Clone, st.booleans(), UINT64, TEXT, st.none() | TEXT, st.none() | TEXT
    ),
    op.UpdateBases: st.builds(op.UpdateBases, tuples(BASES)),
    op.AddOverlays: st.builds(
        op.AddOverlays, tuples(st.builds(op.OverlayGroup, UINT64, tuples(OVERLAYS)))
    ),
    op.UnknownOperation: st.just(op.UnknownOperation(bytes.fromhex("c23e03616263"))),
}  # fmt: skip


@st.composite
def transactions(
    draw: st.DrawFn, operations: st.SearchStrategy[op.Operation] | None = None
) -> Transaction:
    """Return transactions of the given operations, by default of any."""
    operation = draw(st.one_of(*OPERATIONS.values()) if operations is None else operations)
    is_unknown = isinstance(operation, op.UnknownOperation)
    return Transaction(
        read_version=draw(UINT64),
        uuid=str(uuid.UUID(int=draw(UINT64))),
        operation=operation,
        properties=draw(TEXTS),
        tag=draw(TEXT),
        unknown=b"" if is_unknown else draw(LATER),
    )
