"""The page table: a dense matrix of page positions and lengths by field id and batch.

    fields 3 and 5, two batches             position, length
    3    (0, 10) (80, 4)
    4    (0, 0)  (0, 0)                     ids without pages have zeros
    5    (40, 10) (96, 4)

The first row belongs to the smallest field id of the file. The table does not contain this id, so
reading it requires the field ids.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from lancelet.buffers import Bytes
from lancelet.encodings.v0_1 import FieldPages, Page
from lancelet.errors import CorruptDataError

_CELL_BYTES = 16


def table_range(
    position: int, field_ids: Collection[int], num_batches: int, *, file_bytes: int
) -> tuple[int, int]:
    """Return the position and size of the page table."""
    size = (max(field_ids) - min(field_ids) + 1) * num_batches * _CELL_BYTES
    if position + size > file_bytes:
        raise CorruptDataError(
            "the page table is outside of the file; was it truncated by a copy?",
            position=position,
            expected_bytes=size,
            file_bytes=file_bytes,
        )
    return position, size


def parse_table(
    data: Bytes, field_ids: Collection[int], num_batches: int
) -> Mapping[int, FieldPages]:
    """Return the pages of each field by field id."""
    cells = np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, num_batches, 2)
    first = min(field_ids)
    return {
        field_id: FieldPages(cells[field_id - first, :, 0], cells[field_id - first, :, 1])
        for field_id in field_ids
    }


def table_bytes(batches: Iterable[Iterable[Page]], field_ids: Collection[int]) -> bytes:
    """Return the serialized page table.

    >>> table_bytes([[Page(field_id=3, position=80, length=4)]], [3]).hex()
    '50000000000000000400000000000000'
    """
    rows = [list(pages) for pages in batches]
    first = min(field_ids, default=0)
    last = max((page.field_id for pages in rows for page in pages), default=first - 1)
    cells = np.zeros((last - first + 1, len(rows), 2), "<i8")
    for batch, pages in enumerate(rows):
        for page in pages:
            cells[page.field_id - first, batch] = page.position, page.length
    return cells.tobytes()
