"""What reading rows will ask of storage, told by the decoders, which are asked and not run.

A decoder says first which ranges it wants. Those are its data, unless it has to read the heads of
pages before: then the first ranges are far too small to be all of the column.

    rows 7, 90    first ranges  2 of 480 bytes      of all rows: 3184 bytes of 3212     as it says
    rows 7, 90    first range   1 of 28 bytes       of all rows:   28 bytes of 3212     heads

A head has some bytes for each chunk of its page, so it tells too how many chunks there are, of
which each row that is taken wants one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from lancelet.buffers import Reading
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.bundle import Bundle
from lancelet.file.selection import OpenedField, Selection
from lancelet.io.metered import IoCounts

_HEAD_BYTES: Final = 4
"""What the head of a page says of a chunk; two bytes in files of version 2.1."""

_Read: TypeAlias = Callable[[Rows], Reading[object]]


def expected_of_units(selection: Selection, parts: Sequence[Rows]) -> IoCounts:
    """Return about what reading rows of all fields of a selection asks for, part by part."""
    found, wanted = IoCounts(), [rows for rows in parts if len(rows)]
    for unit in selection.units if wanted else ():
        found += _expected(unit, wanted, RowRange(0, selection.num_rows))
    return found


def _expected(unit: OpenedField | Bundle, parts: Sequence[Rows], everything: RowRange) -> IoCounts:
    if isinstance(unit, OpenedField):
        read: _Read = unit.reader.read
        stored = unit.reader.encoded_bytes(everything)
    else:
        read, stored = unit.read, unit.encoded_bytes
    first = [_first_ranges(read, rows) for rows in parts]
    whole = _first_ranges(read, everything)
    if 2 * whole.read_bytes >= stored:
        return sum(first, IoCounts())
    # Heads are read once, for whichever part comes first.
    found = max(first, key=lambda each: each.read_bytes)
    chunks = max(1, whole.read_bytes // _HEAD_BYTES)
    for rows, heads in zip(parts, first, strict=True):
        if isinstance(rows, RowIndices):
            touched = min(chunks, len(rows))
            found += IoCounts(touched, stored * touched // chunks)
        else:
            found += IoCounts(heads.read_iops, stored * len(rows) // len(everything))
    return found


def _first_ranges(read: _Read, rows: Rows) -> IoCounts:
    """Return how many ranges a decoder wants first, and their bytes; some want none."""
    reading = read(rows)
    ranges = next(reading, None)
    reading.close()
    return IoCounts() if ranges is None else IoCounts(len(ranges), int(ranges.size.sum()))
