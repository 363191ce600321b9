"""Checking what scalar indices say of rows: each entry against the row that it is of.

    table     row 0 = 'a'    row 1 = null    row 2 = 'a'
    index     'a': 0 2       null: 1         sound
    index     'a': 0         null: 1         row 2 is missing

Entries of rows that were deleted since are passed over. Kinds that know zones and not rows are
asked for the values that are there: each row must be among those they would have looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.index.base import Listing
from lancelet.index.question import IsNull, OneOf
from lancelet.index.scalar.fm.kind import FmSegment, folded
from lancelet.ops.check.segments import SegmentChecker, covered_rows
from lancelet.query.indexing.segments import TableSegment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.table.snapshot import Snapshot

_KINDS: Final = frozenset(
    {"BTREE", "BITMAP", "LABEL_LIST", "ZONEMAP", "BLOOMFILTER", "NGRAM", "FM"}
)
_VALUES_ASKED: Final = 256
"""So many values of each batch of rows are asked of a kind that knows zones."""


def _differences(snapshot: Snapshot, segment: TableSegment) -> Iterator[str]:
    opened = segment.open()
    is_listing = isinstance(opened, Listing)
    rows = covered_rows(snapshot, segment, by_address=not (segment.is_by_id and is_listing))
    if not isinstance(opened, Listing):
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
