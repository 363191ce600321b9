"""The RTREE index kind: bounding boxes of geometries in a tree of pages.

    st_intersects(g, 'POLYGON ((0 0, 4 0, 4 4, 0 0))')     Intersects(0, 0, 4, 4)
    root       boxes of pages 0 1 2        page 1 intersects
    page 1     boxes of rows 5 9 3 ...     rows 9 and 3 intersect and must be rechecked

Geometries whose boxes intersect need not intersect themselves, so results are not exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.format.geometry import bounding_boxes, is_geometry_type
from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    SearchResult,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import Intersects, IsNull, ScalarQuery
from lancelet.index.scalar.rtree import layout
from lancelet.index.scalar.rtree.layout import Boxes
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.rowids.selection import RowSet

_COLUMNS = ("bbox", "id")


class RTreeSegment:
    """An open segment of an RTREE index. Pages are read on demand."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the levels and the rows without a geometry."""
        self._path = f"{folder.path}/{layout.PAGES}"
        self._file = folder.open(layout.PAGES)
        self._levels, self._page_rows = layout.read_levels(self._file, self._path)
        (nulls,) = folder.open(layout.NULLS).read(["nulls"])
        self._nulls = RowSet.parse((nulls[0].as_py() if len(nulls) else None) or bytes(4))
        self._cache, self._loads = folder.cache_scope, folder.loads
        self._last: tuple[Intersects, UInt64s] | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows with a geometry."""
        return self._levels[0].rows

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the number of candidate rows, or None for queries that are not spatial."""
        match query:
            case IsNull():
                return self._nulls.num_listed
            case Intersects():
                return len(self._intersecting(query))
            case _:
                return None

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows whose boxes intersect the query, or the null rows."""
        if isinstance(query, IsNull):
            return SearchResult(self._nulls)
        assert isinstance(query, Intersects), "supported queries have an estimate"
        return SearchResult(RowSet.of(self._intersecting(query)), is_exact=False)

    def nulls(self) -> RowSet:
        """Return the rows without a geometry."""
        return self._nulls

    def statistics(self) -> dict[str, Any]:
        """Return the numbers of boxes and levels."""
        return {"num_items": self.num_rows, "num_levels": len(self._levels)}

    def items(self) -> tuple[Boxes, UInt64s]:
        """Return all boxes and their row numbers."""
        boxes, ids = self._file.read(_COLUMNS, RowRange(0, self.num_rows))
        return layout.boxes_within(boxes), ids.to_numpy()

    def _intersecting(self, query: Intersects) -> UInt64s:
        """Return the rows whose boxes intersect the query; the last result is cached."""
        last = self._last
        if last is None or last[0] is not query:
            self._last = last = query, self._search(query)
        return last[1]

    def _search(self, query: Intersects) -> UInt64s:
        top = self._levels[-1]
        pages = np.array([top.first_page] if top.rows else [], np.uint64)
        for level in reversed(self._levels):
            parts = [np.empty(0, np.uint64)]
            for page in pages.tolist():
                boxes, ids = self._page(level, page)
                self._loads.count(comparisons=len(ids))
                parts.append(ids[query.intersects(boxes)])
            pages = np.concatenate(parts)
        return np.sort(pages)

    def _page(self, level: layout.Level, page: int) -> tuple[Boxes, UInt64s]:
        start, stop = level.row_range(page, self._page_rows)
        if not level.first_row <= start < stop:
            raise CorruptDataError(
                "an RTREE index page refers to a page outside of the next level",
                path=self._path,
                page=page,
            )
        if page in self._cache:
            self._loads.count(cache_hits=1)
        return self._cache.get_or_make(page, lambda: self._read(RowRange(start, stop)))

    def _read(self, rows: RowRange) -> tuple[Boxes, UInt64s]:
        self._loads.count(parts=1)
        boxes, ids = self._file.read(_COLUMNS, rows)
        return layout.boxes_within(boxes), ids.to_numpy()


class RTree(ScalarKind[RTreeSegment]):
    """The RTREE index kind: bounding boxes of geometries."""

    name = "RTREE"
    title = "RTree"
    type_url = "/lance.index.pb.RTreeIndexDetails"
    newest_version = 1
    unsupported_message = "an RTREE index requires a geometry column, of a GeoArrow type or as WKB"
    can_remap = True

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether the query matches nulls. All other results must be rechecked."""
        return isinstance(query, IsNull)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether the type can contain geometries."""
        return is_geometry_type(data_type)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:  # noqa: ARG002
        """Sort and write the boxes of all rows."""
        _write(folder, [*_boxes(rows)], [])
        return b""

    def open(self, folder: SegmentFolder, details: bytes) -> RTreeSegment:  # noqa: ARG002
        """Open a segment."""
        return RTreeSegment(folder)

    def merge(
        self,
        segments: Sequence[RTreeSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge the boxes of segments and new rows."""
        moved = [_remap_boxes(segment, move) for segment, move in zip(segments, moves, strict=True)]
        _write(
            folder,
            [*_boxes(rows), *(part for part, _ in moved)],
            [null_numbers for _, null_numbers in moved],
        )
        return b""


def _boxes(rows: IndexedRows) -> Iterator[tuple[Boxes, UInt64s]]:
    """Yield the boxes and numbers of rows; boxes of null geometries are NaN."""
    for values, numbers in rows.parts:
        yield bounding_boxes(values), numbers


def _remap_boxes(segment: RTreeSegment, move: Move) -> tuple[tuple[Boxes, UInt64s], UInt64s]:
    """Return the boxes of a segment with new row numbers, and its rows without a geometry."""
    boxes, numbers = segment.items()
    moved = move(numbers)
    remaining = moved != NO_ADDRESS
    nulls = move(segment.nulls().listed())
    return (boxes[remaining], moved[remaining]), nulls[nulls != NO_ADDRESS]


def _write(
    folder: SegmentFolder, parts: Sequence[tuple[Boxes, UInt64s]], nulls: Sequence[UInt64s]
) -> None:
    boxes = np.concatenate([np.empty((0, 4)), *(part[0] for part in parts)])
    numbers = np.concatenate([np.empty(0, np.uint64), *(part[1] for part in parts)])
    missing = np.isnan(boxes).any(axis=1)
    null_numbers = np.concatenate([numbers[missing], *nulls])
    layout.write(folder, boxes[~missing], numbers[~missing], RowSet.of(np.sort(null_numbers)))
