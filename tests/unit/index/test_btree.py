"""A BTREE compared with a scan of the values, at all borders of pages, nulls and NaN."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import InvalidInputError
from lancelet.index.base import IndexedRows, Parameters
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import Interval, IsNull, OneOf, StartsWith
from lancelet.index.scalar.btree.kind import BTree
from lancelet.index.scalar.btree.layout import PAGE_LOOKUP, write_pages
from lancelet.io.memory import MemoryStore
from lancelet.rowids.address import NO_ADDRESS


def folder():
    return SegmentFolder(MemoryStore(), "_indices/a")


def trained(values, numbers=None):
    place = folder()
    numbers = np.arange(len(values), dtype=np.uint64) if numbers is None else numbers
    BTree().train(IndexedRows(values.type, [(values, numbers)]), place, Parameters())
    return BTree().open(place, b"")


def small_pages(values, page_rows):
    """An index of sorted values with pages of a few rows."""
    place = folder()
    ids = np.arange(len(values), dtype=np.uint64)
    write_pages([(values, ids)], values.type, place, page_rows=page_rows)
    return BTree().open(place, b"")


def rows(found):
    assert found.is_exact
    return found.rows.addresses({}).tolist()


def test_a_value_costs_the_one_page_that_may_have_it():
    index = small_pages(pa.array(range(100)), 5)
    loads = index._loads
    assert rows(index.search(OneOf(pa.array([3])))) == [3]
    assert loads.parts == 1


INTEGERS = st.lists(st.none() | st.integers(-5, 5), max_size=40)


@given(
    INTEGERS,
    st.integers(1, 7),
    st.integers(-6, 6),
    st.integers(-6, 6),
    st.booleans(),
    st.booleans(),
)
def test_range_queries_match_comparisons(items, page_rows, low, high, with_low, with_high):
    items = sorted(items, key=lambda item: (item is not None, item))
    values = pa.array(items, pa.int32())
    index = small_pages(values, page_rows)
    lower, upper = pa.scalar(low, pa.int32()), pa.scalar(high, pa.int32())
    query = Interval(lower, upper, includes_lower=with_low, includes_upper=with_high)
    expected = [
        place
        for place, item in enumerate(items)
        if item is not None
        and (item > low or (with_low and item == low))
        and (item < high or (with_high and item == high))
    ]
    assert rows(index.search(query)) == expected
    assert index.estimate(query) >= len(expected)


@given(INTEGERS, st.integers(1, 7), st.lists(st.integers(-6, 6), max_size=12, unique=True))
def test_is_in_queries_match_membership(items, page_rows, wanted):
    items = sorted(items, key=lambda item: (item is not None, item))
    index = small_pages(pa.array(items, pa.int32()), page_rows)
    query = OneOf(pa.array(wanted, pa.int32()))
    expected = [place for place, item in enumerate(items) if item in wanted]
    assert rows(index.search(query)) == expected
    named = index.lookup_rows(query, len(items))
    assert sorted(named.tolist()) == expected
    if expected:
        assert index.lookup_rows(query, len(expected) - 1) is None
    assert index.estimate(query) >= len(expected)
    nulls = [place for place, item in enumerate(items) if item is None]
    assert rows(index.search(IsNull())) == nulls


NAN = float("nan")
FLOATS = [None, -NAN, float("-inf"), -1.0, -0.0, 0.0, 1.5, float("inf"), NAN]


def total(item):
    """A sort key that treats NaN as one value, the largest."""
    return (True, 0.0) if math.isnan(item) else (False, item)


@pytest.mark.parametrize("data_type", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("bound", FLOATS[2:], ids=repr)
def test_floats_are_one_zero_and_one_nan_that_is_greatest(data_type, bound):
    values = pa.array(FLOATS, pa.float64()).cast(data_type)
    index = trained(values)
    scalar = pa.scalar(bound, pa.float64()).cast(data_type)
    plain = [None if item is None else total(item) for item in FLOATS]
    key = total(bound)
    greater = [place for place, item in enumerate(plain) if item is not None and item > key]
    equal = [place for place, item in enumerate(plain) if item == key]
    assert rows(index.search(Interval(lower=scalar, includes_lower=False))) == greater
    assert rows(index.search(Interval(lower=scalar))) == sorted(greater + equal)
    assert rows(index.search(OneOf(pa.repeat(scalar, 1)))) == equal
    below = [place for place, item in enumerate(plain) if item is not None and item < key]
    assert rows(index.search(Interval(upper=scalar, includes_upper=False))) == below


@given(
    st.lists(st.text(alphabet="aé\ud7ff\ue000\U0010ffff", max_size=4), max_size=30),
    st.text(alphabet="aé\ud7ff\U0010ffff", min_size=1, max_size=2),
)
def test_prefix_queries_match_startswith(items, prefix):
    index = trained(pa.array(items, pa.string()))
    expected = sorted(place for place, item in enumerate(items) if item.startswith(prefix))
    assert rows(index.search(StartsWith(prefix.encode()))) == expected


def test_many_texts_are_found_as_few_are():
    items = [f"{number:04}" for number in range(3000)]
    index = trained(pa.array(items))
    wanted = [*items[::17], "x", ""]
    assert rows(index.search(OneOf(pa.array(wanted)))) == list(range(0, 3000, 17))


def test_remapping_moves_rows_and_drops_those_that_are_gone():
    place = folder()
    BTree().train(
        IndexedRows(pa.int64(), [(pa.array([3, 1, None]), np.arange(3, dtype=np.uint64))]),
        place,
        Parameters(),
    )
    target = folder()

    def move(numbers):
        return np.where(numbers == 0, NO_ADDRESS, numbers + np.uint64(10))

    BTree().remap(BTree().open(place, b""), move, target)
    moved = BTree().open(target, b"")
    assert rows(moved.search(OneOf(pa.array([1, 3])))) == [11]
    assert rows(moved.search(IsNull())) == [12]


def test_merging_preserves_retained_rows_and_adds_new_ones():
    first = trained(pa.array([5, 2, 9]))
    target = folder()
    more = IndexedRows(pa.int64(), [(pa.array([7, None]), np.array([20, 21], np.uint64))])
    BTree().merge(
        [first], [lambda numbers: np.where(numbers != 1, numbers, NO_ADDRESS)], more, target
    )
    merged = BTree().open(target, b"")
    assert rows(merged.search(Interval())) == [0, 2, 20]
    assert rows(merged.search(IsNull())) == [21]


def test_an_index_of_no_rows_finds_none():
    index = trained(pa.array([], pa.string()))
    assert rows(index.search(OneOf(pa.array(["a"])))) == []
    assert index.estimate(Interval()) == 0


def test_the_summary_matches_the_reference():
    place = folder()
    values = pa.array([None, None, None, 1, 2, 3], pa.int32())
    write_pages([(values, np.arange(6, dtype=np.uint64))], values.type, place, page_rows=2)
    lookup = place.open(PAGE_LOOKUP)
    minimum, maximum, nulls, pages = lookup.read(["min", "max", "null_count", "page_idx"])
    assert minimum.to_pylist() == [None, None, 2]
    assert maximum.to_pylist() == [None, 1, 3]
    assert (nulls.to_pylist(), pages.to_pylist()) == ([2, 1, 0], [0, 1, 2])
    assert lookup.metadata["batch_size"] == "2"


@pytest.mark.parametrize(
    "data_type",
    [pa.list_(pa.int32()), pa.struct([("a", pa.int32())]), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_types_without_an_order_are_rejected(data_type):
    with pytest.raises(InvalidInputError, match="BTREE"):
        BTree().check_type(data_type, "x")


def test_rows_are_not_sorted_by_the_caller():
    values = pa.array(np.random.default_rng(1).permutation(10_000))
    index = trained(values)
    found = rows(index.search(Interval(pa.scalar(100), pa.scalar(200))))
    mask = pc.and_(pc.greater_equal(values, 100), pc.less_equal(values, 200))
    assert found == np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
