"""The two files of a BTREE index: all rows sorted by value, and the bounds of each page.

    page_data.lance        values  null null 3 3 5 | 7 8 8 9 12 | 15      ids  4 9 0 7 1 | ...
    page_lookup.lance      min     null            | 7          | 15
                           max     5               | 12         | 15
                           null_count 2            | 0          | 0

Nulls are sorted first. The page size is fixed and recorded in the metadata of the lookup file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.index.folder import SegmentFolder
from lancelet.rowids.address import UInt64s

PAGE_DATA: Final = "page_data.lance"
PAGE_LOOKUP: Final = "page_lookup.lance"
BATCH_SIZE: Final = "batch_size"
RANGE_PARTITIONED: Final = "range_partitioned"
PAGE_ROWS: Final = 4096


def write_pages(
    parts: Iterable[tuple[pa.Array, UInt64s]],
    data_type: pa.DataType,
    folder: SegmentFolder,
    *,
    page_rows: int = PAGE_ROWS,
) -> None:
    """Write both files from sorted rows."""
    schema = pa.schema(
        [pa.field("values", data_type), pa.field("ids", pa.uint64(), nullable=False)]
    )
    bounds = _Bounds(data_type, page_rows)
    with folder.create(PAGE_DATA, schema) as file:
        for values, ids in parts:
            file.write(pa.Table.from_arrays([values, pa.array(ids)], schema=schema))
            bounds.add(values)
        file.add_schema_metadata(BATCH_SIZE, str(page_rows))
    metadata = {BATCH_SIZE: str(page_rows), RANGE_PARTITIONED: "false"}
    folder.write(PAGE_LOOKUP, bounds.table(), metadata)


class _Bounds:
    """Collects the first and last value of each page while rows are written."""

    def __init__(self, data_type: pa.DataType, page_rows: int) -> None:
        self._data_type = data_type
        self._page_rows = page_rows
        self._firsts: list[pa.Array] = [pa.array([], data_type)]
        self._lasts: list[pa.Array] = [pa.array([], data_type)]
        self._final = pa.array([], data_type)
        self._num_rows = 0
        self._num_nulls = 0

    def add(self, values: pa.Array) -> None:
        """Add the next rows."""
        if not len(values):
            return
        size = self._page_rows
        first = -self._num_rows % size
        last = (size - 1 - self._num_rows) % size
        self._firsts.append(values.take(pa.array(np.arange(first, len(values), size))))
        self._lasts.append(values.take(pa.array(np.arange(last, len(values), size))))
        self._final = values.take(pa.array([len(values) - 1]))
        self._num_rows += len(values)
        self._num_nulls += values.null_count

    def table(self) -> pa.Table:
        """Return the bounds and null count of each page."""
        size = self._page_rows
        if self._num_rows % size:
            self._lasts.append(self._final)
        starts = np.arange(0, self._num_rows, size)
        stops = np.minimum(starts + size, self._num_rows)
        null_counts = np.clip(self._num_nulls - starts, 0, stops - starts)
        schema = pa.schema(
            [
                pa.field("min", self._data_type),
                pa.field("max", self._data_type),
                pa.field("null_count", pa.uint32(), nullable=False),
                pa.field("page_idx", pa.uint32(), nullable=False),
            ]
        )
        columns = [
            pa.concat_arrays(self._firsts),
            pa.concat_arrays(self._lasts),
            pa.array(null_counts.astype(np.uint32)),
            pa.array(np.arange(len(starts), dtype=np.uint32)),
        ]
        return pa.Table.from_arrays(columns, schema=schema)
