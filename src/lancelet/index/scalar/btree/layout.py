"""The two files of a BTREE: every row in the order of its value, and a summary of each page.

    page_data.lance        values  null null 3 3 5 | 7 8 8 9 12 | 15      ids  4 9 0 7 1 | ...
    page_lookup.lance      min     null            | 7          | 15
                           max     5               | 12         | 15
                           null_count 2            | 0          | 0

Nulls come first. A page is a fixed number of rows, which the metadata of the second file say.
"""

from __future__ import annotations

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
    values: pa.Array, ids: UInt64s, folder: SegmentFolder, *, page_rows: int = PAGE_ROWS
) -> None:
    """Write both files for rows in order."""
    data = pa.schema(
        [pa.field("values", values.type), pa.field("ids", pa.uint64(), nullable=False)]
    )
    table = pa.Table.from_arrays([values, pa.array(ids)], schema=data)
    folder.write(PAGE_DATA, table, {BATCH_SIZE: str(page_rows)})
    metadata = {BATCH_SIZE: str(page_rows), RANGE_PARTITIONED: "false"}
    folder.write(PAGE_LOOKUP, _summary(values, page_rows), metadata)


def _summary(values: pa.Array, page_rows: int) -> pa.Table:
    """Return the first and last value of each page, and how many nulls it has."""
    starts = np.arange(0, len(values), page_rows)
    stops = np.minimum(starts + page_rows, len(values))
    null_counts = np.clip(values.null_count - starts, 0, stops - starts)
    schema = pa.schema(
        [
            pa.field("min", values.type),
            pa.field("max", values.type),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("page_idx", pa.uint32(), nullable=False),
        ]
    )
    columns = [
        values.take(pa.array(starts)),
        values.take(pa.array(np.maximum(stops - 1, 0))),
        pa.array(null_counts.astype(np.uint32)),
        pa.array(np.arange(len(starts), dtype=np.uint32)),
    ]
    return pa.Table.from_arrays(columns, schema=schema)
