"""Files of an RTREE index: pages of boxes by level, and the rows without a geometry.

    page_data.lance     pages 0 1 2 of rows     page 3: the boxes of pages 0 1 2
    nulls.lance         one row with a set of rows

Rows are sorted along a Hilbert curve, so nearby rows share pages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import CorruptDataError
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import dataclass

Boxes = npt.NDArray[np.float64]
"""Rows of xmin, ymin, xmax, ymax."""

PAGES: Final = "page_data.lance"
NULLS: Final = "nulls.lance"
PAGE_ROWS: Final = 4096
NAMES: Final = ("xmin", "ymin", "xmax", "ymax")
_BOX: Final = pa.struct([pa.field(name, pa.float64(), nullable=False) for name in NAMES])
_EXTENSION: Final = {"ARROW:extension:name": "geoarrow.box"}
_SCHEMA: Final = pa.schema(
    [
        pa.field("bbox", _BOX, nullable=False, metadata=_EXTENSION),
        pa.field("id", pa.uint64(), nullable=False),
    ]
)
_NULLS_SCHEMA: Final = pa.schema([pa.field("nulls", pa.binary(), nullable=False)])
_BOUNDS: Final = ("minx", "miny", "maxx", "maxy")
_CURVE_BITS: Final = 16
_WRITTEN_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Level:
    """The pages of one level: the number of the first page, and its row range."""

    first_page: int
    first_row: int
    rows: int

    def row_range(self, page: int, page_rows: int) -> tuple[int, int]:
        """Return the row range of a page."""
        start = (page - self.first_page) * page_rows
        return self.first_row + start, self.first_row + min(start + page_rows, self.rows)


def levels_of(num_items: int, page_rows: int) -> list[Level]:
    """Return the levels of a tree, starting with the rows of the table.

    >>> levels_of(10_000, 4096)
    [Level(first_page=0, first_row=0, rows=10000), Level(first_page=3, first_row=10000, rows=3)]
    """
    levels = [Level(0, 0, num_items)]
    while levels[-1].rows > page_rows:
        below = levels[-1]
        pages = -(-below.rows // page_rows)
        levels.append(Level(below.first_page + pages, below.first_row + below.rows, pages))
    return levels


def read_levels(file: StoredFile, path: str) -> tuple[list[Level], int]:
    """Return the levels and page size of a file. Raise if they do not match the file."""
    numbers = [file.metadata.get(name, "") for name in ("num_items", "page_size")]
    if not all(each.isdecimal() and len(each) < 16 for each in numbers) or numbers[1] == "0":
        raise CorruptDataError("invalid metadata in an RTREE index", path=path, found=numbers)
    num_items, page_rows = map(int, numbers)
    if num_items > file.num_rows or page_rows == 1:
        raise CorruptDataError(
            "the number of items in an RTREE index exceeds its rows",
            path=path,
            num_items=num_items,
            page_size=page_rows,
            rows=file.num_rows,
        )
    levels = levels_of(num_items, page_rows)
    if levels[-1].first_row + levels[-1].rows != file.num_rows:
        raise CorruptDataError(
            "the pages of an RTREE index do not match its rows",
            path=path,
            num_items=num_items,
            page_size=page_rows,
            rows=file.num_rows,
        )
    return levels, page_rows


def boxes_within(column: pa.Array) -> Boxes:
    """Return the boxes of a struct column."""
    try:
        sides = [column.field(name).to_numpy(zero_copy_only=False) for name in NAMES]
    except (KeyError, AttributeError) as error:
        raise CorruptDataError(
            "missing bound in the boxes of an RTREE index", expected=NAMES
        ) from error
    return np.column_stack(sides).astype(np.float64, copy=False)


def write(folder: SegmentFolder, boxes: Boxes, numbers: UInt64s, nulls: RowSet) -> None:
    """Write boxes with their row numbers, and the rows without a geometry."""
    order = np.lexsort((numbers, curve_positions(boxes)))
    boxes, numbers = boxes[order], numbers[order]
    total_bounds = _bounds_of(boxes)
    levels = levels_of(len(boxes), PAGE_ROWS)
    with folder.create(PAGES, _SCHEMA) as file:
        file.write(_table(boxes[:0], numbers[:0]))
        for level_boxes, ids in _levels(boxes, numbers):
            for start in range(0, len(level_boxes), _WRITTEN_ROWS):
                stop = start + _WRITTEN_ROWS
                file.write(_table(level_boxes[start:stop], ids[start:stop]))
        pages = levels[-1].first_page + -(-levels[-1].rows // PAGE_ROWS)
        file.add_schema_metadata("page_size", str(PAGE_ROWS))
        file.add_schema_metadata("num_pages", str(pages))
        file.add_schema_metadata("num_items", str(len(boxes)))
        bounds = dict(zip(_BOUNDS, total_bounds, strict=True))
        file.add_schema_metadata("bbox", json.dumps(bounds, separators=(",", ":")))
    with folder.create(NULLS, _NULLS_SCHEMA) as file:
        rendered = pa.array([nulls.render()], pa.binary())
        file.write(pa.Table.from_arrays([rendered], schema=_NULLS_SCHEMA))


def curve_positions(boxes: Boxes) -> npt.NDArray[np.uint64]:
    """Return the position of each box center on a Hilbert curve through all boxes."""
    if not len(boxes):
        return np.empty(0, np.uint64)
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    coordinate_max = (1 << _CURVE_BITS) - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled = np.nan_to_num((middle - low) / (high - low) * coordinate_max, nan=0.0)
    x, y = np.clip(scaled, 0, coordinate_max).astype(np.int64).T.copy()
    positions = np.zeros(len(boxes), np.uint64)
    for bit in range(_CURVE_BITS - 1, -1, -1):
        side = 1 << bit
        right, upper = (x & side) > 0, (y & side) > 0
        quarter = np.where(right, np.where(upper, 2, 3), np.where(upper, 1, 0))
        positions |= quarter.astype(np.uint64) << np.uint64(2 * bit)
        # The curve is transposed in the lower left quadrant and flipped in the lower right one.
        flipped = ~upper & right
        x = np.where(flipped, coordinate_max - x, x)
        y = np.where(flipped, coordinate_max - y, y)
        x, y = np.where(upper, x, y), np.where(upper, y, x)
    return positions


def _levels(boxes: Boxes, numbers: UInt64s) -> Iterator[tuple[Boxes, UInt64s]]:
    """Yield the rows of each level, starting with the lowest."""
    first_page = 0
    while True:
        yield boxes, numbers
        pages = -(-len(boxes) // PAGE_ROWS)
        if pages < 2:
            return
        starts = np.arange(pages) * PAGE_ROWS
        low = np.minimum.reduceat(boxes[:, :2], starts)
        high = np.maximum.reduceat(boxes[:, 2:], starts)
        boxes = np.concatenate([low, high], axis=1)
        numbers = np.arange(first_page, first_page + pages, dtype=np.uint64)
        first_page += pages


def _bounds_of(boxes: Boxes) -> list[float]:
    if not len(boxes):
        return [0.0] * 4
    return [*boxes[:, :2].min(axis=0).tolist(), *boxes[:, 2:].max(axis=0).tolist()]


def _table(boxes: Boxes, numbers: UInt64s) -> pa.Table:
    sides = [pa.array(np.ascontiguousarray(side)) for side in boxes.T]
    column = pa.StructArray.from_arrays(sides, fields=list(_BOX))
    return pa.Table.from_arrays([column, pa.array(numbers, pa.uint64())], schema=_SCHEMA)
