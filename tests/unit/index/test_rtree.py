"""Trees of boxes: their order, their levels, and what damaged ones are."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.index.base import IndexedRows, Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import Intersects
from lancelet.index.scalar.rtree import layout
from lancelet.index.scalar.rtree.kind import RTree
from lancelet.io.memory import MemoryStore
from lancelet.rowids.selection import RowSet


def boxes(points):
    return np.concatenate([points, points], axis=1).astype(np.float64)


def test_the_curve_goes_through_each_cell_once_and_from_one_to_the_next():
    side = 16
    cells = np.array([(x, y) for x in range(side) for y in range(side)])
    ordered = cells[np.argsort(layout.curve_positions(boxes(cells)))]
    assert len(np.unique(layout.curve_positions(boxes(cells)))) == side * side
    assert (np.abs(np.diff(ordered, axis=0)).sum(axis=1) == 1).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=60), st.data())
def test_a_tree_finds_every_box_that_meets_another(pairs, data):
    own = boxes(np.array(pairs, np.float64).reshape(-1, 2))
    numbers = np.arange(len(own), dtype=np.uint64)
    place = SegmentFolder(MemoryStore(), "_indices/a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "PAGE_ROWS", 3)
        layout.write(place, own, numbers, RowSet.of(np.array([99], np.uint64)))
    segment = RTree().open(place, b"")
    low = np.array(data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
    high = low + np.array(data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4))))
    query = Intersects(*low.tolist(), *high.tolist())
    found = segment.search(query)
    assert not found.is_exact
    assert found.rows.listed().tolist() == numbers[query.intersects(own)].tolist()
    assert segment.nulls().listed().tolist() == [99]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_items", "7"),
        ("num_items", "x"),
        ("page_size", "0"),
        ("page_size", "1"),
        ("num_items", "99999999999"),
    ],
)
def test_a_tree_that_contradicts_itself_is_damaged(name, value):
    place = SegmentFolder(MemoryStore(), "_indices/a")
    values = pa.array([{"x": float(x), "y": 1.0} for x in range(5)])
    rows = IndexedRows(values.type, [(values, np.arange(5, dtype=np.uint64))])
    RTree().train(rows, place, Parameters())
    stored = place.open(layout.PAGES)
    table = pa.Table.from_arrays(stored.read(["bbox", "id"]), names=["bbox", "id"])
    other = SegmentFolder(place.store, "_indices/b")
    with other.create(layout.PAGES, stored.schema) as file:
        file.write(table.cast(stored.schema))
        for key, own in {**stored.metadata, name: value}.items():
            file.add_schema_metadata(key, own)
    place.store.copy("_indices/a/nulls.lance", "_indices/b/nulls.lance")
    with pytest.raises(CorruptDataError, match="RTREE"):
        RTree().open(other, b"")
