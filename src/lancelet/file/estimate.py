"""Estimates of the requests and bytes of a read, derived from the first ranges of each decoder.

The first ranges that a decoder requests are either its data or the headers of pages. The bytes
requested for all rows distinguish the two cases:

    rows 7, 90    first ranges  2 of 480 bytes      for all rows: 3184 of 3212 bytes    data
    rows 7, 90    first range   1 of 28 bytes       for all rows:   28 of 3212 bytes    headers

A header has a few bytes for each chunk of its page, so its size gives the number of chunks. Each
row of a take reads one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from lancelet.buffers import ReadCoroutine
from lancelet.encodings.base import FieldReader, RowIndices, RowRange, Rows
from lancelet.encodings.pages.planned import PlannedColumns, PlannedField
from lancelet.io.metered import IoCounts

_HEAD_BYTES: Final = 4
"""The header bytes for each chunk of a page; two bytes in files of version 2.1."""

_Read: TypeAlias = Callable[[Rows], ReadCoroutine[object]]


def estimate_field_reads(
    fields: Sequence[tuple[FieldReader, PlannedField | None]], parts: Sequence[Rows]
) -> IoCounts:
    """Estimate the requests and bytes to read parts of fields, by their plans or readers."""
    total, non_empty = IoCounts(), [rows for rows in parts if len(rows)]
    for reader, planned in fields if non_empty else ():
        all_rows = RowRange(0, reader.num_rows)
        stored = reader.encoded_bytes(all_rows)
        read: _Read = reader.read
        if planned is not None:
            by_plan = PlannedColumns([planned]).read_ranges
            # Plans read some pages of mapped files only.
            if _first_ranges(by_plan, all_rows).read_bytes or not stored:
                read = by_plan
        total += _estimate_field(read, stored, non_empty, all_rows)
    return total


def _estimate_field(
    read: _Read, stored: int, parts: Sequence[Rows], all_rows: RowRange
) -> IoCounts:
    first = [_first_ranges(read, rows) for rows in parts]
    whole = _first_ranges(read, all_rows)
    if 2 * whole.read_bytes >= stored:
        return sum(first, IoCounts())
    # Headers are read only once, for the first part.
    total = max(first, key=lambda each: each.read_bytes)
    chunks = max(1, whole.read_bytes // _HEAD_BYTES)
    for rows, heads in zip(parts, first, strict=True):
        if isinstance(rows, RowIndices):
            touched = min(chunks, len(rows))
            total += IoCounts(touched, stored * touched // chunks)
        else:
            total += IoCounts(heads.read_iops, stored * len(rows) // len(all_rows))
    return total


def _first_ranges(read: _Read, rows: Rows) -> IoCounts:
    """Return the number and bytes of the first ranges that a decoder requests."""
    coroutine = read(rows)
    ranges = next(coroutine, None)
    coroutine.close()
    return IoCounts() if ranges is None else IoCounts(len(ranges), int(ranges.size.sum()))
